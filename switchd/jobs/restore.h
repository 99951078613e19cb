// Jobs that outlive the switch: a switch that starts again holds the places of the jobs in its
// state file. See docs/protocol.md, "Restart of the switch".
#pragma once

#include <string>
#include <vector>

#include "switchd/conductor_config.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/readmission.h"
#include "switchd/jobs/state_file.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

/// A job that a switch with this configuration cannot go on with.
struct LostJob {
  JobId id{};
  uint64_t key = 0;
  std::string why;
};

/// Used once, before the lanes run.
class Restore {
 public:
  /// All of them must outlive it. `jobs`: empty yet.
  Restore(const ConductorConfig& config, const JobRules& rules, StateFile& state,
          Resources& resources, JobTable& jobs)
      : config_(config),
        readmission_(config, rules, jobs),
        state_(state),
        resources_(resources),
        jobs_(jobs) {}

  /// Holds the places of the jobs in the file until their workers are back, and drops those with
  /// which this switch cannot go on: these are returned, and their workers are to hear why.
  std::vector<LostJob> run(const Moment& now);

 private:
  Result<Job*> restore(const SavedJob& saved, const Moment& now);

  const ConductorConfig& config_;
  const Readmission readmission_;
  StateFile& state_;
  Resources& resources_;
  JobTable& jobs_;
};

}  // namespace ina::switchd
