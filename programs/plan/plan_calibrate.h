// ina-plan calibrate: a topology with the rates and latencies that real contexts have.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace ina::cli {

/// Adds the command to `app`. If it is given, `chosen` is set; called, it returns the exit status.
void add_calibrate(CLI::App& app, std::function<int()>& chosen);

}  // namespace ina::cli
