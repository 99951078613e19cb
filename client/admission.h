// A worker's place in a job, or in a group: the worker's identity, the rules of the place, and the
// attachment of its transport. The class serves a first join, and a return to a restarted switch.
#pragma once

#include <atomic>
#include <memory>

#include "client/direct_memory.h"
#include "client/link.h"
#include "client/session.h"
#include "client/settings.h"
#include "fragments/engine.h"

namespace ina::client {

/// Used by the joining thread, and afterwards by the background thread.
class Admission {
 public:
  /// `channel`: of the session. All must outlive it.
  Admission(const Settings& settings, Session& session, uint32_t channel, Link& link,
            DirectMemory& memory)
      : settings_(settings), session_(session), channel_(channel), link_(link), memory_(memory) {}

  /// The worker that joins, and the path to it.
  request::Member member() const;
  /// The request of a worker that comes back. The caller adds the state of its requests.
  request::Rejoin rejoin(const Standing& standing) const;
  /// The rules for this worker.
  EngineConfig rules(const answer::Joined& joined) const;
  /// Why this worker cannot go on at its new place; empty if it can.
  std::string changed_text(const answer::Joined& joined) const;

  /// Makes engine and transport as `joined` says, and attaches. `heard`: in which it came.
  Result<void> enter(const answer::Joined& joined, control::Heard& heard);
  /// Attaches anew. The transport to go on with; nullptr: the old one, which was connected anew.
  Result<std::unique_ptr<Transport>> attach(const answer::Place& place, control::Heard& heard);

  /// The switch's last answer shows that it does not know the job. From any thread.
  bool job_is_gone() const { return job_is_gone_.load(); }
  void set_job_is_gone(bool gone) { job_is_gone_ = gone; }

 private:
  Result<std::unique_ptr<Transport>> attach_shm(const answer::Place& place, control::Heard& heard);
  Result<void> attach_frames(const answer::Place& place);
  tl::unexpected<Error> switch_closed();

  const Settings& settings_;
  Session& session_;
  const uint32_t channel_;
  Link& link_;
  DirectMemory& memory_;
  uint32_t job_id_ = 0;
  uint64_t job_key_ = 0;
  std::atomic<bool> job_is_gone_{false};
};

}  // namespace ina::client
