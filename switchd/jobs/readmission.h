// Decides whether a switch can go on with a job that ran under another switch, or under another
// configuration, and with which slots. See docs/protocol.md, "Restart of the switch".
#pragma once

#include "scheduler/admission.h"
#include "switchd/conductor_config.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/state_file.h"

namespace ina::switchd {

class Readmission {
 public:
  /// All of them must outlive it. `jobs`: those that go on so far.
  Readmission(const ConductorConfig& config, const JobRules& rules, const JobTable& jobs)
      : config_(config), rules_(rules), jobs_(jobs) {}

  /// Checks that the saved job fits this configuration. The state file may have been written by a
  /// switch with another configuration, or by hand.
  Result<void> check(const SavedJob& saved) const;

 private:
  Result<void> check_home(const SavedJob& saved) const;
  Result<void> check_root(const SavedJob& saved) const;
  Result<void> check_slots(const SavedJob& saved) const;
  Result<void> check_room(const SavedJob& saved) const;

  const ConductorConfig& config_;
  const JobRules& rules_;
  const JobTable& jobs_;
};

/// The slots of a job that passed the check: as many as it had, or under another policy as its
/// window needs. The window itself stays as its workers know it.
Result<scheduler::Grant> readmit(const ConductorConfig& config, uint32_t lanes,
                                 scheduler::Admission& admission, const Job& job,
                                 const SavedJob& saved);

}  // namespace ina::switchd
