// A cluster that trains: arriving jobs, their workers, the aggregating switch and the fallback. All
// of them are the product's own objects, on ns-3's links.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/serve.h"
#include "sim/worker.h"

namespace ina::sim {

enum class Help : uint8_t { kOff, kLeader, kFallback };

struct JobPlan {
  Model model;
  uint32_t workers = 8;
  uint32_t iterations = 1;
  Nanos arrival = 0;
  std::optional<uint32_t> rack{};  ///< of all its workers; none: they are shared out
};

struct ClusterSpec {
  uint64_t seed = 0;
  FabricSpec fabric;
  uint32_t slots = 1024;
  uint32_t fragment_bytes = 8192;  ///< of a payload on the wire
  uint32_t value_bytes = 64;       ///< of these, that are really there; divides fragment_bytes
  scheduler::PolicyOptions policy;
  bool priorities = true;
  bool aggregator_window = true;
  bool window_cap = true;  ///< not with help for stragglers
  Home home = Home::kWorkers;
  uint32_t window = 512;      ///< W
  uint32_t in_switch = 0;     ///< 0: W
  uint32_t static_pools = 0;  ///< policy static: jobs that fit; 0: all of the trace
  Nanos rto_min_ns = 1'000'000;
  Nanos rto_max_ns = 100'000'000;
  Help help = Help::kOff;
  Nanos park_patience_ns = 20'000'000;  ///< aggregator::JobSpec::park_patience
  uint32_t park_after = 0;              ///< 0: an eighth of the fragments in the switch
  bool park_always = false;             ///< even where it does not pay
  uint32_t park_missing = 0;  ///< kLeader: JobSpec::park_missing; 0: an eighth of the workers
  Nanos farther_ns = 0;  ///< the first worker of each job: its link takes so much longer, each way
  double jitter = 0.02;
  StragglerSpec straggler;
  uint32_t straggler_jobs = 0;  ///< of the jobs, the first so many have stragglers; 0: all
  std::vector<JobPlan> jobs;
  Nanos sample_ns = 0;  ///< between looks at the slots; 0: none
  Nanos limit_ns = 600'000'000'000;
};

struct JobResult {
  std::string model;
  Nanos arrival = 0, admitted = 0, finished = 0;
  uint32_t iterations = 0;
  uint64_t bytes_per_iteration = 0;
  Nanos iteration_ns = 0;  ///< mean
};

struct Sample {
  Nanos at;
  uint64_t slots_used;
  uint32_t jobs;
};

/// A leaf of a tree of switches (sim/leaf_spine.h).
struct LeafOutcome {
  aggregator::Counters counters;  ///< none if it only forwards
  ns3net::LinkCounters up, down;  ///< of its uplink
};

struct Outcome {
  std::vector<std::string> violations;  ///< empty: every sum was right, every packet accounted for
  std::vector<JobResult> jobs;
  std::vector<Sample> samples;
  Nanos end = 0;
  aggregator::Counters counters;  ///< of the switch, or of a tree's root
  std::vector<LeafOutcome> leaves;
  double slots_used_mean = 0;  ///< over the time, by samples
  uint64_t fragments = 0, by_fallback = 0, by_parker = 0;
  uint64_t queries = 0, raws = 0;
  uint64_t queue_drops = 0, losses = 0, marks = 0;
  uint64_t fallback_bytes = 0;  ///< that the switch sent to the fallback
  uint64_t sums_checked = 0;
  uint64_t wire_bytes = 0, frames = 0, events = 0;
};

/// Says how far a run is: jobs done, of how many, and the virtual time.
using Progress = void (*)(size_t done, size_t jobs, Nanos now);

/// Throws std::invalid_argument with a sentence if the specification makes no sense.
Outcome run_cluster(const ClusterSpec& spec, Progress progress = nullptr);

}  // namespace ina::sim
