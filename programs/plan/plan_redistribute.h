// `ina-plan redistribute`: the steps, bytes, memory and predicted time by which an array changes
// its layout on a mesh.
#pragma once

#include <functional>

#include "common/command_line.h"

namespace ina::cli {

/// Adds the command. When the command line asks for it, `chosen` becomes the function to run. It
/// prints the plan and returns the exit status: 0, or with a sentence on standard error, 2 if a
/// value is wrong or no plan keeps the limit, 1 if --verify finds a plan wrong.
void add_redistribute(command_line::App& app, std::function<int()>& chosen);

}  // namespace ina::cli
