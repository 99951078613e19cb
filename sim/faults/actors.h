// The participants of a World, with all parts of each.
#pragma once

#include <list>
#include <memory>
#include <random>
#include <vector>

#include "aggregator/aggregator.h"
#include "aggregator/domains.h"
#include "aggregator/fallback.h"
#include "fragments/engine.h"
#include "operations/executor.h"
#include "operations/rank_order.h"
#include "operations/redistributions.h"
#include "operations/reproducible.h"
#include "sim/faults/hierarchy.h"
#include "sim/faults/operation.h"
#include "sim/faults/scenario.h"
#include "sim/network/sim_network.h"
#include "wire/rules.h"

namespace ina::sim::world {

struct Job;
struct Place;

struct alignas(64) Line {
  std::byte bytes[64];
};
/// Memory on whole cache lines.
using Lines = std::vector<Line>;

inline std::byte* data(Lines& lines) {
  return reinterpret_cast<std::byte*>(lines.data());
}

struct Worker {
  Job* job = nullptr;
  Rank rank{};
  Place* place = nullptr;
  Rank member{};  ///< of its place
  uint32_t host = 0;
  std::unique_ptr<client::Engine> engine;
  std::unique_ptr<client::EngineChannel> channel;
  std::unique_ptr<client::Executor> executor;
  std::unique_ptr<client::Redistributions> redistributions;
  std::unique_ptr<client::Reproducible> reproducible;
  std::unique_ptr<client::RankOrder> rank_order;
  std::unique_ptr<io::sim::SimTransport> transport;
  Nanos paused_until = 0;
  Nanos submit_at = 0;
  Nanos rejoin_at = INT64_MAX;
  struct Running {
    size_t plan;
    client::Operation* operation;
    std::vector<std::byte> send, recv;
    Nanos held_until = 0;  ///< 0: not held
  };
  std::list<Running> running;
  size_t next_plan = 0;
  std::vector<std::vector<std::byte>> got;      ///< results, by plan
  const HierarchyRank* hierarchical = nullptr;  ///< of which this is one channel; or none
  size_t hierarchical_channel = 0;
  bool due = false;  ///< there is something to send, from another channel's doing

  bool done() const;
  /// The next time at which a held operation may go.
  Nanos release_at() const;
  bool gone() const { return !rule(Rule::kLeaveBarrier) && done(); }
};

/// A worker, or a switch, that takes part in a job at a switch; and how it attaches to that switch
/// after one of the two has started again.
struct Member {
  Worker* worker = nullptr;
  Place* child = nullptr;
  uint64_t key = 0;
  Nanos report_at = INT64_MAX;  ///< it says what it has, and takes nothing from then on
  Nanos answer_at = INT64_MAX;  ///< that has arrived
  Nanos told_at = INT64_MAX;    ///< it hears that the switch serves it
  std::vector<Seq> held;
  Seq results_end;
  bool silent = false;  ///< between its report and the answer
};

/// A job at one switch, of which there is one, or a tree.
struct Place {
  Job* job = nullptr;
  uint32_t at = 0;       ///< number of the switch
  uint32_t daemon = 0;   ///< of the one that has its lanes
  io::JobIndex index{};  ///< there
  Place* parent = nullptr;
  uint32_t number = 0;  ///< as a member of the parent
  std::vector<Member> members;
  std::vector<uint8_t> member_of;  ///< aggregator::TreePlace::member_of
  uint32_t epoch = 1;
  WorkerSet attached = {};
  bool ready = true;  ///< all have attached
  Lines results;
  std::vector<std::vector<WorkerSet>> seen;                 ///< by lane
  std::vector<std::vector<uint8_t>> parked_at;              ///< by lane
  std::vector<std::vector<aggregator::GivenResult>> given;  ///< by lane
  std::vector<std::vector<aggregator::TreeRow>> rows;       ///< by lane
  std::vector<std::vector<WorkerSet>> holders;              ///< by lane
};

struct Job {
  uint32_t index = 0;
  JobPlan config;
  uint32_t window = 0;
  JobId id{};
  uint64_t key = 0;
  uint32_t instance = 0;
  uint32_t fallback_host = 0;
  std::vector<PlannedOperation> plans;
  size_t deviating_plan = SIZE_MAX;  ///< which `deviant` has another idea of
  Rank deviant{};
  PlannedOperation deviation;
  std::mt19937_64 random;  ///< with collectives: without, dice fall as they did before these
  bool dices() const {
    return !config.collectives.empty() || config.redistributions != 0 || config.reproducible != 0;
  }
  std::vector<Worker> workers;
  std::vector<std::unique_ptr<Place>> places;  ///< by switch; nullptr: none of its ranks is below
  Place& root() const { return *places[0]; }
  std::vector<std::unique_ptr<aggregator::Fallback>> fallbacks;  ///< spill: by lane; dedicated: one
  std::vector<std::unique_ptr<aggregator::Fallback>> old_lives;  ///< for their counters
  std::unique_ptr<io::sim::SimTransport> fallback_transport;     ///< dedicated
  Nanos fallback_down_until = 0;
  std::vector<bool> given_out;  ///< by fragment: whether its result was, to any worker
};

/// The ranks of a hierarchy, which are workers of several jobs.
struct Hierarchy {
  HierarchyPlan config;
  std::vector<PlannedGroup> groups;
  std::vector<std::unique_ptr<HierarchyRank>> ranks;
  std::vector<std::vector<Worker*>> workers;  ///< of each rank, by channel
};

struct Lane {
  Lane(io::sim::SimNetwork& network, uint32_t host, uint32_t slot_bytes)
      : port(network, host, slot_bytes) {}
  io::sim::SimPort port;
  Lines rows;
  std::unique_ptr<aggregator::Aggregator> aggregator;
  std::unique_ptr<aggregator::Domains> domains;
  /// By job and member; the last: the fallback, or the switch above.
  std::vector<std::vector<io::EndpointIndex>> endpoints;
  uint64_t port_packets_before = 0;  ///< of the port, before this life of the switch
  uint64_t port_drops_before = 0;
};

}  // namespace ina::sim::world
