#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "common/command_line.h"
#include "sim/plan_command.h"
#include "sim/plan_points.h"

namespace ina::sim {
namespace {

struct Options {
  uint64_t seed = 1, first = 0, points = 100;
  PointLimits limits;
  uint32_t window = PlanSpec{}.window;
  bool aggregator_window = true;
};

void print_spread(const char* of, std::vector<double> differences) {
  if (differences.empty()) return;
  for (double& difference : differences) difference = std::abs(difference);
  std::ranges::sort(differences);
  const auto part = [&](double share) {
    return 100 *
           differences[static_cast<size_t>(share * static_cast<double>(differences.size() - 1))];
  };
  const auto within = std::ranges::upper_bound(differences, 0.05) - differences.begin();
  fmt::print(
      "{:<16}{:>6} points: median {:.2f} %, 95 % of them within {:.2f} %, worst {:.2f} %, "
      "{} beyond 5 %\n",
      of, differences.size(), part(0.5), part(0.95), part(1),
      static_cast<ptrdiff_t>(differences.size()) - within);
}

int run(const Options& options) {
  std::vector<double> all;
  std::vector<std::vector<double>> by_collective(themis::kCollectiveNames.size());
  bool correct = true;
  for (uint64_t index = options.first; index < options.first + options.points; ++index) {
    PlanSpec spec = drawn_point(options.seed, index, options.limits);
    spec.window = options.window;
    spec.aggregator_window = options.aggregator_window;
    const PlanOutcome outcome = run_plan(spec);
    for (const std::string& violation : outcome.violations)
      fmt::print(stderr, "ina-sim: point {}: {}\n", index, violation);
    correct &= outcome.violations.empty();
    if (outcome.rounds.size() < spec.rounds) continue;
    const double difference = outcome.beyond(outcome.predictions.by_switches_ps);
    all.push_back(difference);
    by_collective[static_cast<size_t>(spec.collective)].push_back(difference);
    fmt::print("{:>5} {:>+8.2f} % of {:.1f} us: {} ({} rounds, queries {}, bypassed {})\n", index,
               100 * difference, static_cast<double>(outcome.predictions.by_switches_ps) * 1e-6,
               describe(spec), outcome.rounds.size(), outcome.queries, outcome.bypassed);
    std::fflush(stdout);
  }
  for (size_t i = 0; i < by_collective.size(); ++i)
    print_spread(themis::kCollectiveNames[i].data(), by_collective[i]);
  print_spread("all", all);
  return correct ? 0 : 1;
}

}  // namespace

void add_plan_points(command_line::App& app, std::function<int()>& chosen) {
  const auto options = std::make_shared<Options>();
  command_line::App* command = app.add_subcommand(
      "plan-points",
      "instead: the planner's model beside the simulation, at points that a seed draws");
  command->add_option("--seed", options->seed, "decides the points");
  command->add_option("--first", options->first, "number of the first point");
  command->add_option("--points", options->points, "how many")->check(command_line::positive());
  command->add_option("--most-bytes", options->limits.most_bytes, "of a vector")
      ->transform(command_line::size())
      ->type_name("SIZE");
  command->add_option("--most-work", options->limits.most_work, "bytes times ranks")
      ->transform(command_line::size())
      ->type_name("SIZE");
  command->add_option("--window", options->window, "W: fragments a rank may run ahead");
  command->add_flag("--aggregator-window,!--no-aggregator-window", options->aggregator_window,
                    "A2TP's second window");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ina::sim
