// `ina-plan collective`: steps, bytes, predicted time and utilisation of a collective over the
// dimensions of a topology.
#pragma once

#include <functional>

#include "common/command_line.h"

namespace ina::cli {

/// Adds the command. When the command line asks for it, `chosen` becomes the function to run. It
/// prints the plan and returns the exit status: 0, or with a sentence on standard error, 2 if a
/// file or a value is wrong.
void add_collective(command_line::App& app, std::function<int()>& chosen);

}  // namespace ina::cli
