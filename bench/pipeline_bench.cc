// The switch's packet path alone, on one core: bursts of prepared packets through a lane's steps
// (aggregator::serve). These are: take and validate, verdict, add, a descriptor to each worker for
// each result; payloads are not copied. scripts/bench_pipeline.py runs this and makes a table.
//
// In each iteration the floor, the path with nothing sent ("quiet") and the whole path run in turn,
// so that other load of the machine meets all alike. The floor is the bare kernels over the same
// packets, rows and results in the same order, with or without prefetching, whichever is faster.
// pipeline_load.h says in which order packets come.

#include <benchmark/benchmark.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/pipeline_load.h"
#include "common/clock.h"

namespace ina::bench {
namespace {

using scheduler::PolicyKind;

constexpr uint64_t kPhasePackets = 16384;

/// User-space cycles and instructions of this thread, where the machine counts them.
class HardwareCounters {
 public:
  HardwareCounters()
      : cycles_(open(PERF_COUNT_HW_CPU_CYCLES)), instructions_(open(PERF_COUNT_HW_INSTRUCTIONS)) {}
  bool available() const { return cycles_ && instructions_; }
  void start() const { control(PERF_EVENT_IOC_ENABLE); }
  void stop() const { control(PERF_EVENT_IOC_DISABLE); }
  uint64_t cycles() const { return read(cycles_); }
  uint64_t instructions() const { return read(instructions_); }

 private:
  static Fd open(uint64_t event) {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.size = sizeof(attributes);
    attributes.config = event;
    attributes.disabled = 1;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
    return Fd(static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0)));
  }
  void control(unsigned long request) const {
    if (!available()) return;
    ::ioctl(cycles_.get(), request, 0);
    ::ioctl(instructions_.get(), request, 0);
  }
  static uint64_t read(const Fd& fd) {
    uint64_t value = 0;
    return ::read(fd.get(), &value, sizeof(value)) == sizeof(value) ? value : 0;
  }

  Fd cycles_;
  Fd instructions_;
};

/// One number an iteration. Its median, as another process may get the core at any time.
class Samples {
 public:
  void add(Nanos ns) { ns_.push_back(static_cast<double>(ns)); }
  void add(double ns) { ns_.push_back(ns); }
  double last() const { return ns_.back(); }
  double median() {
    const auto middle = ns_.begin() + static_cast<std::ptrdiff_t>(ns_.size() / 2);
    std::nth_element(ns_.begin(), middle, ns_.end());
    return *middle;
  }

 private:
  std::vector<double> ns_;
};

uint64_t rounds_of_phase(const Load& load) {
  return std::max<uint64_t>(2, kPhasePackets / load.packets_per_round());
}

double seconds(Nanos ns) {
  return static_cast<double>(ns) * 1e-9;
}

