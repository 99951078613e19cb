// ina-plan calibrate: a topology with the rates and latencies that real contexts have.
#pragma once

#include <functional>

#include "common/command_line.h"

namespace ina::cli {

/// Adds the command to `app`. If it is given, `chosen` is set; called, it returns the exit status.
void add_calibrate(command_line::App& app, std::function<int()>& chosen);

}  // namespace ina::cli
