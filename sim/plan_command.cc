#include "sim/plan_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "plans/themis/text/topology_file.h"
#include "sim/plan_run.h"
#include "sim_commit.h"

namespace ina::sim {
namespace {

constexpr double kPicosPerUs = 1e6;
constexpr double kNanosPerUs = 1e3;

struct Options {
  PlanSpec spec;
  std::string topology_file;
  std::vector<uint32_t> sizes;
  double rate_factor = 1, latency_factor = 1;
  bool for_switches = false;
  double rto_ms = 1, limit_s = 600;
  bool devices = false, quiet = false;
  std::string json_file;
};

template <class Enum, size_t kCount>
command_line::Choices<Enum> choices_of(const std::array<std::string_view, kCount>& names) {
  command_line::Choices<Enum> choices;
  for (size_t i = 0; i < kCount; ++i)
    choices.emplace_back(std::string(names[i]), static_cast<Enum>(i));
  return choices;
}

void set_sizes(themis::Topology& topology, const std::vector<uint32_t>& sizes) {
  if (sizes.empty()) return;
  if (sizes.size() != topology.dimensions.size())
    throw std::invalid_argument(
        fmt::format("--sizes has {} numbers, and the topology {} dimensions", sizes.size(),
                    topology.dimensions.size()));
  for (size_t d = 0; d < sizes.size(); ++d) topology.dimensions[d].size = sizes[d];
}

themis::Topology topology_of(const Options& options) {
  auto topology = themis::load_topology_file(options.topology_file);
  if (!topology) throw std::invalid_argument(topology.error().front().to_string());
  set_sizes(*topology, options.sizes);
  for (themis::Dimension& dimension : topology->dimensions) {
    const auto scaled = [](auto value, double factor) {
      return static_cast<decltype(value)>(std::llround(static_cast<double>(value) * factor));
    };
    dimension.bits_per_s = scaled(dimension.bits_per_s, options.rate_factor);
    dimension.step_latency_ps = scaled(dimension.step_latency_ps, options.latency_factor);
  }
  return options.for_switches ? themis::carried_by_switches(std::move(*topology))
                              : std::move(*topology);
}

double us(themis::Picos ps) {
  return static_cast<double>(ps) / kPicosPerUs;
}
double us_of_nanos(Nanos ns) {
  return static_cast<double>(ns) / kNanosPerUs;
}

nlohmann::json dimensions_json(const PlanSpec& spec, const PlanOutcome& outcome) {
  nlohmann::json list = nlohmann::json::array();
  const double took_s = static_cast<double>(outcome.rounds.back().took_ns) * 1e-9;
  for (size_t d = 0; d < outcome.dimensions.size(); ++d) {
    const themis::Dimension& dimension = spec.topology.dimensions[d];
    const DimensionUse& use = outcome.dimensions[d];
    const double bytes = took_s * static_cast<double>(dimension.bits_per_s) / 8;
    list.push_back({{"name", dimension.name},
                    {"kind", themis::name(dimension.kind)},
                    {"size", dimension.size},
                    {"gbps", static_cast<double>(dimension.bits_per_s) / 1e9},
                    {"step_latency_ns", static_cast<double>(dimension.step_latency_ps) / 1e3},
                    {"model_tx_bytes", use.model_tx_bytes},
                    {"model_rx_bytes", use.model_rx_bytes},
                    {"wire_tx_bytes", use.tx_wire_bytes},
                    {"wire_rx_bytes", use.rx_wire_bytes},
                    {"use_tx", use.tx_wire_bytes / bytes},
                    {"use_rx", use.rx_wire_bytes / bytes}});
  }
  return list;
}

nlohmann::json report(const PlanSpec& spec, const PlanOutcome& outcome, double wall_s) {
  nlohmann::json rounds = nlohmann::json::array();
  for (const PlanRound& round : outcome.rounds)
    rounds.push_back(
        {{"agreed_us", us_of_nanos(round.agreed_ns)}, {"took_us", us_of_nanos(round.took_ns)}});
  nlohmann::json json = {
      {"commit", INA_SIM_COMMIT},
      {"topology", spec.topology.name},
      {"ranks", spec.topology.participants()},
      {"collective", themis::name(spec.collective)},
      {"scheduler", themis::name(spec.options.scheduler)},
      {"bytes", outcome.plan.requests.front().bytes},
      {"chunks", outcome.plan.chunks.size()},
      {"fragment_bytes", spec.fragment_bytes},
      {"value_bytes", spec.value_bytes},
      {"correct", outcome.violations.empty()},
      {"violations", outcome.violations},
      {"elements_checked", outcome.elements_checked},
      {"predicted_by_kind_us", us(outcome.predictions.by_kind_ps)},
      {"predicted_us", us(outcome.predictions.by_switches_ps)},
      {"rounds", rounds},
      {"queue_drops", outcome.queue_drops},
      {"losses", outcome.losses},
      {"ecn_marks", outcome.marks},
      {"queries", outcome.queries},
      {"resent", outcome.resent},
      {"by_fallback", outcome.by_fallback},
      {"bypassed", outcome.bypassed},
      {"simulator",
       {{"events", outcome.events},
        {"frames", outcome.frames},
        {"wall_s", wall_s},
        {"events_per_s", static_cast<double>(outcome.events) / wall_s},
        {"gbit_per_wall_s", static_cast<double>(outcome.wire_bytes) * 8e-9 / wall_s}}}};
  if (!outcome.rounds.empty()) {
    json["measured_us"] = us_of_nanos(outcome.rounds.back().took_ns);
    json["agreed_us"] = us_of_nanos(outcome.rounds.back().agreed_ns);
    json["difference"] = outcome.beyond(outcome.predictions.by_switches_ps);
    json["dimensions"] = dimensions_json(spec, outcome);
  }
  return json;
}

void print(const nlohmann::json& json) {
  fmt::print("{} of {} bytes in {} chunks, {} ranks, {}\n", json["collective"].get<std::string>(),
             json["bytes"].get<uint64_t>(), json["chunks"].get<size_t>(),
             json["ranks"].get<uint64_t>(), json["scheduler"].get<std::string>());
  const auto number = [&](const char* key) { return json[key].get<double>(); };
  fmt::print("the planner's model: {:.1f} us by these kinds, {:.1f} us by switches\n",
             number("predicted_by_kind_us"), number("predicted_us"));
  for (const auto& round : json["rounds"]) {
    const double took_us = round["took_us"].get<double>();
    fmt::print(
        "measured {:.1f} us, {:+.2f} % beside the planner's by switches; agreed on the plan {:.1f} "
        "us before\n",
        took_us, 100 * (took_us / number("predicted_us") - 1), round["agreed_us"].get<double>());
  }
  if (json.contains("dimensions")) {
    fmt::print("{:<24}{:>6}{:>10}{:>14}{:>14}{:>14}{:>14}{:>8}{:>8}\n", "dimension", "size", "Gb/s",
               "model tx", "wire tx", "model rx", "wire rx", "tx %", "rx %");
    for (const auto& d : json["dimensions"])
      fmt::print("{:<24}{:>6}{:>10g}{:>14}{:>14.0f}{:>14}{:>14.0f}{:>8.1f}{:>8.1f}\n",
                 d["name"].get<std::string>(), d["size"].get<uint32_t>(), d["gbps"].get<double>(),
                 d["model_tx_bytes"].get<uint64_t>(), d["wire_tx_bytes"].get<double>(),
                 d["model_rx_bytes"].get<uint64_t>(), d["wire_rx_bytes"].get<double>(),
                 100 * d["use_tx"].get<double>(), 100 * d["use_rx"].get<double>());
  }
  for (const char* key : {"elements_checked", "queue_drops", "losses", "ecn_marks", "queries",
                          "resent", "by_fallback", "bypassed"})
    fmt::print("{} {}  ", key, json[key].dump());
  fmt::print("\n{} events, {:.2f} s\n", json["simulator"]["events"].get<uint64_t>(),
             json["simulator"]["wall_s"].get<double>());
}

int run(Options& options) {
  auto output = OutputFile::open(options.json_file);
  if (!output) throw std::runtime_error(output.error().text);
  PlanSpec& spec = options.spec;
  spec.topology = topology_of(options);
  spec.rto_min_ns = std::llround(options.rto_ms * 1e6);
  spec.limit_ns = std::llround(options.limit_s * 1e9);
  if (options.devices) spec.links = ns3net::Links::kDevices;
  const auto start = std::chrono::steady_clock::now();
  const PlanOutcome outcome = run_plan(spec);
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const nlohmann::json json = report(spec, outcome, wall_s);
  if (!options.quiet && options.json_file != "-") print(json);
  for (const std::string& violation : outcome.violations)
    fmt::print(stderr, "ina-sim: {}\n", violation);
  std::fflush(stdout);
  if (auto done = output->write(json.dump(1) + "\n"); !done)
    throw std::runtime_error(done.error().text);
  return outcome.violations.empty() ? 0 : 1;
}

void add_plan_options(command_line::App& app, Options& options) {
  PlanSpec& spec = options.spec;
  app.add_option("--topology", options.topology_file, "the network's dimensions (docs/themis.md)")
      ->required();
  app.add_option("--sizes", options.sizes, "of the dimensions, instead of the file's: 4,4")
      ->delimiter(',');
  app.add_option("--rate-factor", options.rate_factor, "all rates times this")
      ->check(command_line::positive());
  app.add_option("--latency-factor", options.latency_factor, "all step latencies times this")
      ->check(command_line::at_least(0.0));
  app.add_flag("--for-switches", options.for_switches,
               "plan as libina does, for what carries it out: all dimensions are aggregating "
               "switches");
  command_line::add_choice(app, "--collective", spec.collective,
                           choices_of<themis::Collective>(themis::kCollectiveNames), "which");
  app.add_option("--bytes", spec.bytes, "of the whole vector, e.g. 64MiB")
      ->required()
      ->transform(command_line::size())
      ->type_name("SIZE");
  command_line::add_choice(app, "--scheduler", spec.options.scheduler,
                           choices_of<themis::Scheduler>(themis::kSchedulerNames),
                           "how chunks get their order of dimensions");
  app.add_option("--chunks", spec.options.chunks, "at most")
      ->check(command_line::between(1u, themis::kMostChunks));
  app.add_option("--evaluations", spec.options.evaluations, "plans that search simulates")
      ->check(command_line::between(1u, 1'000'000u));
  app.add_option("--rounds", spec.rounds, "one after the other; the last one is reported")
      ->check(command_line::positive());
}

void add_network_options(command_line::App& app, Options& options) {
  PlanSpec& spec = options.spec;
  app.add_option("--fragment-bytes", spec.fragment_bytes, "payload of a frame");
  app.add_option("--value-bytes", spec.value_bytes, "of these, really simulated");
  app.add_option("--window", spec.window, "W: fragments a rank may run ahead");
  app.add_flag("--aggregator-window,!--no-aggregator-window", spec.aggregator_window,
               "A2TP's second window");
  app.add_option("--slots", spec.slots, "of each switch");
  app.add_option("--queue-bytes", spec.queue_bytes, "of a port");
  app.add_option("--ecn-bytes", spec.ecn_bytes, "marks from here on; 0: never");
  app.add_flag("--express", spec.express, "frames without payload do not wait for those with");
  app.add_option("--loss", spec.loss, "probability per frame and link")
      ->check(command_line::between(0.0, 0.99));
  app.add_option("--rto-ms", options.rto_ms, "smallest time-out")->check(command_line::positive());
  app.add_option("--seed", spec.seed, "decides losses");
  app.add_flag("--devices", options.devices, "links are ns-3's own devices: slower, no different");
  app.add_option("--limit-s", options.limit_s, "of virtual time")->check(command_line::positive());
  app.add_option("--json", options.json_file, "write the result here ('-': standard output)");
  app.add_flag("--quiet", options.quiet, "print nothing but violations");
}

}  // namespace

void add_plan(command_line::App& app, std::function<int()>& chosen) {
  const auto options = std::make_shared<Options>();
  command_line::App* command = app.add_subcommand(
      "plan", "instead: a planned collective over several dimensions (docs/themis.md)");
  add_plan_options(*command, *options);
  add_network_options(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ina::sim
