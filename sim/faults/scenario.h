// The parts of a run of the fault simulator. A seed determines all of it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/policies.h"
#include "sim/faults/operation.h"
#include "sim/network/sim_network.h"
#include "wire/types.h"

namespace ina::sim {

struct JobPlan {
  uint32_t workers = 4;
  uint32_t window = 8;
  uint32_t operations = 4;
  uint32_t max_fragments = 40;  ///< of an operation
  uint32_t depth = 2;           ///< operations a worker has under way at once
  Nanos think_ns = 0;           ///< mean time between the end of an operation and the next
  scheduler::Quota quota;       ///< over all lanes
  bool aggregator_window = false;
  uint32_t in_switch = 0;        ///< client::EngineConfig::in_switch
  uint32_t park_after = 0;       ///< aggregator::JobSpec::park_after
  uint32_t park_pressure = 0;    ///< aggregator::JobSpec::park_pressure
  Nanos park_patience = 0;       ///< aggregator::JobSpec::park_patience
  bool park_if_it_pays = false;  ///< aggregator::JobSpec::park_if_it_pays
  uint32_t park_room = 0;  ///< of each worker, over all lanes; 0: the fallback keeps what is parked
  bool lossy_link = false;  ///< client::EngineConfig::lossy_link
  Nanos join_patience = 0;  ///< aggregator::Joining::patience
  /// Collectives of which its operations are drawn. Empty: all-reduces.
  std::vector<Collective> collectives;
  std::vector<uint32_t> at;      ///< by rank: the number of its switch; empty: the only one
  uint32_t redistributions = 0;  ///< of a hundred of its operations
  uint32_t reproducible = 0;     ///< of a hundred of its operations
  uint64_t chunk_bytes = 512;    ///< client::RankOrder::Job::chunk_bytes
};

/// Ranks that go through dimensions (sim/faults/hierarchy.h). Each group of a dimension is a job,
/// and so are all ranks.
struct HierarchyPlan {
  std::vector<uint32_t> sizes;  ///< of the dimensions, the first one's coordinate the fastest digit
  uint32_t first_job = 0;       ///< in Scenario::jobs; the others follow
  uint32_t jobs = 0;
  uint32_t groups = 3;          ///< of collectives, one after the other
  uint32_t depth = 1;           ///< of these, under way at once
  uint32_t max_fragments = 20;  ///< of a collective
  Nanos jitter_ns = 0;          ///< by so much ranks start apart
};

/// Something that happens at a time of its own.
struct Event {
  enum class Kind : uint8_t {
    kSwitchRestart,    ///< loses all it has; its jobs come back in a new epoch
    kFallbackRestart,  ///< of `job`, homes dedicated and spill
    kPauseWorker,      ///< a straggler: does nothing for `length_ns`
    kCut,              ///< the worker's link, `direction` 0: both, 1: to the switch, 2: from it
    kKillJob,          ///< a worker died: the job ends and starts again under a new identity
    kCutLink,          ///< as kCut, between a switch and the one above it
  };
  Kind kind{};
  Nanos at = 0;
  Nanos length_ns = 0;
  uint32_t job = 0;
  uint32_t worker = 0;
  uint32_t direction = 0;
  uint32_t at_switch = 0;  ///< kSwitchRestart, kCutLink
  /// kSwitchRestart: the switch comes back with this policy.
  std::optional<scheduler::PolicyKind> policy{};
};

struct Scenario {
  uint64_t seed = 0;
  scheduler::PolicyOptions policy;
  Home home = Home::kWorkers;
  uint32_t slots = 64;  ///< over all lanes
  uint32_t lanes = 1;
  uint32_t slot_bytes = 64;
  /// A tree of switches: the number of the one above each, which is lower; the first is the root.
  /// Empty: one switch.
  std::vector<uint32_t> parents;
  bool together = false;        ///< all of them are domains within one switch
  Nanos attach_ns = 5'000'000;  ///< within it a member attaches to a switch that has started again
  std::vector<JobPlan> jobs;
  std::vector<HierarchyPlan> hierarchies;
  io::sim::Faults faults;
  Nanos faults_end_ns = 100'000'000;  ///< then the network is perfect and all must finish
  std::vector<Event> events;
  bool ecn = false;
  bool floats_only = false;  ///< float sums alone tell the order in which they were made
  Nanos rto_min_ns = 200'000;
  /// One worker of job 0 calls something else in one of its operations: nobody may complete that,
  /// and somebody must say so.
  bool mismatch = false;
  BrokenPlans broken_plans = BrokenPlans::kNone;

  uint32_t switches() const { return std::max<uint32_t>(1, static_cast<uint32_t>(parents.size())); }
  /// Switches that have lanes of their own.
  uint32_t daemons() const { return together ? 1 : switches(); }
  bool is_tree() const { return home == Home::kTree; }
  uint32_t workers() const {
    uint32_t sum = 0;
    for (const JobPlan& job : jobs) sum += job.workers;
    return sum;
  }
};

/// Restricts what a seed may choose; empty: everything.
struct Restrictions {
  std::optional<scheduler::PolicyKind> policy{};
  std::optional<Home> home{};
  double loss = -1;     ///< fixed, no other faults; < 0: by the seed
  std::string profile;  ///< name of a rule (wire/rules.h): makes its absence show
  uint32_t slots = 0;   ///< 0: by the seed
  int residual = -1;    ///< 0, 1; -1: by the seed
  /// All-reduces, and restarts as rare as elsewhere: a seed's meaning before there was more.
  bool plain = false;
  /// All jobs have operations of these alone.
  std::vector<Collective> collectives{};
  bool redistributions = false;  ///< all operations of all jobs are
  bool reproducible = false;     ///< all operations are reproducible reductions of floats
  bool hierarchies = false;      ///< there is nothing else
  bool mismatch = false;         ///< Scenario::mismatch
  bool trees = false;            ///< all jobs are in trees of switches
  bool policy_changes = false;   ///< of all restarts of the switch, and there are some
  /// Two jobs of four workers, W 8, 64 slots, the policy's options at their defaults: small and
  /// always the same, for tables.
  bool small = false;
};

/// Swarm testing: each seed takes a random subset of features at random strength.
Scenario make_scenario(uint64_t seed, const Restrictions& restrictions = {});

/// All that there are.
std::vector<Collective> all_collectives();

/// One line for people.
std::string describe(const Scenario& scenario);

}  // namespace ina::sim
