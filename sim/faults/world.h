// A rack under fire: the real switch, engine and fallback objects on the simulated network, and a
// naive model that knows what each element must be.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/serve.h"
#include "fragments/engine.h"
#include "sim/faults/actors.h"
#include "sim/faults/attachments.h"
#include "sim/faults/judge.h"
#include "sim/faults/operation.h"
#include "sim/faults/outcome.h"
#include "sim/faults/scenario.h"
#include "sim/network/sim_network.h"

namespace ina::sim {

class World {
 public:
  explicit World(const Scenario& scenario);
  ~World();
  Outcome run();

 private:
  void make_lanes(uint32_t daemon);
  world::Lane& lane_of(uint32_t daemon, uint32_t lane) {
    return *lanes_[daemon * scenario_.lanes + lane];
  }
  void bind_members(const world::Place& place);
  void make_hierarchies();
  void start_hierarchy(world::Hierarchy& hierarchy);
  void restart_job(world::Job& job);
  void step_hierarchies();
  void start_job(world::Job& job);
  void plan(world::Job& job);
  void deviate(world::Job& job);
  PlannedOperation draw(world::Job& job, const OperationLimits& limits);
  client::EngineConfig engine_config(const world::Worker& worker) const;
  void make_engine(world::Worker& worker);
  void come_back(world::Worker& worker);
  const PlannedOperation& plan_of(const world::Worker& worker, size_t plan) const;
  bool knows_of_mismatch() const;
  void add_to_lanes(world::Place& place);
  std::unique_ptr<aggregator::Fallback> make_fallback(const world::Job& job, uint32_t shards,
                                                      uint32_t shard) const;
  Seq results_end(const world::Job& job) const;
  void end_faults_in_time();
  void take_events();
  void happen(const Event& event);
  void restart_switch(const Event& event);
  void cut(uint32_t below, uint32_t above, uint32_t direction, Nanos until);
  void restart_fallback(world::Job& job, Nanos down_ns);
  void serve_lanes();
  void send(world::Lane& lane, io::JobIndex job, Rank rank, const aggregator::Emission& emission);
  void ascend(world::Place& place);
  void serve_fallbacks();
  void step_workers();
  void step(world::Worker& worker);
  void submit_more(world::Worker& worker);
  void start(world::Worker& worker, const PlannedOperation& plan);
  client::Operation* start_reproducible(world::Worker& worker, const client::OperationSpec& spec);
  Nanos hold(world::Worker& worker);
  void release_held(world::Worker& worker);
  static size_t taken(world::Job& job, size_t packets);
  Nanos next_time() const;
  bool done() const;
  void report_no_end();
  void check_left_over(world::Lane& lane);
  void check_deviation(const world::Worker& worker, size_t operation);

  static constexpr size_t kBurst = 16;
  /// Made once: a step is short.
  struct Burst {
    std::array<io::RxPacket, kBurst> arrived;  ///< at the switch
    std::array<aggregator::Verdict, kBurst> verdicts;
    std::array<client::RxPacket, kBurst> received;
    std::array<wire::Outgoing, kBurst> to_send;
  };

  Scenario scenario_;
  std::mt19937_64 random_;
  io::sim::SimNetwork network_;
  std::vector<std::unique_ptr<world::Lane>> lanes_;
  std::vector<std::unique_ptr<world::Job>> jobs_;
  std::vector<std::unique_ptr<world::Hierarchy>> hierarchies_;
  Burst burst_;
  std::vector<Nanos> down_until_;  ///< by switch
  bool faults_ = true;             ///< still to come, or under way
  size_t next_event_ = 0;
  uint32_t next_id_ = 100;
  bool switch_sees_mismatch_ = false;
  Outcome outcome_;
  world::Judge judge_{scenario_, jobs_, lanes_, outcome_};
  world::Attachments attachments_{
      scenario_,
      network_,
      random_,
      jobs_,
      lanes_,
      {.bind = [this](world::Place& place) { bind_members(place); },
       .serve = [this](world::Place& place) { add_to_lanes(place); },
       .ascend = [this](world::Place& place) { ascend(place); },
       .come_back = [this](world::Worker& worker) { come_back(worker); }}};
};

}  // namespace ina::sim
