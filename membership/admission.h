// A member's place in a job, or in a group: the member's identity, the rules of the place, and the
// attachment of its transport. The class serves a first join, and a return to a restarted switch.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "fragments/engine.h"
#include "membership/attachment.h"
#include "membership/member.h"
#include "membership/settings.h"
#include "membership/switch_connection.h"

namespace ina::membership {

/// Used by the joining thread, and afterwards by the one that reads the connection.
class Admission {
 public:
  /// `channel`: of the connection. All must outlive it.
  Admission(const Settings& settings, SwitchConnection& connection, uint32_t channel,
            Attachment& attachment, Member& member)
      : settings_(settings),
        connection_(connection),
        channel_(channel),
        attachment_(attachment),
        member_(member) {}

  /// The member that joins, and the path to it.
  request::Member identity() const;
  /// The request of a member that comes back; `held` as in the request. The caller adds the state
  /// of its requests.
  request::Rejoin rejoin(const client::Standing& standing, std::vector<uint64_t> held) const;
  /// What the switch's answer says to this member's engine.
  client::EngineConfig engine_config(const answer::Joined& joined) const;
  /// Why a member whose engine has `own` cannot go on at its new place; empty if it can.
  std::string changed_text(const answer::Joined& joined, const client::EngineConfig& own) const;

  /// Has the member begin by the rules of `joined`, and attaches. `heard`: in which it came.
  Result<void> enter(const answer::Joined& joined, control::Heard& heard);
  /// Attaches anew. The transport to go on with; nullptr: the old one, which was connected anew.
  Result<std::unique_ptr<client::Transport>> attach(const answer::Place& place,
                                                    control::Heard& heard);

  /// The switch's last answer shows that it does not know the job. From any thread.
  bool job_is_gone() const { return job_is_gone_.load(); }
  void set_job_is_gone(bool gone) { job_is_gone_ = gone; }

 private:
  const Settings& settings_;
  SwitchConnection& connection_;
  const uint32_t channel_;
  Attachment& attachment_;
  Member& member_;
  uint32_t job_id_ = 0;
  uint64_t job_key_ = 0;
  std::atomic<bool> job_is_gone_{false};
};

}  // namespace ina::membership
