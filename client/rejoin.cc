// Context: its behaviour when its switch is gone. The context returns to its job at the switch that
// starts in the old one's place, while its callers wait. All of it runs on the background thread. A
// group comes back once its job runs again, step by step as the switch answers (groups.cc).
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "client/context.h"
#include "client/control_text.h"
#include "client/rejoin_pause.h"
#include "common/clock.h"

namespace ina::client {

namespace {

constexpr Nanos kLongestPollNs = 1'000'000'000;
constexpr Nanos kForEver = INT64_MAX;

}  // namespace

/// The control connection broke.
void Context::go_away() {
  if (callers_.failed() != INA_OK) return;
  if (!link_.is_complete())
    return progress_.end(INA_ERR_SWITCH_LOST, "the switch was restarted while this group was made");
  {
    const auto lock = progress_.lock();
    // Results that the switch delivered before it went need no recovery.
    progress_.receive_rest();
    progress_.count();
    standing_ = link_.engine().standing();
    return_.reset();
    const auto state = callers_.lock();
    if (!progress_.is_away()) away_since_ = now_ns();
    others_missing_.clear();
    splits_.go_away();
    member_groups_.go_away();
    progress_.set_away(true);
  }
  callers_.wake();
}

/// Tries until the job runs again, the context has failed, or it ends.
void Context::rejoin() {
  const Nanos began = now_ns();
  control::Appearance appearance(session_->path());
  Nanos appeared_at = 0;
  std::string why;
  const auto left = [this] { return away_since_ + settings_.rejoin_timeout_ns - now_ns(); };
  while (going_on()) {
    const Attempt attempt = try_rejoin(away_since_ + settings_.rejoin_timeout_ns, why);
    if (attempt == Attempt::kBack) return;
    session_->close();
    if (attempt == Attempt::kOver) return;
    const Nanos now = now_ns();
    const Nanos pause = std::min(rejoin_pause(now - began, now - appeared_at), left());
    if (pause > 0) await_another_attempt(appearance, appeared_at, pause);
    // Nor one more attempt, which would have no time to hear why it fails.
    if (left() <= 0)
      return progress_.end(INA_ERR_SWITCH_LOST, "the switch at " + settings_.url +
                                                    " is gone and did not come back within " +
                                                    seconds(settings_.rejoin_timeout_ns) +
                                                    " (rejoin_timeout_us): " + why);
  }
  session_->close();
}

/// For `pause` at most: the socket of the next switch appears, or the context ends.
void Context::await_another_attempt(control::Appearance& appearance, Nanos& appeared_at,
                                    Nanos pause) {
  pollfd fds[2] = {{session_->kick_fd(), POLLIN, 0}, {appearance.fd(), POLLIN, 0}};
  const timespec most{pause / 1'000'000'000, pause % 1'000'000'000};
  ::ppoll(fds, 2, &most, nullptr);
  if (fds[0].revents != 0) session_->drain_kicks();
  if (fds[1].revents != 0 && appearance.appeared()) appeared_at = now_ns();
}

/// The re-join request: all that the switch must know of this worker.
request::Rejoin Context::rejoin_message() const {
  request::Rejoin message = admission_.rejoin(standing_);
  const auto state = callers_.lock();
  message.buffers_shared = memory_.buffers_shared();
  message.splits = splits_.answered();
  return message;
}

/// One attempt. `why`: the reason of a failure after which another attempt may succeed.
Context::Attempt Context::try_rejoin(Nanos deadline, std::string& why) {
  const auto again = [&](const Error& error) {
    why = error.text;
    return Attempt::kAgain;
  };
  if (auto opened = session_->open(0, INT64_MAX); !opened) return again(opened.error());
  if (link_.frames())
    if (auto opened = link_.frames()->reopen(std::min(kOpenPortNs, deadline - now_ns())); !opened)
      return again(opened.error());
  // A switch that has no room may have said so and closed the connection already.
  const auto sent = control::say(session_->control(), rejoin_message());
  auto reply = next_message(sent ? deadline : now_ns());
  if (!sent && !(reply && *reply)) return again(sent.error());
  if (!reply) return again(reply.error());
  if (!*reply)
    return again({INA_ERR_TIMEOUT, "it did not answer the request to re-join" +
                                       (why.empty() ? "" : " (before that: " + why + ")")});
  return on_rejoin_answer(**reply, why);
}

Context::Attempt Context::on_rejoin_answer(control::Heard& heard, std::string& why) {
  const auto over = [&](const Error& error) {
    progress_.end(error.status, error.text);
    return Attempt::kOver;
  };
  if (answer::is_no_room(heard.message)) {
    why = control::error_of(heard.message).text;
    return Attempt::kAgain;
  }
  const auto* const joined = std::get_if<answer::Joined>(&heard.message);
  if (!joined) {
    const Error error = control::error_of(heard.message);
    // Unknown, or it has the name only: another rank may have begun the job anew.
    admission_.set_job_is_gone(std::holds_alternative<answer::Refused>(heard.message));
    if (error.status == INA_ERR_SWITCH_LOST && leave_ever_sent_.load()) {
      // All have left, and the switch went before it could say so.
      const auto state = callers_.lock();
      left_ = true;
    }
    return over(error);
  }
  if (const std::string text = admission_.changed_text(*joined); !text.empty())
    return over({INA_ERR_SWITCH_LOST, text});
  auto transport = admission_.attach(joined->place, heard);
  if (!transport) {
    if (transport.error().status != INA_ERR_SWITCH_LOST) return over(transport.error());
    why = transport.error().text;
    return Attempt::kAgain;
  }
  {
    // The switch is there. From here on it decides how long the other workers may take.
    const auto state = callers_.lock();
    away_since_ = now_ns();
    others_missing_ = "the other ranks";
  }
  answer::Ready ready;
  const Attempt attempt = await_ready_again(why, ready);
  if (attempt == Attempt::kBack) come_back(admission_.rules(*joined), std::move(*transport), ready);
  return attempt;
}

Context::Attempt Context::await_ready_again(std::string& why, answer::Ready& ready) {
  for (;;) {
    auto received = next_message(kForEver);
    if (!received || !*received) {
      // Gone again: the time to come back starts anew.
      const auto state = callers_.lock();
      away_since_ = now_ns();
      others_missing_.clear();
      if (!received) why = received.error().text;
      return Attempt::kAgain;
    }
    const answer::Message& said = (*received)->message;
    if (const auto* all_are_back = std::get_if<answer::Ready>(&said)) {
      ready = *all_are_back;
      return Attempt::kBack;
    }
    if (const auto* registered = std::get_if<answer::Registered>(&said)) {
      memory_.on_registered(*registered);
    } else if (const auto* waiting = std::get_if<answer::Waiting>(&said)) {
      const auto state = callers_.lock();
      others_missing_ = missing_text(*waiting);
    } else if (answer::is_no_room(said)) {
      // Its place went to others before the job went on.
      why = control::error_of(said).text;
      return Attempt::kAgain;
    } else if (std::holds_alternative<answer::Abort>(said) ||
               std::holds_alternative<answer::Refused>(said)) {
      end_by_switch(control::error_of(said));
      return Attempt::kOver;
    }
  }
}

/// `told`: the rules to go by. `transport`: the new one; none if the old one was connected anew.
/// `ready`: the switch's answer.
void Context::come_back(const EngineConfig& told, std::unique_ptr<Transport> transport,
                        const answer::Ready& ready) {
  {
    const auto lock = progress_.lock();
    // Before the old results are unmapped: it may still need some of them.
    link_.engine().rejoin(told, now_ns());
    if (auto replaced = memory_.make_ordinary(); !replaced)
      progress_.end(replaced.error().status, replaced.error().text);
    mismatch_reported_ = false;
    if (transport) transport = link_.replace(std::move(transport));
    const auto state = callers_.lock();
    progress_.set_away(false);
  }
  {
    // The new transport does not know yet whether a thread drives.
    const auto lock = progress_.lock();
    progress_.rest();
  }
  callers_.wake();
  if (leaving_.load()) send_leave();
  memory_.share_again(ready.buffers_shared);
  splits_.ask_again(ready.splits);
  member_groups_.ask_again();
}

/// The next message of the switch about the job itself. Groups do not come back before their job.
/// So a message about a group can only answer a request that crossed the end of the previous
/// switch, and is ignored. Nothing: the time has passed, or the context ends.
Result<std::optional<control::Heard>> Context::next_message(Nanos deadline) {
  while (going_on()) {
    const control::Connection& control = session_->control();
    auto received = control::hear(control, 0);
    if (!received) return received;
    if (*received) {
      if ((*received)->channel.value_or(0) == 0) return received;
      continue;
    }
    const Nanos left = deadline - now_ns();
    if (left <= 0) break;
    pollfd fds[2] = {{control.fd(), control.events(), 0}, {session_->kick_fd(), POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(std::min(left, kLongestPollNs) / 1'000'000 + 1));
    if (fds[1].revents != 0) session_->drain_kicks();
  }
  return std::optional<control::Heard>();
}

/// The text for a caller that has timed out meanwhile; empty if the switch is there.
std::string Context::away_text() const {
  const auto state = callers_.lock();
  if (!progress_.is_away()) return "";
  if (!others_missing_.empty())
    return "the switch at " + settings_.url + " was restarted and waits for " + others_missing_ +
           " to come back";
  return "the switch at " + settings_.url + " has been gone for " + seconds(now_ns() - away_since_);
}

}  // namespace ina::client
