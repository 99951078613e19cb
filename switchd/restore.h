// Jobs that outlive the switch: a switch that starts again holds the places of the jobs in its
// state file. See docs/protocol.md, "Restart of the switch".
#pragma once

#include <string>

#include "switchd/conductor_config.h"
#include "switchd/job_records.h"
#include "switchd/job_rules.h"
#include "switchd/job_table.h"
#include "switchd/resources.h"
#include "switchd/state_file.h"

namespace ina::switchd {

/// Used once, before the lanes run.
class Restore {
 public:
  /// All of them must outlive it. `jobs`: empty yet.
  Restore(const ConductorConfig& config, const JobRules& rules, StateFile& state,
          Resources& resources, JobTable& jobs)
      : config_(config), rules_(rules), state_(state), resources_(resources), jobs_(jobs) {}

  /// Holds the places of the jobs in the file until their workers are back, and drops those with
  /// which this switch cannot go on.
  void run(const Moment& now);

 private:
  Result<Job*> restore(const SavedJob& saved, const Moment& now);
  Result<void> check(const SavedJob& saved) const;
  Result<void> check_root(const SavedJob& saved) const;
  Result<void> check_slots(const SavedJob& saved) const;
  Result<void> check_room(const SavedJob& saved) const;

  const ConductorConfig& config_;
  const JobRules& rules_;
  StateFile& state_;
  Resources& resources_;
  JobTable& jobs_;
};

}  // namespace ina::switchd
