// The switch's resources for jobs: slots, memory, mappings and descriptors. Each is charged to an
// owner from its creation until its last user has given it back.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "scheduler/admission.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/state_file.h"
#include "switchd/memory/handles.h"
#include "switchd/memory/held_memory.h"
#include "switchd/memory/mapper.h"

namespace ina::switchd {

/// The limits by which a switch with this configuration admits jobs.
scheduler::AdmissionConfig admission_config(const ConductorConfig& config, size_t lanes);

class Resources {
 public:
  /// `config` and `rules` must outlive it.
  Resources(const ConductorConfig& config, const JobRules& rules);

  /// The configuration has other quotas and defaults: they hold for later requests.
  void set_limits();

  // A job's own: window, slots, tables and results. Nothing is kept when they fail.
  /// `request`: the resources that the job asks for, beside its window.
  Result<void> take(Job& job, scheduler::JobRequest request, uint64_t window_bytes);
  /// Takes the resources of a job of the last switch: the regions' sizes follow from its window.
  Result<void> retake(Job& job, const SavedJob& saved);
  /// Takes the resources of a group of the parent's ranks. Its window is its parent's, or so much
  /// smaller that its memory is a small part of its owner's remaining limit.
  /// `window`: as the switch above has it; 0: there is none.
  Result<void> take_for_group(Job& group, const Job& parent, uint32_t window = 0);
  /// Takes those of one more domain for members of a spread job, and of a root if it has none yet.
  Result<void> grow(Job& job, std::span<const aggregator::JobIndex> places);
  /// Resources that its workers still have stay charged.
  void give_back(Job& job);

  // A worker's.
  /// The switch's part of its place.
  Result<std::unique_ptr<io::shm::WorkerSession>> make_session(Job& job, Rank rank);
  /// Empties its place, of which the lanes have nothing any more.
  void drop_worker(Job& job, Rank rank);

  // Registered memory's, `bytes` of a worker's own.
  Result<void> take(Job& job, ShmWay& shm, uint32_t number, uint64_t bytes);
  void give_back(Job& job, ShmWay& shm, uint32_t number);

  // A result buffer's, whose memory is not made here.
  Result<void> take(Job& job, Job::ResultBuffer& buffer);
  /// Workers were given the memory: it stays charged until they have given it back.
  void give_back(Job& job, Job::ResultBuffer& buffer);

  /// Looks which memory that was held has been given back: all of it.
  void credit_held();
  /// Credits some of the held memory that has been given back, once a second or so.
  void look_after_held(Nanos now);

  const scheduler::Admission& admission() const { return admission_; }
  Handles& handles() { return handles_; }
  const Handles& handles() const { return handles_; }
  Mapper& mapper() { return mapper_; }
  const HeldMemory& held() const { return held_; }

 private:
  Result<void> take_rest(Job& job);
  Result<void> charge(Job& job, uint64_t bytes);
  Result<void> make(const Job& job, Domain& domain);
  Result<void> take_tables(const Job& job, Domain& domain) const;
  void hold(const std::string& owner, io::shm::Region region);
  void credit_held(size_t most);

  const ConductorConfig& config_;
  const JobRules& rules_;
  scheduler::Admission admission_;
  Handles handles_;
  Mapper mapper_;
  HeldMemory held_{mapper_};
  Nanos look_again_ = 0;  ///< at the memory that is held
};

}  // namespace ina::switchd
