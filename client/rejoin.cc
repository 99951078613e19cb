// What a context does when its switch is gone: it comes back to its job with the switch that starts
// in its place, while its callers wait. All of it runs on the background thread. A group comes back
// once its job runs again, step by step as the switch answers (groups.cc).
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "client/context.h"
#include "client/control_text.h"
#include "client/rejoin_pause.h"
#include "common/clock.h"

namespace ina::client {

namespace {

// How long one attempt to open an Ethernet port may block, and with it the end of the context.
constexpr Nanos kOpenPortNs = 500'000'000;
constexpr Nanos kLongestPollNs = 1'000'000'000;
constexpr Nanos kForEver = INT64_MAX;

}  // namespace

/// The control connection broke.
void Context::go_away() {
  if (callers_.failed() != INA_OK) return;
  if (!transport_ || !engine_)
    return end(INA_ERR_SWITCH_LOST, "the switch was restarted while this group was made");
  {
    const auto lock = lock_engine();
    // What the switch delivered before it went needs no recovery.
    const Nanos now = now_ns();
    while (receive(now) != 0) {
    }
    running_.store(engine_->running(), std::memory_order_relaxed);
    standing_ = engine_->standing();
    return_.reset();
    const auto state = callers_.lock();
    if (!away_.load()) away_since_ = now;
    others_missing_.clear();
    split_sent_ = false;
    away_ = true;
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
      return end(INA_ERR_SWITCH_LOST,
                 "the switch at " + settings_.url + " is gone and did not come back within " +
                     seconds(settings_.rejoin_timeout_ns) + " (rejoin_timeout_us): " + why);
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

/// What the switch must know of this worker that comes back.
request::Rejoin Context::rejoin_message() const {
  request::Rejoin message{.member = member(),
                          .job_id = job_id_,
                          .job_key = job_key_,
                          .low = standing_.low.value,
                          .next = standing_.next.value,
                          .results_end = standing_.results_end.value};
  const auto state = callers_.lock();
  message.buffers_shared = buffers_shared_;
  message.splits = splits_;
  return message;
}

/// One attempt. `why`: what came in its way, if it should be tried again.
Context::Attempt Context::try_rejoin(Nanos deadline, std::string& why) {
  const auto again = [&](const Error& error) {
    why = error.text;
    return Attempt::kAgain;
  };
  if (auto opened = session_->open(0, INT64_MAX); !opened) return again(opened.error());
  if (frames_)
    if (auto opened = frames_->reopen(std::min(kOpenPortNs, deadline - now_ns())); !opened)
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
    end(error.status, error.text);
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
    job_is_gone_ = std::holds_alternative<answer::Refused>(heard.message);
    if (error.status == INA_ERR_SWITCH_LOST && leave_ever_sent_.load()) {
      // All have left, and the switch went before it could say so.
      const auto state = callers_.lock();
      left_ = true;
    }
    return over(error);
  }
  if (const std::string text = changed_text(*joined); !text.empty())
    return over({INA_ERR_SWITCH_LOST, text});
  auto transport = attach_again(joined->place, heard);
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
  if (attempt == Attempt::kBack) come_back(engine_config(*joined), std::move(*transport), ready);
  return attempt;
}

/// Why this worker cannot go on at its new place; empty if it can.
std::string Context::changed_text(const answer::Joined& joined) const {
  const answer::Place& place = joined.place;
  const EngineConfig& config = engine_->config();
  if (const EngineConfig told = engine_config(joined); told.home != config.home)
    return "the switch at " + settings_.url +
           " came back with another place for the fallback (fallback.home): " + joined.rules.home +
           " instead of " + std::string(name(config.home));
  if (place.window == config.window && place.slot_bytes == config.slot_bytes &&
      place.lanes == config.lanes && place.epoch > config.epoch)
    return {};
  return "the switch at " + settings_.url +
         " came back with another window, slot size or number of lanes, or in an old epoch";
}

/// Attaches anew. The transport to go on with; nullptr: the old one, which was connected anew.
Result<std::unique_ptr<Transport>> Context::attach_again(const answer::Place& place,
                                                         control::Heard& joined) {
  if (!frames_) return attach_shm(place, joined);
  if (auto attached = attach_frames(place); !attached) return tl::unexpected(attached.error());
  return std::unique_ptr<Transport>();
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
      on_registered(*registered);
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

/// `told`: by which rules. `transport`: the new one; none if the old one was connected anew.
/// `ready`: what the switch said.
void Context::come_back(const EngineConfig& told, std::unique_ptr<Transport> transport,
                        const answer::Ready& ready) {
  {
    const auto lock = lock_engine();
    // Before the old results are unmapped: it may still need some of them.
    engine_->rejoin(told, now_ns());
    if (auto replaced = result_buffers_.make_ordinary(); !replaced)
      end(replaced.error().status, replaced.error().text);
    mismatch_reported_ = false;
    if (transport) {
      const TransportCounters counters = transport_->counters();
      lost_counters_.sleeps += counters.sleeps;
      lost_counters_.dropped += counters.dropped;
      lost_counters_.bytes_copied += counters.bytes_copied;
      const std::lock_guard lock_transport(transport_mutex_);
      std::swap(transport_, transport);
    }
    const auto state = callers_.lock();
    away_ = false;
  }
  {
    // The new transport does not know yet whether somebody drives.
    const auto lock = lock_engine();
    rest();
  }
  callers_.wake();
  if (leaving_.load()) send_leave();
  share_again(ready.buffers_shared);
  split_again(ready.splits);
}

// ---- a group

void Context::ask_to_rejoin() {
  if (callers_.failed() != INA_OK) return;
  {
    const auto state = callers_.lock();
    others_missing_ = "the other ranks";
  }
  if (frames_)
    if (auto opened = frames_->reopen(kOpenPortNs); !opened)
      return end(INA_ERR_SWITCH_LOST, "the group cannot come back: " + opened.error().text);
  session_->send(id_, rejoin_message());
}

/// The switch has a place for it: its first, or that which it had before a restart.
void Context::on_joined(const answer::Joined& joined, control::Heard& heard) {
  if (id_ == 0 || (engine_ && !away_.load())) return;
  if (!engine_) {
    auto set = set_up(joined, heard);
    if (!set) end(set.error().status, set.error().text);
    return;
  }
  if (const std::string text = changed_text(joined); !text.empty())
    return end(INA_ERR_SWITCH_LOST, text);
  auto transport = attach_again(joined.place, heard);
  if (!transport) return end(transport.error().status, transport.error().text);
  return_ = Return{engine_config(joined), std::move(*transport)};
}

/// All its workers have attached.
void Context::on_ready(const answer::Ready& ready) {
  if (id_ == 0 || !engine_) return;
  if (away_.load() && return_) {
    Return back = std::move(*return_);
    return_.reset();
    come_back(back.told, std::move(back.transport), ready);
  }
  {
    const auto lock = lock_engine();
    live_ = true;
    rest();
  }
  callers_.tell([] {});
}

// ---- waiting

/// A caller's part: sleeps until the job goes on, has failed, or the time has passed.
void Context::await_return(Nanos deadline) {
  auto state = callers_.lock();
  callers_.await(state, deadline - now_ns(), [&] { return !away_.load(); });
}

/// The next message of the switch about the job itself. Groups do not come back before their job:
/// what the switch says of one is its answer to what crossed the end of the switch before it.
/// Nothing: the time has passed, or the context ends.
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

/// What a caller is told whose time has passed meanwhile; empty if the switch is there.
std::string Context::away_text() const {
  const auto state = callers_.lock();
  if (!away_.load()) return "";
  if (!others_missing_.empty())
    return "the switch at " + settings_.url + " was restarted and waits for " + others_missing_ +
           " to come back";
  return "the switch at " + settings_.url + " has been gone for " + seconds(now_ns() - away_since_);
}

}  // namespace ina::client
