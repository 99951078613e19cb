#include "membership/rejoin.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "membership/control_text.h"
#include "membership/rejoin_pause.h"

namespace ina::membership {

namespace {

constexpr Nanos kLongestPollNs = 1'000'000'000;
constexpr Nanos kForEver = INT64_MAX;

}  // namespace

/// The time at which it gives up.
Nanos Rejoin::deadline() const {
  return presence_.away_since() + settings_.rejoin_timeout_ns;
}

void Rejoin::run() {
  const Nanos began = now_ns();
  control::Appearance appearance(connection_.path());
  Nanos appeared_at = 0;
  std::string why;
  while (member_.going_on()) {
    const Attempt attempt = try_once(why);
    if (attempt == Attempt::kBack) return;
    connection_.close();
    if (attempt == Attempt::kOver) return;
    const Nanos now = now_ns();
    const Nanos pause = std::min(rejoin_pause(now - began, now - appeared_at), deadline() - now);
    if (pause > 0) await_another_attempt(appearance, appeared_at, pause);
    // Nor one more attempt, which would have no time to hear why it fails.
    if (deadline() <= now_ns())
      return member_.end(INA_ERR_SWITCH_LOST, "the switch at " + settings_.url +
                                                  " is gone and did not come back within " +
                                                  seconds(settings_.rejoin_timeout_ns) +
                                                  " (rejoin_timeout_us): " + why);
  }
  connection_.close();
}

/// For `pause` at most: the socket of the next switch appears, or the member ends.
void Rejoin::await_another_attempt(control::Appearance& appearance, Nanos& appeared_at,
                                   Nanos pause) {
  pollfd fds[2] = {{member_.wake_fd(), POLLIN, 0}, {appearance.fd(), POLLIN, 0}};
  const timespec most{pause / 1'000'000'000, pause % 1'000'000'000};
  ::ppoll(fds, 2, &most, nullptr);
  if (fds[0].revents != 0) member_.drain_wakes();
  if (fds[1].revents != 0 && appearance.appeared()) appeared_at = now_ns();
}

/// One attempt. `why`: the reason of a failure after which another attempt may succeed.
Rejoin::Attempt Rejoin::try_once(std::string& why) {
  const auto again = [&](const Error& error) {
    why = error.text;
    return Attempt::kAgain;
  };
  const Nanos until = deadline();
  if (auto opened = connection_.open(0, INT64_MAX); !opened) return again(opened.error());
  if (auto opened = attachment_.reopen(std::min(kOpenPortNs, until - now_ns())); !opened)
    return again(opened.error());
  // A switch that has no room may have said so and closed the connection already.
  const auto sent = control::say(connection_.control(), member_.rejoin_message());
  auto reply = next_message(sent ? until : now_ns());
  if (!sent && !(reply && *reply)) return again(sent.error());
  if (!reply) return again(reply.error());
  if (!*reply)
    return again({INA_ERR_TIMEOUT, "it did not answer the request to re-join" +
                                       (why.empty() ? "" : " (before that: " + why + ")")});
  return on_answer(**reply, why);
}

Rejoin::Attempt Rejoin::on_answer(control::Heard& heard, std::string& why) {
  if (answer::is_no_room(heard.message)) {
    why = control::error_of(heard.message).text;
    return Attempt::kAgain;
  }
  const auto* const joined = std::get_if<answer::Joined>(&heard.message);
  if (!joined) {
    // Unknown, or it has the name only: another rank may have begun the job anew.
    admission_.set_job_is_gone(std::holds_alternative<answer::Refused>(heard.message));
    member_.on_refused(control::error_of(heard.message));
    return Attempt::kOver;
  }
  if (const std::string text = admission_.changed_text(*joined, member_.engine_config());
      !text.empty()) {
    member_.end(INA_ERR_SWITCH_LOST, text);
    return Attempt::kOver;
  }
  auto transport = admission_.attach(joined->place, heard);
  if (!transport && transport.error().status != INA_ERR_SWITCH_LOST) {
    member_.end(transport.error().status, transport.error().text);
    return Attempt::kOver;
  }
  if (!transport) {
    why = transport.error().text;
    return Attempt::kAgain;
  }
  // The switch is there. From here on it decides how long the other workers may take.
  presence_.wait_anew(now_ns(), kOtherRanks);
  answer::Ready ready;
  const Attempt attempt = await_ready(why, ready);
  if (attempt == Attempt::kBack)
    member_.come_back(admission_.engine_config(*joined), std::move(*transport), ready);
  return attempt;
}

Rejoin::Attempt Rejoin::await_ready(std::string& why, answer::Ready& ready) {
  for (;;) {
    auto received = next_message(kForEver);
    if (!received || !*received) {
      // Gone again: the time to come back starts anew.
      presence_.wait_anew(now_ns(), "");
      if (!received) why = received.error().text;
      return Attempt::kAgain;
    }
    const answer::Message& said = (*received)->message;
    if (const auto* all_are_back = std::get_if<answer::Ready>(&said)) {
      ready = *all_are_back;
      return Attempt::kBack;
    }
    if (const auto* registered = std::get_if<answer::Registered>(&said)) {
      member_.on_registered(*registered);
    } else if (const auto* waiting = std::get_if<answer::Waiting>(&said)) {
      presence_.set_others_missing(missing_text(*waiting));
    } else if (answer::is_no_room(said)) {
      // Its place went to others before the job went on.
      why = control::error_of(said).text;
      return Attempt::kAgain;
    } else if (std::holds_alternative<answer::Abort>(said) ||
               std::holds_alternative<answer::Refused>(said)) {
      member_.on_ended(control::error_of(said));
      return Attempt::kOver;
    }
  }
}

/// The next message of the switch about the job itself. Groups do not come back before their job.
/// So a message about a group can only answer a request that crossed the end of the previous
/// switch, and is ignored. Nothing: the time has passed, or the member ends.
Result<std::optional<control::Heard>> Rejoin::next_message(Nanos until) {
  while (member_.going_on()) {
    const control::Connection& control = connection_.control();
    auto received = control::hear(control, 0);
    if (!received) return received;
    if (*received) {
      if ((*received)->channel.value_or(0) == 0) return received;
      continue;
    }
    const Nanos left = until - now_ns();
    if (left <= 0) break;
    pollfd fds[2] = {{control.fd(), control.events(), 0}, {member_.wake_fd(), POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(std::min(left, kLongestPollNs) / 1'000'000 + 1));
    if (fds[1].revents != 0) member_.drain_wakes();
  }
  return std::optional<control::Heard>();
}

}  // namespace ina::membership
