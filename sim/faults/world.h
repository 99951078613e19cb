// A rack under fire: the real switch, engine and fallback objects on the simulated network, and a
// naive model that knows what each element must be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aggregator/serve.h"
#include "engine/engine.h"
#include "sim/faults/operation.h"
#include "sim/faults/scenario.h"
#include "sim/network/sim_network.h"

namespace ina::sim {

struct Outcome {
  /// What was broken, by invariant; empty: nothing.
  std::vector<std::string> violations;
  uint64_t fragments = 0;
  uint64_t fallback_fragments = 0;  ///< decided by the fallback
  uint64_t contributions = 0;
  uint64_t resent = 0;     ///< of these, again
  uint64_t raws = 0;       ///< contributions sent to the fallback again
  uint64_t reminders = 0;  ///< REMINDs sent
  uint64_t queries = 0;
  uint64_t packets = 0;
  uint64_t dropped = 0;
  uint64_t preemptions = 0;
  uint64_t redistributions = 0;  ///< that a worker of rank 0 has completed
  uint64_t reproducible = 0;     ///< likewise: reductions of floats
  uint64_t hierarchical = 0;     ///< groups of collectives by Themis's plans, likewise
  uint64_t groups = 0;           ///< sums of several contributions in one pass
  uint64_t grouped = 0;          ///< contributions in them
  uint64_t parked = 0;
  uint64_t parker_results = 0;  ///< fragments completed by a worker that kept them
  uint64_t restarts = 0;
  uint64_t zombies = 0;   ///< slots held at the end by fragments that everyone has
  Nanos finished_at = 0;  ///< when the last worker had its last result
};

class World {
 public:
  explicit World(const Scenario& scenario);
  ~World();
  Outcome run();

 private:
  struct Worker;
  struct Job;
  struct Hierarchy;

  void make_lanes();
  void make_hierarchies();
  void start_hierarchy(Hierarchy& hierarchy);
  void restart_job(Job& job);
  void step_hierarchies();
  void start_job(Job& job);
  void plan(Job& job);
  void deviate(Job& job);
  PlannedOperation draw(Job& job, const OperationLimits& limits);
  client::EngineConfig engine_config(const Worker& worker) const;
  void make_engine(Worker& worker);
  void come_back(Worker& worker);
  const PlannedOperation& plan_of(const Worker& worker, size_t plan) const;
  bool knows_of_mismatch() const;
  void add_to_lanes(Job& job);
  std::unique_ptr<aggregator::Fallback> make_fallback(const Job& job, uint32_t shards,
                                                      uint32_t shard) const;
  aggregator::JobSpec spec_of(Job& job, uint32_t lane);
  Seq results_end(const Job& job) const;
  void happen(const Event& event);
  void restart_switch(const Event& event);
  void restart_fallback(Job& job, Nanos down_ns);
  void bump_epoch(Job& job);
  void serve_lanes();
  void serve_fallbacks();
  void step_workers();
  void step(Worker& worker);
  void submit_more(Worker& worker);
  void start(Worker& worker, const PlannedOperation& plan);
  client::Operation* start_reproducible(Worker& worker, const client::OperationSpec& spec);
  Nanos hold(Worker& worker);
  void release_held(Worker& worker);
  static size_t taken(Job& job, size_t packets);
  Nanos next_time() const;
  bool done() const;
  void check();
  void check_given_out();
  void check_given_out(Job& job, Seq first, const wire::Message& message);
  void check_sent_by_all(const Job& job, Seq seq);
  void check_deviation(const Worker& worker, size_t operation);
  void check_joining();
  void check_quotas(const aggregator::Aggregator& aggregator);
  void check_results(const Job& job);
  void check_payload(const Job& job, const Worker& worker);
  void count_up(const Job& job);
  void violate(const std::string& text);

  Scenario scenario_;
  std::mt19937_64 random_;
  io::sim::SimNetwork network_;
  struct Lane;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<Job>> jobs_;
  struct GivenOut {
    Job* job;
    Seq first;
    wire::Message message;
  };
  std::vector<GivenOut> given_out_;  ///< results of the burst at hand
  std::vector<std::unique_ptr<Hierarchy>> hierarchies_;
  Nanos switch_down_until_ = 0;
  size_t next_event_ = 0;
  uint32_t next_id_ = 100;
  bool switch_sees_mismatch_ = false;
  Outcome outcome_;
};

}  // namespace ina::sim
