// ina-plan: plans collectives over several networks and redistributions without running them, and
// measures what to plan with.
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "common/command_line.h"
#include "programs/plan/plan_calibrate.h"
#include "programs/plan/plan_collective.h"
#include "programs/plan/plan_redistribute.h"

namespace {

int run(int argc, char** argv) {
  ina::command_line::App app(
      "Plans collectives and redistributions, and says what they will take. Only calibrate sends\n"
      "anything: it measures.",
      "ina-plan");
  app.set_version_flag("--version", INA_PROJECT_VERSION);
  app.require_subcommand(1);
  std::function<int()> chosen;
  ina::cli::add_collective(app, chosen);
  ina::cli::add_redistribute(app, chosen);
  ina::cli::add_calibrate(app, chosen);
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-plan: {}\n", error.what());
    return 1;
  }
}
