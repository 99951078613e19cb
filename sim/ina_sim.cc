// ina-sim: simulates training on a cluster, with the code of switch, client and fallback, and
// reports the time. docs/evaluation.md has the method.
//   ina-sim --policy esa --slots 256 --jobs 8
//   ina-sim --plain-mb 64 --straggler rotating --help-straggler leader
//   ina-sim --plain-mb 4 --leaves 8 --workers-per-leaf 16 --oversubscription 8
//   ina-sim plan --topology conf/topologies/2d-sw-sw.yaml --sizes 4,4 --bytes 16MiB
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "common/command_line.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "sim/leaf_spine.h"
#include "sim/plan_command.h"
#include "sim/workload.h"
#include "sim_commit.h"

namespace ina::sim {
namespace {

struct Trace {
  uint32_t jobs = 1;
  uint32_t workers = 8;
  uint32_t iterations = 5;
  uint32_t most_iterations = 0;
  double arrival_ms = 0;
  double arrival_tail = 0;
  double scale = 8;
  double plain_mb = 0;
  std::vector<std::string> models = {"resnet50"};
  std::string file;  ///< instead of all of these but `scale`
};

/// The time to the next arrival, 1 on average: exponential, or after Pareto, with a tail of this
/// shape.
double wait_for_next(double tail, std::mt19937_64& random) {
  const double uniform = static_cast<double>((random() >> 11) + 1) * 0x1p-53;
  return tail == 0 ? -std::log(uniform) : (tail - 1) / tail * std::pow(uniform, -1 / tail);
}

/// Jobs of the models in turn, in an order and at times that the seed decides.
std::vector<JobPlan> make_trace(const Trace& trace, uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x7a11);
  std::vector<JobPlan> jobs;
  double at_ns = 0;
  for (uint32_t i = 0; i < trace.jobs; ++i) {
    JobPlan job;
    job.model = trace.plain_mb > 0 ? make_plain(static_cast<uint64_t>(trace.plain_mb * 1e6))
                                   : model_of(trace.models[i % trace.models.size()], trace.scale);
    job.workers = trace.workers;
    job.iterations = trace.iterations;
    if (trace.most_iterations > trace.iterations)
      job.iterations += random() % (trace.most_iterations - trace.iterations + 1);
    jobs.push_back(std::move(job));
  }
  for (size_t i = jobs.size(); i > 1; --i) std::swap(jobs[i - 1], jobs[random() % i]);
  for (JobPlan& job : jobs) {
    job.arrival = static_cast<Nanos>(at_ns);
    at_ns += wait_for_next(trace.arrival_tail, random) * trace.arrival_ms * 1e6;
  }
  return jobs;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))) - 1];
}

nlohmann::json leaf_report(const LeafOutcome& leaf) {
  const auto& c = leaf.counters;
  return {{"parts", c.parts},
          {"part_bytes", c.part_bytes},
          {"preemptions", c.preemptions},
          {"bypassed", c.bypassed},
          {"slots_used_peak", c.slots_used_peak},
          {"uplink_frames", leaf.up.frames},
          {"uplink_bytes", leaf.up.wire_bytes},
          {"uplink_queue_peak_bytes", leaf.up.queue_peak_bytes},
          {"downlink_frames", leaf.down.frames},
          {"downlink_bytes", leaf.down.wire_bytes}};
}

/// At all switches.
uint64_t contributions_of(const Outcome& outcome) {
  uint64_t count = outcome.counters.absorbed + outcome.counters.bypassed;
  for (const LeafOutcome& leaf : outcome.leaves)
    count += leaf.counters.absorbed + leaf.counters.bypassed;
  return count;
}

