// How jobs end: their workers are told why, and the lanes, the state file and the table forget
// them.
#pragma once

#include <deque>
#include <string>

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/jobs/group_places.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class JobEnding {
 public:
  /// All of them must outlive it.
  JobEnding(JobTable& jobs, JobRecords& records, LaneJobs& lane_jobs, Resources& resources,
            Connections& connections, GroupPlaces& group_places)
      : jobs_(jobs),
        records_(records),
        lane_jobs_(lane_jobs),
        resources_(resources),
        connections_(connections),
        group_places_(group_places) {}

  /// With an error. `job` is gone after this.
  void end(Job& job, ina_status status, const std::string& text);
  /// Its workers disagree; `sides`: names the difference.
  void end_mismatched(Job& job, const std::string& sides);
  /// A home of the fallback outside the switch found that the workers disagree.
  void on_mismatch(Client& client, const control::request::Mismatch& mismatch);
  /// The groups of a job that an administrator ends.
  void end_groups_of(JobId root, ina_status status, const std::string& text);

  /// Tells the workers. They have no job any more; the job stays.
  void tell(Job& job, ina_status status, const std::string& text);
  /// Takes the job from the switch, without a word to its workers. `job` is gone after this.
  void remove(Job& job);
  /// The job of `client` has ended for it.
  void leave(Client& client);
  /// Why a group of `root` ended while it was made: for its workers who come too late to be told.
  /// nullptr: there was none, or it was long ago.
  const Error* why_ended(JobId group, JobId root) const;

 private:
  static constexpr size_t kMostUnmadeGroups = 64;
  struct UnmadeGroup {
    JobId id{};
    JobId root{};
    Error error;
  };
  void release_fallback(Job& job);

  JobTable& jobs_;
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  Connections& connections_;
  GroupPlaces& group_places_;
  std::deque<UnmadeGroup> unmade_groups_;
};

}  // namespace ina::switchd
