// Workers leave their jobs: they say goodbye, give up, or are gone.
#pragma once

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/jobs/gathering.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/jobs/member_groups.h"
#include "switchd/jobs/splits.h"
#include "switchd/memory/resources.h"
#include "switchd/reports/status.h"

namespace ina::switchd {

class Departures {
 public:
  /// All of them must outlive it.
  Departures(JobRecords& records, LaneJobs& lane_jobs, Resources& resources, JobEnding& ending,
             Gathering& gathering, Splits& splits, MemberGroups& member_groups,
             const StatusReport& status, Connections& connections)
      : records_(records),
        lane_jobs_(lane_jobs),
        resources_(resources),
        ending_(ending),
        gathering_(gathering),
        splits_(splits),
        member_groups_(member_groups),
        status_(status),
        connections_(connections) {}

  /// The worker has called ina_finalize. The job ends well once all have.
  void on_leave(Client& client, const control::request::Leave& leave);
  /// Some workers of a job have left, here or below: it ends well if all have.
  void look(Job& job);
  void end_well(Job& job);
  /// A worker leaves: the others' calls beyond its own cannot complete. Workers that leave call
  /// nothing more. `teller`: knows.
  void tell_others(Job& job, const Client* teller, const control::answer::PeerLeft& left);
  /// Likewise, but not the switch above: it says so itself, with no `teller`.
  void tell_here(Job& job, const Client* teller, const control::answer::PeerLeft& left);
  void on_abort(Client& client, const control::request::Abort& abort);
  /// Its connection is gone, or it gave up waiting for the others to join.
  void on_gone(Client& client);

 private:
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  JobEnding& ending_;
  Gathering& gathering_;
  Splits& splits_;
  MemberGroups& member_groups_;
  const StatusReport& status_;
  Connections& connections_;
};

}  // namespace ina::switchd