nlohmann::json report(const ClusterSpec& spec, const Outcome& outcome, double wall_s) {
  std::vector<double> jcts, iterations;
  nlohmann::json jobs = nlohmann::json::array();
  double iteration_bits = 0;
  for (const JobResult& job : outcome.jobs) {
    const double jct = static_cast<double>(job.finished - job.arrival) * 1e-9;
    jcts.push_back(jct);
    iterations.push_back(static_cast<double>(job.iteration_ns) * 1e-9);
    iteration_bits += static_cast<double>(job.bytes_per_iteration) * 8 * job.iterations;
    jobs.push_back({{"model", job.model},
                    {"arrival_s", static_cast<double>(job.arrival) * 1e-9},
                    {"waited_s", static_cast<double>(job.admitted - job.arrival) * 1e-9},
                    {"jct_s", jct},
                    {"iteration_s", iterations.back()},
                    {"iterations", job.iterations}});
  }
  const auto& c = outcome.counters;
  const double end_s = static_cast<double>(outcome.end) * 1e-9;
  nlohmann::json json = {
      {"commit", INA_SIM_COMMIT},
      {"seed", spec.seed},
      {"correct", outcome.violations.empty()},
      {"violations", outcome.violations},
      {"sums_checked", outcome.sums_checked},
      {"avg_jct_s", mean(jcts)},
      {"p99_jct_s", quantile(jcts, 0.99)},
      {"avg_iteration_s", mean(iterations)},
      {"end_s", end_s},
      {"gradient_gbps", iteration_bits / std::max(end_s, 1e-9) * 1e-9},
      {"slots", spec.slots},
      {"slots_used_mean", outcome.slots_used_mean},
      {"slots_used_peak", c.slots_used_peak},
      {"fragments", outcome.fragments},
      {"by_fallback", outcome.by_fallback},
      {"by_parker", outcome.by_parker},
      {"parked", c.parked},
      {"preemptions", c.preemptions},
      {"bypassed", c.bypassed},
      {"contributions", contributions_of(outcome)},
      {"fallback_bytes", outcome.fallback_bytes},
      {"queries", outcome.queries},
      {"raws", outcome.raws},
      {"queue_drops", outcome.queue_drops},
      {"losses", outcome.losses},
      {"ecn_marks", outcome.marks},
      {"simulator",
       {{"events", outcome.events},
        {"frames", outcome.frames},
        {"wall_s", wall_s},
        {"events_per_s", static_cast<double>(outcome.events) / wall_s},
        {"gbit_per_wall_s", static_cast<double>(outcome.wire_bytes) * 8e-9 / wall_s}}},
      {"jobs", jobs}};
  for (const LeafOutcome& leaf : outcome.leaves) json["leaves"].push_back(leaf_report(leaf));
  if (!outcome.samples.empty()) {
    nlohmann::json samples = nlohmann::json::array();
    for (const Sample& s : outcome.samples)
      samples.push_back({static_cast<double>(s.at) * 1e-9, s.slots_used, s.jobs});
    json["slot_samples"] = samples;
  }
  return json;
}

void print(const nlohmann::json& json) {
  fmt::print("{:<10} {:>10} {:>10} {:>10} {:>13}\n", "model", "arrival s", "waited s", "JCT s",
             "iteration ms");
  for (const auto& job : json["jobs"])
    fmt::print("{:<10} {:>10.4f} {:>10.4f} {:>10.4f} {:>13.3f}\n", job["model"].get<std::string>(),
               job["arrival_s"].get<double>(), job["waited_s"].get<double>(),
               job["jct_s"].get<double>(), job["iteration_s"].get<double>() * 1e3);
  fmt::print(
      "JCT {:.4f} s on average, {:.4f} s in the tail; iteration {:.3f} ms; {:.2f} Gbit/s of "
      "gradients\n",
      json["avg_jct_s"].get<double>(), json["p99_jct_s"].get<double>(),
      json["avg_iteration_s"].get<double>() * 1e3, json["gradient_gbps"].get<double>());
  for (const char* key :
       {"fragments", "by_fallback", "by_parker", "parked", "preemptions", "bypassed", "queries",
        "raws", "queue_drops", "losses", "ecn_marks", "slots_used_peak", "sums_checked"})
    fmt::print("{} {}  ", key, json[key].dump());
  const auto& s = json["simulator"];
  fmt::print(
      "\n{} events, {:.2f} million a second, {:.2f} Gbit per second of wall time, {:.2f} s\n",
      s["events"].get<uint64_t>(), s["events_per_s"].get<double>() * 1e-6,
      s["gbit_per_wall_s"].get<double>(), s["wall_s"].get<double>());
  for (const auto& violation : json["violations"])
    fmt::print("VIOLATION: {}\n", violation.get<std::string>());
}