void measure(benchmark::State& state, const LoadConfig& config) {
  Load load(config);
  const HardwareCounters hardware;
  const uint64_t rounds = rounds_of_phase(load);
  load.run_path(rounds, Load::Send::kDescriptors);
  Samples path_ns, quiet_ns, plain_ns, prefetching_ns, acknowledgements_ns, emission_ns;
  Samples nway_plain_ns, nway_prefetching_ns;
  for (auto _ : state) {
    plain_ns.add(load.run_floor<false, false>(rounds));
    prefetching_ns.add(load.run_floor<true, false>(rounds));
    nway_plain_ns.add(load.run_floor<false, true>(rounds));
    nway_prefetching_ns.add(load.run_floor<true, true>(rounds));
    quiet_ns.add(load.run_path(rounds, Load::Send::kNothing).contributions_ns);
    load.spoil_results();
    hardware.start();
    const Load::Times times = load.run_path(rounds, Load::Send::kDescriptors);
    hardware.stop();
    path_ns.add(times.contributions_ns);
    emission_ns.add(path_ns.last() - quiet_ns.last());
    acknowledgements_ns.add(times.acknowledgements_ns);
    state.SetIterationTime(seconds(times.contributions_ns));
  }
  if (const std::string wrong = load.check(); !wrong.empty())
    return state.SkipWithError(wrong.c_str());
  const auto packets = static_cast<double>(rounds * load.packets_per_round());
  const auto emissions = static_cast<double>(rounds * load.emissions_per_round());
  const auto acknowledgements = static_cast<double>(rounds * load.acknowledgements_per_round());
  state.counters["ns_per_packet"] = path_ns.median() / packets;
  state.counters["ns_per_packet_nothing_sent"] = quiet_ns.median() / packets;
  state.counters["ns_per_result"] = emission_ns.median() / emissions;
  state.counters["floor_plain_ns"] = plain_ns.median() / packets;
  state.counters["floor_prefetching_ns"] = prefetching_ns.median() / packets;
  state.counters["nway_floor_plain_ns"] = nway_plain_ns.median() / packets;
  state.counters["nway_floor_prefetching_ns"] = nway_prefetching_ns.median() / packets;
  if (acknowledgements != 0)
    state.counters["ns_per_acknowledgement"] = acknowledgements_ns.median() / acknowledgements;
  // The counters also saw the fallback's results.
  if (hardware.available() && load.acknowledgements_per_round() == 0) {
    const double counted = packets * static_cast<double>(state.iterations());
    state.counters["cycles_per_packet"] = static_cast<double>(hardware.cycles()) / counted;
    state.counters["instructions_per_packet"] =
        static_cast<double>(hardware.instructions()) / counted;
  }
}

LoadConfig of_lane(LoadConfig config, uint32_t lanes, uint32_t lane) {
  config.lanes = lanes;
  config.lane = lane;
  return config;
}

/// Nanoseconds a packet of all lanes together, from how long each took for its own.
struct Rates {
  double packets_per_s = 0;
  void add(double packets, Nanos ns) { packets_per_s += packets / seconds(ns); }
  double ns_per_packet() const { return 1e9 / packets_per_s; }
};

/// The rate of `lanes` lanes on as many cores, from each alone on this one.
void estimate_lanes(benchmark::State& state, uint32_t lanes) {
  std::vector<std::unique_ptr<Load>> loads;
  for (uint32_t lane = 0; lane < lanes; ++lane)
    loads.push_back(std::make_unique<Load>(of_lane({}, lanes, lane)));
  const uint64_t rounds = rounds_of_phase(*loads[0]);
  const auto packets = static_cast<double>(rounds * loads[0]->packets_per_round());
  Samples samples;
  for (auto _ : state) {
    Rates rates;
    for (const auto& load : loads) {
      load->run_path(rounds, Load::Send::kDescriptors);  // into the caches again
      rates.add(packets, load->run_path(rounds, Load::Send::kDescriptors).contributions_ns);
    }
    samples.add(rates.ns_per_packet());
    state.SetIterationTime(rates.ns_per_packet() * 1e-9);
  }
  for (const auto& load : loads)
    if (const std::string wrong = load->check(); !wrong.empty())
      return state.SkipWithError(wrong.c_str());
  state.counters["ns_per_packet"] = samples.median();
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

/// Lanes on threads of their own, each on a core.
void run_lanes(benchmark::State& state, uint32_t lanes) {
  const std::vector<int> cores = usable_cores();
  std::barrier start(static_cast<std::ptrdiff_t>(lanes + 1));
  std::barrier end(static_cast<std::ptrdiff_t>(lanes + 1));
  bool running = true;  // written between `end` and `start` only
  struct alignas(64) Outcome {
    double packets = 0;
    Nanos from = 0;
    Nanos to = 0;
    std::string wrong;
  };
  std::vector<Outcome> outcomes(lanes);
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    threads.emplace_back([&, lane] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cores[lane], &set);
      ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
      Load load(of_lane({}, lanes, lane));
      Outcome& outcome = outcomes[lane];
      const uint64_t rounds = 4 * rounds_of_phase(load);
      outcome.packets = static_cast<double>(rounds * load.packets_per_round());
      load.run_path(rounds, Load::Send::kDescriptors);
      for (;;) {
        start.arrive_and_wait();
        if (!running) break;
        outcome.from = now_ns();
        load.run_path(rounds, Load::Send::kDescriptors);
        outcome.to = now_ns();
        end.arrive_and_wait();
      }
      outcome.wrong = load.check();
    });
  }
  Samples samples;
  for (auto _ : state) {
    start.arrive_and_wait();
    end.arrive_and_wait();
    double packets = 0;
    Nanos from = outcomes[0].from, to = 0;
    for (const Outcome& outcome : outcomes) {
      packets += outcome.packets;
      from = std::min(from, outcome.from);
      to = std::max(to, outcome.to);
    }
    samples.add(static_cast<double>(to - from) / packets);
    state.SetIterationTime(seconds(to - from));
  }
  running = false;
  start.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes)
    if (!outcome.wrong.empty()) return state.SkipWithError(outcome.wrong.c_str());
  state.counters["ns_per_packet"] = samples.median();
}

