// The jobs that the lanes serve, as the lanes know them. Each call waits until all lanes have
// answered.
#pragma once

#include "common/result.h"
#include "switchd/jobs/job.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

class LaneJobs {
 public:
  /// All of them must outlive it.
  LaneJobs(Lanes& lanes, const JobRules& rules) : lanes_(lanes), rules_(rules) {}

  const JobRules& rules() const { return rules_; }

  /// `start`: the first fragment that may still have to be served.
  void add(Job& job, Seq start);
  void remove(const Job& job);

  /// From now on they serve this worker, or the fallback server.
  Result<void> attach(const Job& job, Rank rank);
  void detach(const Job& job, Rank rank);
  /// From now on what is whole goes to the switch above, which is behind the Ethernet port.
  Result<void> attach_above(const Job& job, uint32_t frame_port);
  void detach_above(const Job& job);
  /// The epoch of the switch above, and what waits for it is sent again; 0: it is away.
  void set_parent_epoch(const Job& job, uint32_t epoch);
  /// The fragments whose results this switch has, or its members have, in their order.
  std::vector<Seq> held(const Job& job);
  /// A member that has come back has the results that its place says.
  void set_held(const Job& job, Rank rank);

  /// Nothing of the epoch before is taken, or sent, after this.
  void begin_epoch(const Job& job);
  /// Where the fragments end whose results the lanes have seen.
  Seq results_end(const Job& job);

 private:
  static Seq start_of(const Job& job, const Domain& domain, Seq start);
  void report_held(const Job& job);

  Lanes& lanes_;
  const JobRules& rules_;
};

}  // namespace ina::switchd