void show_progress(size_t done, size_t jobs, Nanos now) {
  constexpr size_t kWidth = 40;
  const size_t filled = done * kWidth / jobs;
  fmt::print(stderr, "\r[{:=<{}}{: <{}}] {} of {} jobs, {:.3f} s{}", "", filled, "",
             kWidth - filled, done, jobs, static_cast<double>(now) * 1e-9,
             done == jobs ? "\n" : "");
}

/// Exit status 2 where a result that came cannot be kept.
int fail_to_write(const Error& error) {
  fmt::print(stderr, "ina-sim: {}\n", error.text);
  return command_line::kExitUsage;
}

command_line::Validator known_model() {
  return command_line::Validator([](const std::string& name) {
    if (is_model_file(name)) return std::string();
    const std::vector<std::string> names = model_names();
    return std::ranges::find(names, name) != names.end()
               ? std::string()
               : fmt::format("'{}' is none of {}, nor a file such as own.yaml", name,
                             fmt::join(names, ", "));
  });
}

std::string to_csv(const nlohmann::json& json) {
  std::string text = "model,arrival_s,waited_s,jct_s,iteration_s,iterations";
  for (const auto& job : json["jobs"])
    text += fmt::format("\n{},{},{},{},{},{}", job["model"].get<std::string>(),
                        job["arrival_s"].get<double>(), job["waited_s"].get<double>(),
                        job["jct_s"].get<double>(), job["iteration_s"].get<double>(),
                        job["iterations"].get<uint32_t>());
  return text;
}

/// TrainingOptions before the command would be without effect.
void refuse_options_before(const command_line::App& app, const std::string& command) {
  for (const command_line::Option& option : app.options())
    if (!option.empty())
      throw std::invalid_argument(
          fmt::format("{} before '{}' has no effect; '{} --help' lists what "
                      "there is",
                      option.get_name(), command, command));
}

struct TrainingOptions {
  TrainingOptions() {
    spec.policy.kind = scheduler::PolicyKind::kEsa;
    rack.link.ecn_bytes = 200'000;
    rack.link.queue_bytes = 1'000'000;
  }

  ClusterSpec spec;
  LeafSpineSpec leaf_spine;  ///< unless it has no leaves
  Trace trace;
  RackSpec rack;
  size_t racks = 1;
  double rate_gbps = 100, uplink_gbps = 400, delay_us = 1, rto_ms = 1, period_us = 1000,
         phase_us = 0, farther_us = 0;
  double patience_us = 20'000, sample_us = 0, limit_s = 600;
  bool no_residual = false, no_priorities = false, devices = false, quiet = false;
  std::string json_file, csv_file, topology_file;
};

void add_policy_options(command_line::App& app, TrainingOptions& options) {
  ClusterSpec& spec = options.spec;
  app.add_option("--seed", spec.seed, "decides arrivals, jitter and losses");
  command_line::add_choice(app, "--policy", spec.policy.kind, scheduler::kPolicyNames,
                           "who gets the slots");
  command_line::add_choice(app, "--decay", spec.policy.decay, scheduler::kDecayNames,
                           "esa: what lowers the priority of a slot");
  app.add_flag("--near-full-bonus", spec.policy.near_full_bonus, "esa: nearly full slots stay");
  app.add_option("--ways", spec.policy.ways, "fcfs, esa: slots that a fragment may choose from")
      ->check(command_line::one_of({1, 2, 4, 8}));
  app.add_flag("--no-residual", options.no_residual, "esa: late contributions wait for a time-out");
  app.add_flag("--no-priorities", options.no_priorities, "esa: all fragments are as urgent");
  app.add_flag("--aggregator-window,!--no-aggregator-window", spec.aggregator_window,
               "A2TP's second window, and the cap by the rate of delivery");
  app.add_flag("--window-cap,!--no-window-cap", spec.window_cap, "the cap");
  app.add_option("--slots", spec.slots, "of the array");
  app.add_option("--static-pools", spec.static_pools, "static: jobs that fit (0: all)");
  command_line::add_choice(app, "--home", spec.home, kHomeNames, "of the fallback");
}

