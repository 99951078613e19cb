// ina-faultsim: runs seeds of the fault simulator and reports violations.
//   ina-faultsim --seed 4711            replays one run
//   ina-faultsim --from 0 --count 1000  runs many
//   ina-faultsim --without partial_test    switches a rule off: a violation must turn up
//   ina-faultsim --without partial_test --swarm    the same in scenarios that do not know of the
//   rule
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <span>
#include <string_view>

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

struct Options {
  uint64_t seed = 0, from = 0, count = 1;
  bool replays = false;  ///< one seed
  std::string without, collectives, json_file;
  std::string meaning;  ///< the options that say what a seed means, as they were given
  Restrictions restrictions;
  bool residual = true, swarm = false, quiet = false, progress = false;
};

/// The findings of a search.
struct Findings {
  std::map<std::pair<std::string, std::string>, Cell> cells;  ///< by policy and home
  uint64_t runs = 0;
  uint64_t violations = 0;  ///< runs with any
  uint64_t first_failing = 0;
  double max_loss = 0;
  double wall_s = 0;
};

void add_options(command_line::App& app, Options& options) {
  Restrictions& restrictions = options.restrictions;
  app.add_option("--seed", options.seed, "replay this seed");
  app.add_option("--from", options.from, "first seed");
  app.add_option("--count", options.count, "number of seeds");
  command_line::add_choice(app, "--policy", restrictions.policy, scheduler::kPolicyNames,
                           "this policy only");
  command_line::add_choice(app, "--home", restrictions.home, kHomeNames,
                           "this home of the fallback only");
  app.add_option("--loss", restrictions.loss, "only loss, at this rate, and no other fault");
  app.add_option("--without", options.without,
                 "switch this rule off and stop at the first violation");
  app.add_option("--profile", restrictions.profile,
                 "scenarios that are hard on this rule (default with --without: the rule's)");
  app.add_flag("--swarm", options.swarm, "with --without: scenarios of all kinds all the same");
  app.add_flag("--mismatch", restrictions.mismatch,
               "one worker calls something else, and somebody must find out");
  app.add_flag("--plain", restrictions.plain,
               "all-reduces only, and no scenarios of dense restarts");
  app.add_option("--collectives", options.collectives, "operations of this kind only, or 'mixed'")
      ->type_name("NAME");
  app.add_flag("--redistributions", restrictions.redistributions,
               "redistributions of arrays as operations, and nothing else");
  app.add_flag("--reproducible", restrictions.reproducible,
               "reproducible reductions of floats as operations, and nothing else");
  app.add_flag("--hierarchies", restrictions.hierarchies,
               "collectives through several dimensions, by plans, and nothing else");
  app.add_flag("--trees", restrictions.trees, "jobs in trees of switches, and nothing else");
  app.add_option("--json", options.json_file,
                 "write a summary to this file ('-': standard output)");
  app.add_option("--slots", restrictions.slots, "of the array");
  app.add_option("--residual", options.residual, "true or false");
  app.add_flag("--small", restrictions.small, "two jobs of four workers, W 8, 64 slots");
  app.add_flag("--quiet", options.quiet, "print violations only");
  app.add_flag("--progress", options.progress, "print how far it is, now and then");
}

/// Switches off the rule of --without. False: there is no such rule.
bool switch_rule_off(Options& options) {
  uint32_t index = 0;
  while (index < kRules && kRuleNames[index] != options.without) ++index;
  if (index == kRules) {
    fmt::print(stderr, "unknown rule '{}'; known: {}\n", options.without,
               fmt::join(kRuleNames, ", "));
    return false;
  }
  rules_off = uint64_t{1} << index;
  if (options.restrictions.profile.empty() && !options.swarm)
    options.restrictions.profile = options.without;
  return true;
}

/// All options but those that choose seeds and outputs.
std::string meaning_of(std::span<char* const> arguments) {
  std::string meaning;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    if (name == "--seed" || name == "--from" || name == "--count" || name == "--json")
      i += name == argument ? 1 : 0;
    else if (name != "--quiet" && name != "--progress")
      meaning.append(" ").append(argument);
  }
  return meaning;
}

/// Draws the conclusions from the options that were given. False: they make no sense.
bool complete(const command_line::App& app, Options& options) {
  Restrictions& restrictions = options.restrictions;
  if (app.count("--residual") != 0) restrictions.residual = options.residual;
  options.replays = app.count("--seed") != 0;
  if (options.replays) {
    options.from = options.seed;
    options.count = 1;
  }
  if (!options.without.empty() && !switch_rule_off(options)) return false;
  for (const Collective collective : all_collectives())
    if (options.collectives == "mixed" || options.collectives == name(collective))
      restrictions.collectives.push_back(collective);
  if (!options.collectives.empty() && restrictions.collectives.empty()) {
    fmt::print(stderr, "ina-faultsim: --collectives: no collective is called '{}'\n",
               ina::printable(options.collectives));
    return false;
  }
  return true;
}

void add(Cell& cell, const Outcome& outcome) {
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
}

void print_violations(const Options& options, const Scenario& scenario, const Outcome& outcome) {
  fmt::print("{}\n", describe(scenario));
  for (const std::string& text : outcome.violations) fmt::print("  {}\n", text);
  fmt::print("  replay: ina-faultsim --seed {}{} (commit {})\n", scenario.seed, options.meaning,
             INA_COMMIT);
  std::fflush(stdout);
}

