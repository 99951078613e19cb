// The invariants of a World, checked while it runs and at its end (docs/reliability.md names the
// invariants).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/faults/actors.h"
#include "sim/faults/outcome.h"

namespace ina::sim::world {

class Judge {
 public:
  using Jobs = std::vector<std::unique_ptr<Job>>;
  using Lanes = std::vector<std::unique_ptr<Lane>>;
  /// All of them must outlive it.
  Judge(const Scenario& scenario, const Jobs& jobs, const Lanes& lanes, Outcome& outcome)
      : scenario_(scenario), jobs_(jobs), lanes_(lanes), outcome_(outcome) {}

  void violate(const std::string& text);

  /// The switch gives the result of a fragment out, or of several that are bare.
  void given_out(Job& job, Seq first, const wire::Message& message) {
    given_out_.push_back({&job, first, message});
  }
  /// The switch has served a burst.
  void after_burst(const aggregator::Aggregator& aggregator);
  /// All have done all that they can do now.
  void check_joining();
  /// A life of the switch is over, or of all.
  void check_ledgers(uint32_t daemon);
  void check_ledgers() {
    for (uint32_t daemon = 0; daemon < scenario_.daemons(); ++daemon) check_ledgers(daemon);
  }
  /// All is over.
  void at_the_end();

 private:
  struct GivenOut {
    Job* job;
    Seq first;
    wire::Message message;
  };
  void check_given_out();
  void check_given_out(Job& job, Seq first, const wire::Message& message);
  void check_sent_by_all(const Job& job, Seq seq);
  void check_quotas(const aggregator::Aggregator& aggregator);
  void check_results(const Job& job);
  void check_payload(const Job& job, const Worker& worker);
  void count_up(const Job& job);

  const Scenario& scenario_;
  const Jobs& jobs_;
  const Lanes& lanes_;
  Outcome& outcome_;
  std::vector<GivenOut> given_out_;  ///< of the burst at hand
};

}  // namespace ina::sim::world