void add_worker_options(command_line::App& app, TrainingOptions& options) {
  ClusterSpec& spec = options.spec;
  command_line::add_choice(
      app, "--help-straggler", spec.help,
      {{"off", Help::kOff}, {"leader", Help::kLeader}, {"fallback", Help::kFallback}},
      "what is done about slow workers (with leaves: both are the same)");
  app.add_option("--patience-us", options.patience_us,
                 "help: who has held others up for so long is late (the daemon's default)")
      ->check(command_line::at_least(0.0));
  app.add_option("--park-after", spec.park_after,
                 "help: fragments behind (0: an eighth of in-switch)");
  app.add_flag("--park-always", spec.park_always,
               "help leader, fallback: even where it costs more than waiting");
  app.add_option("--park-missing", spec.park_missing,
                 "help leader: workers missing at most (0: an eighth)");
  app.add_option("--window", spec.window, "W: fragments a worker may run ahead");
  app.add_option("--in-switch", spec.in_switch, "fragments in the switch at once (0: W)");
  app.add_option("--fragment-bytes", spec.fragment_bytes, "payload of a frame");
  app.add_option("--value-bytes", spec.value_bytes, "of these, really simulated");
}

void add_network_options(command_line::App& app, TrainingOptions& options) {
  ClusterSpec& spec = options.spec;
  RackSpec& rack = options.rack;
  app.add_option("--rate-gbps", options.rate_gbps, "of a worker's link")
      ->check(command_line::positive());
  app.add_option("--delay-us", options.delay_us, "of a link, one way")
      ->check(command_line::at_least(0.0));
  app.add_option("--farther-us", options.farther_us,
                 "more delay, each way, of the link of each job's first worker")
      ->check(command_line::at_least(0.0));
  const auto add_charge = [&](const std::string& who, Charge& charge) {
    app.add_option("--" + who + "-packet-ns", charge.packet_ns, "processor time of a frame")
        ->check(command_line::at_least(0.0));
    app.add_option("--" + who + "-byte-ns", charge.byte_ns, "and of a byte of its payload")
        ->check(command_line::at_least(0.0));
  };
  add_charge("switch", spec.fabric.switch_charge);
  add_charge("host", spec.fabric.host_charge);
  app.add_option("--racks", options.racks, "how many; each job's workers are shared out evenly")
      ->check(command_line::between(1, 64));
  app.add_option("--uplink-gbps", options.uplink_gbps, "of each rack but the first")
      ->check(command_line::positive());
  app.add_option("--topology", options.topology_file, "racks from this file (sim/README.md)");
  app.add_option("--queue-bytes", rack.link.queue_bytes, "of a port");
  app.add_option("--ecn-bytes", rack.link.ecn_bytes, "marks from here on; 0: never");
  app.add_option("--loss", rack.link.loss, "probability per frame and link")
      ->check(command_line::between(0.0, 0.99));
  app.add_option("--rto-ms", options.rto_ms, "smallest time-out")->check(command_line::positive());
}

void add_job_options(command_line::App& app, TrainingOptions& options) {
  ClusterSpec& spec = options.spec;
  Trace& trace = options.trace;
  app.add_option("--jobs", trace.jobs, "how many arrive")->check(command_line::positive());
  app.add_option("--workers", trace.workers, "of each job");
  app.add_option("--iterations", trace.iterations, "of each job");
  app.add_option("--most-iterations", trace.most_iterations,
                 "a job has between --iterations and so many, as the seed decides");
  app.add_option("--arrival-ms", trace.arrival_ms, "mean time between arrivals (Poisson)")
      ->check(command_line::at_least(0.0));
  app.add_option("--arrival-tail", trace.arrival_tail,
                 "arrivals in bursts: times between them after Pareto, of this shape (0: Poisson)")
      ->check(command_line::one_of({0.0}) | command_line::between(1.01, 100.0));
  app.add_option("--trace", trace.file,
                 "the jobs, from this file (sim/README.md): instead of --jobs and all about them");
  app.add_option("--models", trace.models,
                 "in turn, with commas: resnet50, vgg16, bert, gnmt, dlrm, or files of layers "
                 "(sim/README.md)")
      ->delimiter(',')
      ->check(known_model());
  app.add_option("--scale", trace.scale, "divides sizes and computing times of the models")
      ->check(command_line::positive());
  app.add_option("--plain-mb", trace.plain_mb, "instead: all-reduces of so many MB, nothing else");
  app.add_option("--jitter", spec.jitter, "of computing times, standard deviation as a part")
      ->check(command_line::between(0.0, 1.0));
}

