// Makes a group of some ranks of a job: a job of its own, within the bounds of the job's owner.
#pragma once

#include <string>
#include <vector>

#include "control/messages.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class GroupMaker {
 public:
  /// All of them must outlive it.
  GroupMaker(const ConductorConfig& config, JobTable& jobs, JobRecords& records,
             LaneJobs& lane_jobs, Resources& resources, Connections& connections)
      : config_(config),
        jobs_(jobs),
        records_(records),
        lane_jobs_(lane_jobs),
        resources_(resources),
        connections_(connections) {}

  /// The group of these ranks of `job`, in this order. `label`: tells it from others in texts. The
  /// members of `job` pay for the time.
  Result<JobId> make(const Job& job, const std::vector<uint32_t>& ranks, const std::string& label);
  /// The part of this switch in a group that the one above has made, as it says. `ranks`: of `job`.
  Result<JobId> join(const Job& job, const control::answer::Grouped& above);
  uint32_t window(JobId group) const { return jobs_.find(group)->grant.window; }
  /// A worker's place in it.
  control::answer::GroupPlace place(JobId group, uint32_t rank) const;

 private:
  Result<void> check_room(const Job& job) const;
  SavedJob new_group(const Job& job, const std::vector<uint32_t>& ranks);
  Result<JobId> take(const Job& job, const std::vector<uint32_t>& ranks, const std::string& label,
                     const control::answer::Grouped* above = nullptr);

  const ConductorConfig& config_;
  JobTable& jobs_;
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  Connections& connections_;
};

}  // namespace ina::switchd
