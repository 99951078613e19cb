#include "membership/joiner.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "control/absence.h"
#include "control/client.h"
#include "membership/control_text.h"
#include "membership/listener.h"

namespace ina::membership {

namespace {

// Between requests to join a switch that has no room, doubling.
constexpr Nanos kFirstPauseNs = 5'000'000;
constexpr Nanos kLongestPauseNs = 200'000'000;

/// After it, as before, the job may be ready soon.
bool is_news(const answer::Message& said) {
  return std::holds_alternative<answer::Waiting>(said) ||
         std::holds_alternative<answer::Epoch>(said);
}

}  // namespace

Result<Joiner::Joined> Joiner::join(const client::Url& url,
                                    const std::map<std::string, std::string>& shared,
                                    Nanos deadline) {
  if (auto opened = open_transport(url, deadline); !opened) return tl::unexpected(opened.error());
  if (auto resolved = connection_.resolve(url, settings_); !resolved)
    return tl::unexpected(resolved.error());
  auto reply = ask(
      {.member = admission_.identity(), .window_bytes = settings_.window_bytes, .settings = shared},
      deadline);
  if (!reply) return tl::unexpected(reply.error());
  const auto* joined = std::get_if<answer::Joined>(&reply->message);
  if (!joined) return tl::unexpected(control::error_of(reply->message));
  if (auto entered = admission_.enter(*joined, *reply); !entered) {
    connection_.send(0, request::Abort{entered.error().text});  // the others would wait for it
    return tl::unexpected(entered.error());
  }
  return await_ready(deadline);
}

/// As far as the switch is not needed for it: frames are. Shared memory comes with its answer.
Result<void> Joiner::open_transport(const client::Url& url, Nanos deadline) {
  if (url.scheme == "shm") return url.check_keys({});
  if (url.scheme == "memif")
    if (auto served = await_listener(url.path, absent_ns()); !served) return served;
  auto opened = attachment_.open(url, {.user = settings_.switch_user}, deadline - now_ns());
  if (!opened) return tl::unexpected(opened.error());
  member_.open(std::move(*opened));
  return {};
}

/// Connects, and says `join`; again if the switch has no room just now, until `deadline`.
Result<control::Heard> Joiner::ask(const request::Join& join, Nanos deadline) {
  std::optional<control::Heard> refusal;
  for (Nanos pause_ns = kFirstPauseNs;; pause_ns = std::min(2 * pause_ns, kLongestPauseNs)) {
    // Nobody asked to wait for a switch to start: then there is none, and its user wants to know.
    if (auto opened = connection_.open(deadline - now_ns(), absent_ns()); !opened)
      return fail(opened.error().status, opened.error().text + absent_hint(opened.error().status));
    auto reply = control::ask(connection_.control(), join, deadline - now_ns());
    if (!reply) {
      // It closed the connection without a word.
      admission_.set_job_is_gone(reply.error().status == INA_ERR_SWITCH_LOST);
      return tl::unexpected(reply.error());
    }
    // An attempt that the deadline cuts short says less than the one before.
    if (!*reply && refusal) return std::move(*refusal);
    if (!*reply)
      return fail(INA_ERR_TIMEOUT,
                  "the switch at " + connection_.path() + " did not answer the request to join");
    if (!answer::is_no_room((*reply)->message) || now_ns() + pause_ns >= deadline)
      return std::move(**reply);
    refusal = std::move(**reply);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

Result<Joiner::Joined> Joiner::await_ready(Nanos deadline) {
  std::string missing = kOtherRanks;
  bool asked = false;
  for (;;) {
    const bool late = now_ns() >= deadline;
    auto message = control::hear(connection_.control(), std::max<Nanos>(0, deadline - now_ns()));
    if (!message && message.error().status == INA_ERR_SWITCH_LOST) return Joined::kLost;
    if (!message) return tl::unexpected(message.error());
    // A switch that tells news on and on is not waited for longer than one that is silent.
    if (!*message || (late && is_news((*message)->message))) {
      if (std::exchange(asked, true) || !connection_.send(0, request::Explain{}))
        return timed_out(missing, kNoAnswer);
      deadline = now_ns() + kExplainNs;
      continue;
    }
    const answer::Message& said = (*message)->message;
    if (std::holds_alternative<answer::Ready>(said)) return Joined::kReady;
    if (const auto* waiting = std::get_if<answer::Waiting>(&said))
      missing = missing_text(*waiting);
    else if (const auto* explain = std::get_if<answer::Explain>(&said))
      return timed_out(missing, explain->text);
    else if (const auto* epoch = std::get_if<answer::Epoch>(&said))
      member_.set_epoch(epoch->epoch);  // the fallback server was started again
    else
      return tl::unexpected(control::error_of(said));
  }
}

tl::unexpected<Error> Joiner::timed_out(const std::string& missing, const std::string& why) const {
  return fail(INA_ERR_TIMEOUT, "rank " + std::to_string(settings_.rank) + " of job '" +
                                   settings_.job + "' waited " + seconds(settings_.timeout_ns) +
                                   " for " + missing + " to join at " + settings_.url + "; " + why);
}

/// How long a switch that is not there is waited for.
Nanos Joiner::absent_ns() const {
  return settings_.waits_for_switch ? INT64_MAX : control::kAbsentNs;
}

/// The hint to append to the text of an error with `status`.
std::string Joiner::absent_hint(ina_status status) const {
  if (status != INA_ERR_NO_SWITCH || settings_.waits_for_switch) return {};
  return "; INA_TIMEOUT_US (or ina_config.timeout_us) would have this wait for a switch that is "
         "about to start";
}

}  // namespace ina::membership
