// ina-faultsim: runs seeds of the fault simulator and reports violations.
//   ina-faultsim --seed 4711            replays one run
//   ina-faultsim --from 0 --count 1000  runs many
//   ina-faultsim --without partial_test    switches a rule off: a violation must turn up
//   ina-faultsim --without partial_test --swarm    the same in scenarios that do not know of the
//   rule
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>

#include "commit.h"
#include "common/command_line.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "sim/faults/world.h"
#include "wire/rules.h"

namespace ina::sim {
namespace {

struct Cell {
  uint64_t runs = 0, fragments = 0, fallback_fragments = 0, contributions = 0, raws = 0,
           reminders = 0, queries = 0, packets = 0, dropped = 0, preemptions = 0, groups = 0,
           grouped = 0, parked = 0, parker_results = 0, restarts = 0, zombies = 0;
  double finished_s = 0;
};

int sign(bool set, bool value) {
  return set ? value : -1;
}

int run(int argc, char** argv) {
  CLI::App app{"Seeded fault simulation of the whole protocol, with the daemon's own objects."};
  uint64_t seed = 0, from = 0, count = 1;
  std::string without, json_file;
  Restrictions restrictions;
  bool quiet = false, progress = false, residual = true, swarm = false;
  auto* one = app.add_option("--seed", seed, "replay this seed");
  app.add_option("--from", from, "first seed");
  app.add_option("--count", count, "number of seeds");
  command_line::add_choice(app, "--policy", restrictions.policy, scheduler::kPolicyNames,
                           "this policy only");
  command_line::add_choice(app, "--home", restrictions.home, kHomeNames,
                           "this home of the fallback only");
  app.add_option("--loss", restrictions.loss, "only loss, at this rate, and no other fault");
  app.add_option("--without", without, "switch this rule off and stop at the first violation");
  app.add_option("--profile", restrictions.profile,
                 "scenarios that are hard on this rule (default with --without: the rule's)");
  app.add_flag("--swarm", swarm, "with --without: scenarios of all kinds all the same");
  app.add_flag("--mismatch", restrictions.mismatch,
               "one worker calls something else, and somebody must find out");
  app.add_flag("--plain", restrictions.plain,
               "all-reduces only, and no scenarios of dense restarts");
  std::string collectives;
  app.add_option("--collectives", collectives, "operations of this kind only, or 'mixed'")
      ->type_name("NAME");
  app.add_flag("--redistributions", restrictions.redistributions,
               "redistributions of arrays as operations, and nothing else");
  app.add_flag("--reproducible", restrictions.reproducible,
               "reproducible reductions of floats as operations, and nothing else");
  app.add_flag("--hierarchies", restrictions.hierarchies,
               "collectives through several dimensions, by plans, and nothing else");
  app.add_option("--json", json_file, "write a summary to this file ('-': standard output)");
  app.add_option("--slots", restrictions.slots, "of the array");
  auto* with_residual = app.add_option("--residual", residual, "true or false");
  app.add_flag("--small", restrictions.small, "two jobs of four workers, W 8, 64 slots");
  app.add_flag("--quiet", quiet, "print violations only");
  app.add_flag("--progress", progress, "print how far it is, now and then");
  if (const auto status = command_line::parse(app, argc, argv)) return *status;
  auto output = OutputFile::open(json_file);
  if (!output) {
    fmt::print(stderr, "ina-faultsim: {}\n", output.error().text);
    return command_line::kExitUsage;
  }
  restrictions.residual = sign(with_residual->count() != 0, residual);
  if (*one) {
    from = seed;
    count = 1;
  }
  if (!without.empty()) {
    uint32_t index = 0;
    while (index < kRules && kRuleNames[index] != without) ++index;
    if (index == kRules) {
      fmt::print(stderr, "unknown rule '{}'; known: {}\n", without, fmt::join(kRuleNames, ", "));
      return 2;
    }
    rules_off = 1u << index;
    if (restrictions.profile.empty() && !swarm) restrictions.profile = without;
  }
  for (const Collective collective : all_collectives())
    if (collectives == "mixed" || collectives == name(collective))
      restrictions.collectives.push_back(collective);
  if (!collectives.empty() && restrictions.collectives.empty()) {
    fmt::print(stderr, "ina-faultsim: --collectives: no collective is called '{}'\n",
               command_line::printable(collectives));
    return command_line::kExitUsage;
  }
  std::map<std::pair<std::string, std::string>, Cell> cells;
  uint64_t violations = 0;
  uint64_t first_failing = 0;
  uint64_t runs = 0;
  double max_loss = 0;
  const auto start = std::chrono::steady_clock::now();
  auto last = start;
  for (uint64_t s = from; s < from + count; ++s) {
    const Scenario scenario = make_scenario(s, restrictions);
    max_loss = std::max(max_loss, scenario.faults.loss);
    World world(scenario);
    const Outcome outcome = world.run();
    ++runs;
    Cell& cell = cells[{std::string(name(scenario.policy.kind)), std::string(name(scenario.home))}];
    ++cell.runs;
    cell.fragments += outcome.fragments;
    cell.fallback_fragments += outcome.fallback_fragments;
    cell.contributions += outcome.contributions;
    cell.raws += outcome.raws;
    cell.reminders += outcome.reminders;
    cell.queries += outcome.queries;
    cell.packets += outcome.packets;
    cell.dropped += outcome.dropped;
    cell.preemptions += outcome.preemptions;
    cell.groups += outcome.groups;
    cell.grouped += outcome.grouped;
    cell.parked += outcome.parked;
    cell.parker_results += outcome.parker_results;
    cell.restarts += outcome.restarts;
    cell.zombies += outcome.zombies;
    cell.finished_s += static_cast<double>(outcome.finished_at) * 1e-9;
    if (!outcome.violations.empty()) {
      if (violations == 0) first_failing = s;
      ++violations;
      if (without.empty() || *one) {
        fmt::print("{}\n", describe(scenario));
        for (const std::string& text : outcome.violations) fmt::print("  {}\n", text);
        fmt::print("  replay: ina-faultsim --seed {} (commit {})\n", s, INA_COMMIT);
        std::fflush(stdout);
      }
      if (!without.empty()) break;
    } else if (*one && !quiet) {
      fmt::print(
          "{}\n  held; fragments={} by_fallback={} preemptions={} restarts={} lost={} "
          "virtual_ms={:.1f} (commit {})\n",
          describe(scenario), outcome.fragments, outcome.fallback_fragments, outcome.preemptions,
          outcome.restarts, outcome.dropped, static_cast<double>(outcome.finished_at) * 1e-6,
          INA_COMMIT);
    }
    const auto now = std::chrono::steady_clock::now();
    if (progress && now - last > std::chrono::seconds(10)) {
      last = now;
      fmt::print(stderr, "{} of {} seeds, {} violations\n", runs, count, violations);
    }
  }
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!quiet && !*one) {
    fmt::print("{:8} {:10} {:>7} {:>10} {:>9} {:>7} {:>9} {:>9} {:>10} {:>11} {:>8} {:>8} {:>8}\n",
               "policy", "home", "runs", "fragments", "fallback", "raw", "reminders", "queries",
               "dropped", "preemptions", "grouped", "parked", "restarts");
    for (const auto& [key, c] : cells) {
      const double fragments = static_cast<double>(std::max<uint64_t>(1, c.fragments));
      fmt::print(
          "{:8} {:10} {:>7} {:>10} {:>8.1f}% {:>6.1f}% {:>9.3f} {:>9.3f} {:>10} {:>11} "
          "{:>7.1f}% {:>8} {:>8}\n",
          key.first, key.second, c.runs, c.fragments,
          100 * static_cast<double>(c.fallback_fragments) / fragments,
          100 * static_cast<double>(c.raws) /
              static_cast<double>(std::max<uint64_t>(1, c.contributions)),
          static_cast<double>(c.reminders) / fragments, static_cast<double>(c.queries) / fragments,
          c.dropped, c.preemptions,
          100 * static_cast<double>(c.grouped) /
              static_cast<double>(std::max<uint64_t>(1, c.contributions)),
          c.parked, c.restarts);
    }
    fmt::print("{} runs, {} with violations, seeds {}..{}, {:.1f} s, commit {}\n", runs, violations,
               from, from + runs - 1, wall_s, INA_COMMIT);
  }
  if (!without.empty()) {
    if (violations != 0)
      fmt::print("without {}: seed {} fails\n", without, first_failing);
    else
      fmt::print("without {}: nothing found in {} seeds\n", without, runs);
  }
  if (!json_file.empty()) {
    nlohmann::json json = {{"runs", runs},
                           {"violations", violations},
                           {"seeds", {from, from + runs - 1}},
                           {"max_loss", max_loss},
                           {"commit", INA_COMMIT},
                           {"wall_s", wall_s},
                           {"cells", nlohmann::json::array()}};
    if (!without.empty()) {
      json["without"] = without;
      if (violations != 0) json["first_failing_seed"] = first_failing;
    }
    for (const auto& [key, c] : cells)
      json["cells"].push_back({{"policy", key.first},
                               {"home", key.second},
                               {"runs", c.runs},
                               {"fragments", c.fragments},
                               {"fallback_fragments", c.fallback_fragments},
                               {"contributions", c.contributions},
                               {"raw_contributions", c.raws},
                               {"reminders", c.reminders},
                               {"queries", c.queries},
                               {"packets", c.packets},
                               {"dropped", c.dropped},
                               {"preemptions", c.preemptions},
                               {"groups", c.groups},
                               {"grouped", c.grouped},
                               {"parked", c.parked},
                               {"parker_results", c.parker_results},
                               {"restarts", c.restarts},
                               {"zombies", c.zombies},
                               {"virtual_s", c.finished_s}});
    std::fflush(stdout);
    if (const auto written = output->write(json.dump(1) + "\n"); !written) {
      fmt::print(stderr, "ina-faultsim: {}\n", written.error().text);
      return command_line::kExitUsage;
    }
  }
  return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ina::sim

int main(int argc, char** argv) {
  try {
    return ina::sim::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "ina-faultsim: {}\n", e.what());
    return 2;
  }
}
