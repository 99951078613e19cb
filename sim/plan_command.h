// `ina-sim plan`: a planned collective over several dimensions, carried out on a simulated network,
// beside the prediction of the planner's model. `ina-sim plan-points`: many of them, drawn by a
// seed. docs/themis.md has the method.
#pragma once

#include <functional>

#include "common/command_line.h"

namespace ina::sim {

/// Adds the subcommand. Where that is given, `chosen` runs it and returns the exit status.
void add_plan(command_line::App& app, std::function<int()>& chosen);
void add_plan_points(command_line::App& app, std::function<int()>& chosen);

}  // namespace ina::sim