void print_held(const Scenario& scenario, const Outcome& outcome) {
  fmt::print(
      "{}\n  held; fragments={} by_fallback={} preemptions={} restarts={} lost={} "
      "virtual_ms={:.1f} (commit {})\n",
      describe(scenario), outcome.fragments, outcome.fallback_fragments, outcome.preemptions,
      outcome.restarts, outcome.dropped, static_cast<double>(outcome.finished_at) * 1e-6,
      INA_COMMIT);
}

/// Runs one seed.
void run_seed(uint64_t seed, const Options& options, Findings& findings) {
  const Scenario scenario = make_scenario(seed, options.restrictions);
  findings.max_loss = std::max(findings.max_loss, scenario.faults.loss);
  World world(scenario);
  const Outcome outcome = world.run();
  ++findings.runs;
  add(findings.cells[{std::string(name(scenario.policy.kind)), std::string(name(scenario.home))}],
      outcome);
  if (!outcome.violations.empty()) {
    if (findings.violations == 0) findings.first_failing = seed;
    ++findings.violations;
    if (options.without.empty() || options.replays) print_violations(options, scenario, outcome);
  } else if (options.replays && !options.quiet) {
    print_held(scenario, outcome);
  }
}

/// Runs the seeds; without a rule only up to the first that fails.
Findings search(const Options& options) {
  Findings findings;
  const auto start = std::chrono::steady_clock::now();
  auto last = start;
  for (uint64_t seed = options.from; seed < options.from + options.count; ++seed) {
    run_seed(seed, options, findings);
    if (findings.violations != 0 && !options.without.empty()) break;
    const auto now = std::chrono::steady_clock::now();
    if (options.progress && now - last > std::chrono::seconds(10)) {
      last = now;
      fmt::print(stderr, "{} of {} seeds, {} violations\n", findings.runs, options.count,
                 findings.violations);
    }
  }
  findings.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return findings;
}

void print_table(const Options& options, const Findings& findings) {
  fmt::print("{:8} {:10} {:>7} {:>10} {:>9} {:>7} {:>9} {:>9} {:>10} {:>11} {:>8} {:>8} {:>8}\n",
             "policy", "home", "runs", "fragments", "fallback", "raw", "reminders", "queries",
             "dropped", "preemptions", "grouped", "parked", "restarts");
  for (const auto& [key, c] : findings.cells) {
    const double fragments = static_cast<double>(std::max<uint64_t>(1, c.fragments));
    const double contributions = static_cast<double>(std::max<uint64_t>(1, c.contributions));
    fmt::print(
        "{:8} {:10} {:>7} {:>10} {:>8.1f}% {:>6.1f}% {:>9.3f} {:>9.3f} {:>10} {:>11} "
        "{:>7.1f}% {:>8} {:>8}\n",
        key.first, key.second, c.runs, c.fragments,
        100 * static_cast<double>(c.fallback_fragments) / fragments,
        100 * static_cast<double>(c.raws) / contributions,
        static_cast<double>(c.reminders) / fragments, static_cast<double>(c.queries) / fragments,
        c.dropped, c.preemptions, 100 * static_cast<double>(c.grouped) / contributions, c.parked,
        c.restarts);
  }
  fmt::print("{} runs, {} with violations, seeds {}..{}, {:.1f} s, commit {}\n", findings.runs,
             findings.violations, options.from, options.from + findings.runs - 1, findings.wall_s,
             INA_COMMIT);
}

/// Says whether the absence of the rule showed.
void print_verdict(const Options& options, const Findings& findings) {
  if (findings.violations != 0)
    fmt::print("without {}: seed {} fails\n", options.without, findings.first_failing);
  else
    fmt::print("without {}: nothing found in {} seeds\n", options.without, findings.runs);
}

nlohmann::json to_json(const Options& options, const Findings& findings) {
  nlohmann::json json = {{"runs", findings.runs},
                         {"violations", findings.violations},
                         {"seeds", {options.from, options.from + findings.runs - 1}},
                         {"max_loss", findings.max_loss},
                         {"commit", INA_COMMIT},
                         {"wall_s", findings.wall_s},
                         {"cells", nlohmann::json::array()}};
  if (!options.without.empty()) {
    json["without"] = options.without;
    if (findings.violations != 0) json["first_failing_seed"] = findings.first_failing;
  }
  for (const auto& [key, c] : findings.cells)
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
  return json;
}

int run(int argc, char** argv) {
  command_line::App app{
      "Seeded fault simulation of the whole protocol, with the daemon's own objects."};
  Options options;
  add_options(app, options);
  if (const auto status = command_line::parse(app, argc, argv)) return *status;
  auto output = OutputFile::open(options.json_file);
  if (!output) {
    fmt::print(stderr, "ina-faultsim: {}\n", output.error().text);
    return command_line::kExitUsage;
  }
  options.meaning = meaning_of(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (!complete(app, options)) return command_line::kExitUsage;
  const Findings findings = search(options);
  if (!options.quiet && !options.replays) print_table(options, findings);
  if (!options.without.empty()) print_verdict(options, findings);
  if (output->is_wanted()) {
    std::fflush(stdout);
    if (const auto written = output->write(to_json(options, findings).dump(1) + "\n"); !written) {
      fmt::print(stderr, "ina-faultsim: {}\n", written.error().text);
      return command_line::kExitUsage;
    }
  }
  return findings.violations == 0 ? 0 : 1;
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