// ---- what is measured

struct Options {
  bool quick = false;
};

std::string pair(const char* key, const std::string& value) {
  return std::string("/") + key + ":" + value;
}
std::string pair(const char* key, uint64_t value) {
  return pair(key, std::to_string(value));
}

template <class... Arguments>
void add(const Options& options, const std::string& name, int iterations,
         Arguments&&... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), std::forward<Arguments>(arguments)...)
      ->UseManualTime()
      ->Iterations(std::max(2, options.quick ? iterations / 4 : iterations))
      ->Repetitions(options.quick ? 3 : 5)
      ->Unit(benchmark::kMillisecond);
}

int iterations_for(const LoadConfig& config) {
  const bool is_large = config.slots_in == Place::kDram || config.slots > 1 << 15;
  return is_large ? 4 : config.packets_in == Place::kDram ? 16 : 64;
}

void add_row(const Options& options, const LoadConfig& config) {
  const std::string name = "row" + pair("payload_bytes", config.payload_bytes) +
                           pair("fan_in", config.fan_in) +
                           pair("dtype", std::string(ina::name(config.dtype))) +
                           pair("policy", std::string(scheduler::name(config.policy))) +
                           pair("slots_in", bench::name(config.slots_in)) +
                           pair("packets_in", bench::name(config.packets_in)) +
                           pair("jobs", config.jobs) + pair("ways", config.ways) +
                           pair("group", config.group) + pair("worst_case", config.worst_case);
  add(options, name, iterations_for(config), measure, config);
}

/// Adds the base row after a change to it.
template <class Change>
void vary(const Options& options, Change&& change) {
  LoadConfig config;
  change(config);
  add_row(options, config);
}

/// Shapes of the load.
void add_shapes(const Options& options) {
  for (const uint32_t bytes : {256, 4096, 8192})
    vary(options, [&](LoadConfig& c) { c.payload_bytes = bytes; });
  for (const uint32_t fan_in : {2, 4, 16, 32, 64})
    vary(options, [&](LoadConfig& c) { c.fan_in = fan_in; });
  for (const DType dtype : {DType::kInt32, DType::kBFloat16})
    vary(options, [&](LoadConfig& c) { c.dtype = dtype; });
  for (const Named<PolicyKind>& policy : scheduler::kPolicyNames)
    if (policy.value != LoadConfig().policy)
      vary(options, [&](LoadConfig& c) { c.policy = policy.value; });
  for (const uint32_t jobs : {8, 64}) vary(options, [&](LoadConfig& c) { c.jobs = jobs; });
  for (const uint32_t ways : {2, 4, 8}) vary(options, [&](LoadConfig& c) { c.ways = ways; });
  for (const uint32_t jobs : {8, 64})
    vary(options, [&](LoadConfig& c) {
      c.jobs = jobs;
      c.ways = 4;
    });
}