void add_straggler_options(command_line::App& app, TrainingOptions& options) {
  ClusterSpec& spec = options.spec;
  command_line::add_choice(app, "--straggler", spec.straggler.pattern,
                           {{"none", Pattern::kNone},
                            {"permanent", Pattern::kPermanent},
                            {"rotating", Pattern::kRotating},
                            {"shares", Pattern::kShares},
                            {"random", Pattern::kRandom},
                            {"link", Pattern::kLink}},
                           "who is slow, and when");
  command_line::add_choice(
      app, "--slow", spec.straggler.slow,
      {{"producer", Slow::kProducer}, {"uplink", Slow::kUplink}},
      "what of it: making contributions, or its link to the switch, contributions being ready");
  app.add_option("--staging", spec.straggler.staging,
                 "slow producer: fragments made and not sent; 0: all of a gradient");
  app.add_option("--straggler-jobs", spec.straggler_jobs,
                 "the first so many jobs have stragglers (0: all)");
  app.add_option("--factor", spec.straggler.factor, "how many times slower a straggler is");
  app.add_option("--period-us", options.period_us, "rotating: of one rank; random: the mean stop");
  app.add_option("--phase-us", options.phase_us,
                 "rotating: so long has it gone on when the time begins")
      ->check(command_line::at_least(0.0));
  app.add_option("--stopped", spec.straggler.stopped, "random: part of the time")
      ->check(command_line::between(0.001, 0.9));
  app.add_option("--share-fragments", spec.straggler.share_fragments, "shares: of one rank")
      ->check(command_line::positive());
}

void add_leaf_spine_options(command_line::App& app, TrainingOptions& options) {
  LeafSpineSpec& spec = options.leaf_spine;
  command_line::Option* const leaves =
      app.add_option("--leaves", spec.leaves,
                     "a tree instead: so many racks, whose switches add, under one more switch");
  leaves->check(command_line::between(1u, uint32_t{kMaxWorkers}));
  app.add_option("--workers-per-leaf", spec.workers, "of each job")
      ->check(command_line::between(1u, uint32_t{kMaxWorkers}))
      ->needs(leaves);
  app.add_option("--oversubscription", spec.oversubscription,
                 "rate of a leaf's workers beside that of its uplink")
      ->check(command_line::positive())
      ->needs(leaves);
  command_line::add_choice(
      app, "--sums", spec.sums,
      {{"tree", Sums::kTree}, {"flat", Sums::kFlat}, {"leaders", Sums::kLeaders}},
      "who adds: leaves and root; the root alone; leaves, for leaders who all-reduce by the root")
      ->needs(leaves);
  app.add_option("--leader-chunk", spec.chunk_fragments, "sums leaders: fragments of a step")
      ->check(command_line::positive())
      ->needs(leaves);
}

/// Throws std::invalid_argument for an option that has no effect with leaves. As `Excludes:` of an
/// option they would make a long line of --help.
void refuse_options_beside_leaves(const command_line::App& app) {
  if (app.count("--leaves") == 0) return;
  for (const char* const other :
       {"--home", "--static-pools", "--straggler-jobs",
        "--farther-us", "--racks", "--uplink-gbps", "--topology", "--workers", "--sample-us"})
    if (app.count(other) != 0)
      throw std::invalid_argument(fmt::format("--leaves excludes {}", other));
}

