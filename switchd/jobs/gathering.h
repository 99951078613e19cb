// Workers and fallback servers attach to their jobs; a job begins, or goes on after a restart of
// the switch, when all of them have.
#pragma once

#include <algorithm>
#include <functional>

#include "switchd/config/config.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/lane_jobs.h"

namespace ina::switchd {

class Gathering {
 public:
  /// All of them must outlive it.
  Gathering(const config::ControlConfig& config, const JobRules& rules, const JobTable& jobs,
            JobRecords& records, LaneJobs& lane_jobs, JobEnding& ending, JobOffers& offers,
            Connections& connections)
      : config_(config),
        rules_(rules),
        jobs_(jobs),
        records_(records),
        lane_jobs_(lane_jobs),
        ending_(ending),
        offers_(offers),
        connections_(connections) {}

  /// Has the switch above told of the workers of a spread job: `tell(job)`. Otherwise there is
  /// none. `back(job)`: all members of this switch are back at a job that the one above goes on
  /// with.
  void set_above(std::function<void(Job&)> tell, std::function<void(Job&)> back) {
    tell_above_ = std::move(tell);
    back_above_ = std::move(back);
  }
  /// Why a client cannot attach without a descriptor.
  static Result<void> check_attach(const Client& client);
  /// A worker attaches; its region is there, if it needs one.
  void attach(Client& client);
  /// Somebody has attached: begins the job if all have.
  void look(Job& job);
  /// All workers of a spread job are there, at some switch. `port_above`: the Ethernet port that
  /// leads to the switch above, if the job has one.
  void begin_spread(Job& job, uint32_t port_above);
  /// All are back after a restart, the switch above too: as begin_spread().
  void go_on(Job& job, uint32_t port_above);
  /// Tells those that wait which workers are missing; those of a wide job from time to time.
  void tell_missing(Job& job);
  void turn(Nanos now);
  /// When turn() is wanted at the latest, if before `until`.
  Nanos next(Nanos until) const { return std::min(until, next_tell_); }

 private:
  static constexpr Nanos kNever = INT64_MAX;
  static constexpr Nanos kTellPauseNs = 250'000'000;
  static constexpr size_t kMostNamed = 64;
  void tell_missing_now(Job& job);
  void begin(Job& job);
  void drop_empty(Job& job);
  void go_on_below(Client& client);

  const config::ControlConfig& config_;
  const JobRules& rules_;
  const JobTable& jobs_;
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  JobEnding& ending_;
  JobOffers& offers_;
  Connections& connections_;
  std::function<void(Job&)> tell_above_, back_above_;
  Nanos next_tell_ = kNever;
};

}  // namespace ina::switchd
