// Trees of switches under fire: which switch has which members of a job, and how members attach
// again after a switch has lost all it had (docs/protocol.md, "Trees").
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "sim/faults/actors.h"
#include "sim/faults/scenario.h"

namespace ina::sim::world {

/// The job's places, at the only switch or at those of a tree.
void make_places(const Scenario& scenario, Job& job);
/// 1 + the highest fragment that a member has said to have a result of.
Seq results_end(const Place& place);

class Attachments {
 public:
  using Jobs = std::vector<std::unique_ptr<Job>>;
  using Lanes = std::vector<std::unique_ptr<Lane>>;
  /// The parts of the world that a member's attachment changes.
  struct Hooks {
    std::function<void(Place&)> bind;    ///< its members have new keys
    std::function<void(Place&)> serve;   ///< all have attached: the switch begins
    std::function<void(Place&)> ascend;  ///< the switch has attached to the one above
    std::function<void(Worker&)> come_back;
  };
  /// All must outlive it.
  Attachments(const Scenario& scenario, const io::sim::SimNetwork& network, std::mt19937_64& random,
              const Jobs& jobs, const Lanes& lanes, Hooks hooks);

  /// The switch has lost all, and is there again at `up_at`.
  void restart(uint32_t at_switch, Nanos up_at);
  /// What is due.
  void step();
  /// Calls `consider(time)` for all that will be.
  template <class Consider>
  void consider(Consider&& consider) const {
    for_each_member([&](Place&, Member& member) {
      for (const Nanos time : {member.report_at, member.answer_at, member.told_at}) consider(time);
    });
  }

 private:
  template <class Visit>
  void for_each_member(Visit&& visit) const {
    if (!scenario_.is_tree()) return;
    for (const auto& job : jobs_)
      for (const auto& place : job->places)
        if (place)
          for (Member& member : place->members) visit(*place, member);
  }
  aggregator::Aggregator& aggregator(const Place& place, uint32_t lane) const {
    return *lanes_[place.daemon * scenario_.lanes + lane]->aggregator;
  }
  Nanos soon(Nanos most) { return 1 + static_cast<Nanos>(random_() % static_cast<uint64_t>(most)); }
  void report(Member& member);
  void report_results(Member& member) const;
  void attach(Place& place, Member& member);
  void begin(Place& place);
  void hold(const Place& place, const Member& member);
  void tell(Member& member);

  const Scenario& scenario_;
  const io::sim::SimNetwork& network_;
  std::mt19937_64& random_;
  const Jobs& jobs_;
  const Lanes& lanes_;
  Hooks hooks_;
  std::vector<Nanos> up_at_;  ///< by switch
};

}  // namespace ina::sim::world
