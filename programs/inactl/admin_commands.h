// The commands of inactl for administrators: create, abort, kick, drain, undrain, tenants,
// aggregator, trace, reload, policy.
#pragma once

#include <functional>

#include "common/command_line.h"
#include "programs/inactl/common.h"

namespace ina::cli {

/// Adds the commands. The command that the user gives sets `chosen` to its function, which reads
/// `common` and returns the program's exit status.
void add_admin_commands(command_line::App& app, const Common& common, std::function<int()>& chosen);

}  // namespace ina::cli
