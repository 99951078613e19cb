// Takes new jobs into the switch, as long as it is not drained.
#pragma once

#include <string>

#include "scheduler/admission.h"
#include "switchd/config/config.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class JobMaker {
 public:
  /// All of them must outlive it.
  JobMaker(const config::SwitchConfig& config, JobTable& jobs, LaneJobs& lane_jobs,
           Resources& resources)
      : config_(config), jobs_(jobs), lane_jobs_(lane_jobs), resources_(resources) {}

  /// Gives a new job its place, and the lanes the job. `request`: the resources that it asks for
  /// beside its window; `who`: asks for the job.
  Result<Job*> admit(const SavedJob& fresh, scheduler::JobRequest request, uint64_t window_bytes,
                     const std::string& who);
  /// While it is drained no job is admitted.
  void set_draining(bool draining) { draining_ = draining; }
  bool draining() const { return draining_; }

 private:
  const config::SwitchConfig& config_;
  JobTable& jobs_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  bool draining_ = false;
};

}  // namespace ina::switchd
