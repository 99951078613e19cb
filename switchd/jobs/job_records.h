// Jobs as the state file keeps them: the record of a new job, the part that outlives the switch,
// and the job made from it at the next start.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "switchd/jobs/job.h"
#include "switchd/jobs/state_file.h"

namespace ina::switchd {

/// One moment by both clocks: that of this boot of the machine, and the one that goes on over it.
struct Moment {
  Nanos monotonic = 0;
  int64_t utc_s = 0;

  static Moment now();
};

/// The record with which the next switch goes on with the job.
SavedJob saved_of(const Job& job, const Moment& now);
/// How many domains the job of an entry has.
uint32_t domains_of(const SavedJob& saved);
/// The job of an entry, in kJoining, but for its grant and its reservation. `places`: of its
/// domains.
std::unique_ptr<Job> job_of(const SavedJob& saved, std::span<const aggregator::JobIndex> places);
/// Until when the job of the entry is reserved; 0: it is not, because it has begun.
Nanos reserved_until(const SavedJob& saved, const Moment& now);

class JobRecords {
 public:
  /// `state` must outlive it. `spreads`: the workers of new jobs may be at several switches.
  JobRecords(StateFile& state, bool spreads) : state_(state), spreads_(spreads) {}

  /// The record of a new job, but for its owner. Nothing is written.
  SavedJob new_job(const std::string& name, uint32_t workers);
  /// Epochs count on within a boot of the switch.
  Result<uint32_t> next_epoch(const Job& job) const { return state_.epoch_after(job.epoch); }
  /// Returns when it is on disk. A job that cannot be saved may go on, but would not survive a
  /// restart. The log says so, and each later change tries to save all.
  Result<void> save(const Job& job);
  void forget(const Job& job);

 private:
  StateFile& state_;
  const bool spreads_;
};

}  // namespace ina::switchd
