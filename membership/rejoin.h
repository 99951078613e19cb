// How a member comes back to its job when its switch has gone: at the switch that starts in the old
// one's place, on the thread that reads the connection. Groups come back once their job runs again.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "control/appearance.h"
#include "membership/admission.h"
#include "membership/attachment.h"
#include "membership/member.h"
#include "membership/presence.h"
#include "membership/settings.h"
#include "membership/switch_connection.h"

namespace ina::membership {

/// A member that comes back.
class ReturningMember : public Member {
 public:
  /// Neither has its job failed, nor does its owner want to end.
  virtual bool going_on() const = 0;
  /// Can be read when going_on() may have changed, until drain_wakes().
  virtual int wake_fd() const = 0;
  virtual void drain_wakes() = 0;
  /// What its engine goes by so far.
  virtual const client::EngineConfig& engine_config() const = 0;
  /// All that the switch must know of it.
  virtual request::Rejoin rejoin_message() const = 0;
  virtual void on_registered(const answer::Registered& registered) = 0;
  /// `told`: what its engine goes by from now on. `transport`: the new one; none if the old one was
  /// connected anew. `ready`: the switch's answer.
  virtual void come_back(const client::EngineConfig& told,
                         std::unique_ptr<client::Transport> transport,
                         const answer::Ready& ready) = 0;
  // It does not come back.
  /// The switch does not let it.
  virtual void on_refused(const Error& error) = 0;
  /// The switch ended the job while the others came back.
  virtual void on_ended(const Error& error) = 0;
  virtual void end(int status, const std::string& text) = 0;
};

class Rejoin {
 public:
  /// All must outlive it.
  Rejoin(const Settings& settings, SwitchConnection& connection, Attachment& attachment,
         Admission& admission, Presence& presence, ReturningMember& member)
      : settings_(settings),
        connection_(connection),
        attachment_(attachment),
        admission_(admission),
        presence_(presence),
        member_(member) {}

  /// Tries until the job runs again, the member has failed, or it ends.
  void run();

 private:
  enum class Attempt { kBack, kAgain, kOver };
  Nanos deadline() const;
  void await_another_attempt(control::Appearance& appearance, Nanos& appeared_at, Nanos pause);
  Attempt try_once(std::string& why);
  Attempt on_answer(control::Heard& heard, std::string& why);
  Attempt await_ready(std::string& why, answer::Ready& ready);
  Result<std::optional<control::Heard>> next_message(Nanos until);

  const Settings& settings_;
  SwitchConnection& connection_;
  Attachment& attachment_;
  Admission& admission_;
  Presence& presence_;
  ReturningMember& member_;
};

}  // namespace ina::membership
