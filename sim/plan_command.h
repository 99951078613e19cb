// `ina-sim plan`: a planned collective over several dimensions, carried out on a simulated network,
// beside the prediction of the planner's model. docs/themis.md has the method.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace ina::sim {

/// Adds the subcommand. Where it is given, `chosen` runs it and returns the exit status.
void add_plan(CLI::App& app, std::function<int()>& chosen);

}  // namespace ina::sim