/// Where packets and slots lie.
void add_places(const Options& options) {
  vary(options, [&](LoadConfig& c) { c.packets_in = Place::kL2; });
  vary(options, [&](LoadConfig& c) { c.packets_in = Place::kDram; });
  vary(options, [&](LoadConfig& c) { c.slots_in = Place::kL3; });
  for (const Place packets_in : {Place::kL3, Place::kDram})
    for (const uint32_t bytes : {1024, 8192})
      for (const uint32_t group : {1, 8})
        vary(options, [&](LoadConfig& c) {
          c.payload_bytes = bytes;
          c.slots_in = Place::kDram;
          c.packets_in = packets_in;
          c.group = group;
        });
}

/// Contributions to one fragment that come in a burst.
void add_groups(const Options& options) {
  for (const uint32_t group : {2, 4, 8}) {
    vary(options, [&](LoadConfig& c) { c.group = group; });
    for (const uint32_t bytes : {256, 8192})
      vary(options, [&](LoadConfig& c) {
        c.payload_bytes = bytes;
        c.group = group;
      });
    for (const Place packets_in : {Place::kL2, Place::kDram})
      vary(options, [&](LoadConfig& c) {
        c.packets_in = packets_in;
        c.group = group;
      });
  }
  for (const DType dtype : {DType::kInt32, DType::kBFloat16})
    vary(options, [&](LoadConfig& c) {
      c.dtype = dtype;
      c.group = 8;
    });
  for (const Named<PolicyKind>& policy : scheduler::kPolicyNames)
    if (policy.value != LoadConfig().policy)
      vary(options, [&](LoadConfig& c) {
        c.policy = policy.value;
        c.group = 8;
      });
  vary(options, [&](LoadConfig& c) {
    c.ways = 4;
    c.group = 8;
  });
  for (const uint32_t fan_in : {32, 64})
    vary(options, [&](LoadConfig& c) {
      c.fan_in = fan_in;
      c.group = 8;
    });
}

void add_rows(const Options& options) {
  add_row(options, LoadConfig());
  add_shapes(options);
  add_places(options);
  add_groups(options);
  for (const uint32_t bytes : {1024, 8192})
    vary(options, [&](LoadConfig& c) {
      c.payload_bytes = bytes;
      c.worst_case = true;
      c.jobs = 2;
    });
}

void add_scaling(const Options& options) {
  const auto name = [](const char* dimension, uint64_t value, bool estimated) {
    return "scaling" + pair("dimension", dimension) + pair("value", value) +
           pair("estimated", estimated);
  };
  const auto add_load = [&](const char* dimension, uint64_t value, const LoadConfig& config) {
    add(options, name(dimension, value, false), iterations_for(config), measure, config);
  };
  for (uint32_t slots = 1; slots <= 1u << 20; slots *= 4)
    add_load("slots", slots, {.slots = slots});
  for (uint32_t jobs = 1; jobs <= 64; jobs *= 2) add_load("jobs", jobs, {.jobs = jobs});
  for (uint32_t workers = 2; workers <= kMaxWorkers; workers *= 2)
    add_load("workers", workers, {.fan_in = workers});
  for (const uint32_t lanes : {1, 2, 4, 8, 16})
    add(options, name("lanes", lanes, true), 16, estimate_lanes, lanes);
  for (uint32_t lanes = 1; lanes <= usable_cores().size(); lanes *= 2)
    add(options, name("lanes", lanes, false), 64, run_lanes, lanes);
}

}  // namespace
}  // namespace ina::bench

int main(int argc, char** argv) {
  ina::bench::Options options;
  const auto is_quick = [](const char* argument) {
    return std::string_view(argument) == "--quick";
  };
  char** const end = std::remove_if(argv + 1, argv + argc, is_quick);
  options.quick = end != argv + argc;
  argc = static_cast<int>(end - argv);
  benchmark::AddCustomContext("instruction_set", ina::aggregator::kernel_target());
  benchmark::AddCustomContext("l2_bytes", std::to_string(ina::bench::l2_bytes()));
  benchmark::AddCustomContext("l3_bytes", std::to_string(ina::bench::l3_bytes()));
  ina::bench::add_rows(options);
  ina::bench::add_scaling(options);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