void add_run_options(command_line::App& app, TrainingOptions& options) {
  app.add_option("--sample-us", options.sample_us, "look at the slots so often; 0: never")
      ->check(command_line::at_least(0.0));
  app.add_flag("--devices", options.devices,
               "links are ns-3's own devices: slower, and no different");
  app.add_option("--limit-s", options.limit_s, "of virtual time")->check(command_line::positive());
  app.add_option("--json", options.json_file, "write the result here ('-': standard output)");
  app.add_option("--csv", options.csv_file, "write the jobs here ('-': standard output)");
  app.add_flag("--quiet", options.quiet, "print nothing but violations");
}

/// Brings the options into the specification. Reads the files that they name.
void complete(TrainingOptions& options) {
  ClusterSpec& spec = options.spec;
  RackSpec& rack = options.rack;
  const Trace& trace = options.trace;
  const auto nanos = [](double value, double unit) { return std::llround(value * unit); };
  spec.policy.residual = !options.no_residual;
  if (options.devices) spec.fabric.links = ns3net::Links::kDevices;
  spec.priorities = !options.no_priorities;
  rack.link.rate_bps = static_cast<uint64_t>(options.rate_gbps * 1e9);
  rack.link.delay_ns = nanos(options.delay_us, 1e3);
  rack.uplink = rack.link;
  rack.uplink.rate_bps = static_cast<uint64_t>(options.uplink_gbps * 1e9);
  spec.fabric.racks = options.topology_file.empty() ? std::vector<RackSpec>(options.racks, rack)
                                                    : read_topology(options.topology_file, rack);
  spec.farther_ns = nanos(options.farther_us, 1e3);
  spec.rto_min_ns = nanos(options.rto_ms, 1e6);
  spec.straggler.period_ns = nanos(options.period_us, 1e3);
  spec.straggler.phase_ns = nanos(options.phase_us, 1e3);
  spec.park_patience_ns = nanos(options.patience_us, 1e3);
  spec.sample_ns = nanos(options.sample_us, 1e3);
  spec.limit_ns = nanos(options.limit_s, 1e9);
  spec.jobs =
      trace.file.empty() ? make_trace(trace, spec.seed) : read_trace(trace.file, trace.scale);
}

/// Trains, and reports.
int simulate(const TrainingOptions& options) {
  // Now, and not when hours of work have no place to go.
  auto json_output = OutputFile::open(options.json_file);
  if (!json_output) return fail_to_write(json_output.error());
  auto csv_output = OutputFile::open(options.csv_file);
  if (!csv_output) return fail_to_write(csv_output.error());

  const auto start = std::chrono::steady_clock::now();
  const Progress progress = !options.quiet && isatty(2) ? show_progress : nullptr;
  const Outcome outcome = options.leaf_spine.leaves == 0
                              ? run_cluster(options.spec, progress)
                              : run_leaf_spine(options.spec, options.leaf_spine, progress);
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const nlohmann::json json = report(options.spec, outcome, wall_s);
  if (!options.quiet && options.json_file != "-" && options.csv_file != "-") print(json);
  for (const std::string& violation : outcome.violations)
    fmt::print(stderr, "ina-sim: {}\n", violation);
  std::fflush(stdout);
  if (auto done = json_output->write(json.dump(1) + "\n"); !done)
    return fail_to_write(done.error());
  if (auto done = csv_output->write(to_csv(json) + "\n"); !done) return fail_to_write(done.error());
  return outcome.violations.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  command_line::App app{
      "Trains on a simulated cluster (ns-3) with the product's own switch and client."};
  TrainingOptions options;
  // In the order in which --help shows them.
  add_policy_options(app, options);
  add_worker_options(app, options);
  add_network_options(app, options);
  add_job_options(app, options);
  add_straggler_options(app, options);
  add_run_options(app, options);
  add_leaf_spine_options(app, options);
  std::function<int()> chosen;
  add_plan(app, chosen);
  add_plan_points(app, chosen);
  if (const auto status = command_line::parse(app, argc, argv)) return *status;
  if (chosen) {
    refuse_options_before(app, app.chosen_command());
    return chosen();
  }
  refuse_options_beside_leaves(app);
  complete(options);
  return simulate(options);
}

}  // namespace
}  // namespace ina::sim

int main(int argc, char** argv) {
  try {
    return ina::sim::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-sim: {}\n", error.what());
    return 2;
  }
}
