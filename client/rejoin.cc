// What a context does when its switch is gone: it comes back to the job with the switch that starts
// in its place, while its callers wait. All of it runs on the background thread.
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "client/context.h"
#include "client/control_text.h"
#include "common/clock.h"

namespace ina::client {

namespace {

using control::Json;

// Between attempts, doubling: a switch starts within a second or so.
constexpr Nanos kFirstPauseNs = 5'000'000;
constexpr Nanos kLongestPauseNs = 200'000'000;
// How long one attempt to open an Ethernet port may block, and with it the end of the context.
constexpr Nanos kOpenPortNs = 500'000'000;
constexpr Nanos kLongestPollNs = 1'000'000'000;
constexpr Nanos kForEver = INT64_MAX;

}  // namespace

/// The control connection broke.
void Context::go_away() {
  {
    const auto lock = lock_engine();
    // What the switch delivered before it went needs no recovery.
    const Nanos now = now_ns();
    while (receive(now) != 0) {
    }
    running_.store(engine_->running(), std::memory_order_relaxed);
    standing_ = engine_->standing();
    const std::lock_guard state(state_mutex_);
    away_since_ = now;
    others_missing_.clear();
    away_ = true;
  }
  cv_.notify_all();
  disconnect();
}

/// Tries until the job runs again, the context has failed, or it ends.
void Context::rejoin() {
  Nanos pause_ns = kFirstPauseNs;
  std::string why;
  const auto left = [this] { return away_since_ + settings_.rejoin_timeout_ns - now_ns(); };
  while (going_on()) {
    const Attempt attempt = try_rejoin(away_since_ + settings_.rejoin_timeout_ns, why);
    if (attempt == Attempt::kBack) return;
    disconnect();
    if (attempt == Attempt::kOver) return;
    if (const Nanos pause = std::min(pause_ns, left()); pause > 0) {
      pollfd kicked{kick_event_.get(), POLLIN, 0};
      if (::poll(&kicked, 1, static_cast<int>(pause / 1'000'000 + 1)) > 0) drain_kicks();
      pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
    }
    // Nor one more attempt, which would have no time to hear why it fails.
    if (left() <= 0)
      return end(INA_ERR_SWITCH_LOST,
                 "the switch at " + settings_.url + " is gone and did not come back within " +
                     seconds(settings_.rejoin_timeout_ns) + " (rejoin_timeout_us): " + why);
  }
  disconnect();
}

/// One attempt. `why`: what came in its way, if it should be tried again.
Context::Attempt Context::try_rejoin(Nanos deadline, std::string& why) {
  const auto again = [&](const Error& error) {
    why = error.text;
    return Attempt::kAgain;
  };
  if (auto connected = connect(); !connected) return again(connected.error());
  if (frames_)
    if (auto opened = frames_->reopen(std::min(kOpenPortNs, deadline - now_ns())); !opened)
      return again(opened.error());
  Json message = join_message("rejoin");
  message["job_id"] = job_id_;
  message["job_key"] = job_key_;
  message["low"] = standing_.low.value;
  message["next"] = standing_.next.value;
  message["results_end"] = standing_.results_end.value;
  {
    const std::lock_guard state(state_mutex_);
    message["buffers_shared"] = buffers_shared_;
  }
  // A switch that has no room may have said so and closed the connection already.
  const auto sent = control_.send(message);
  auto reply = next_message(sent ? deadline : now_ns());
  if (!sent && !(reply && *reply)) return again(sent.error());
  if (!reply) return again(reply.error());
  if (!*reply)
    return again({INA_ERR_TIMEOUT, "it did not answer the request to re-join" +
                                       (why.empty() ? "" : " (before that: " + why + ")")});
  try {
    return on_rejoin_answer(**reply, why);
  } catch (const Json::exception& e) {
    end(INA_ERR_INTERNAL, std::string("malformed answer of the switch: ") + e.what());
    return Attempt::kOver;
  }
}

Context::Attempt Context::on_rejoin_answer(control::Received& answer, std::string& why) {
  const auto over = [&](const Error& error) {
    end(error.status, error.text);
    return Attempt::kOver;
  };
  const Json& body = answer.body;
  if (control::is_no_room(body)) {
    why = error_of(body).text;
    return Attempt::kAgain;
  }
  if (body.at("type") != "joined") {
    const Error error = error_of(body);
    if (error.status == INA_ERR_SWITCH_LOST && leave_ever_sent_.load()) {
      // All have left, and the switch went before it could say so.
      const std::lock_guard state(state_mutex_);
      left_ = true;
    }
    return over(error);
  }
  const EngineConfig& config = engine_->config();
  const auto epoch = body.at("epoch").get<uint32_t>();
  if (body.at("window").get<uint32_t>() != config.window ||
      body.at("slot_bytes").get<uint32_t>() != config.slot_bytes ||
      body.at("lanes").get<uint32_t>() != config.lanes || epoch <= config.epoch)
    return over({INA_ERR_SWITCH_LOST, "the switch at " + settings_.url +
                                          " came back with another window, slot size or number "
                                          "of lanes, or in an old epoch"});
  std::unique_ptr<Transport> transport;
  Result<void> attached;
  if (frames_) {
    attached = attach_frames(body);
  } else if (auto made = attach_shm(answer)) {
    transport = std::move(*made);
  } else {
    attached = tl::unexpected(made.error());
  }
  if (!attached) {
    if (attached.error().status != INA_ERR_SWITCH_LOST) return over(attached.error());
    why = attached.error().text;
    return Attempt::kAgain;
  }
  {
    // The switch is there. From here on it decides how long the other workers may take.
    const std::lock_guard state(state_mutex_);
    away_since_ = now_ns();
    others_missing_ = "the other ranks";
  }
  uint64_t furthest = 0;
  const Attempt ready = await_ready_again(why, furthest);
  if (ready == Attempt::kBack) {
    come_back(epoch, std::move(transport));
    share_again(furthest);
  }
  return ready;
}

/// `buffers_shared`: how many result buffers the worker had got that was furthest.
Context::Attempt Context::await_ready_again(std::string& why, uint64_t& buffers_shared) {
  for (;;) {
    auto received = next_message(kForEver);
    if (!received || !*received) {
      // Gone again: the time to come back starts anew.
      const std::lock_guard state(state_mutex_);
      away_since_ = now_ns();
      others_missing_.clear();
      if (!received) why = received.error().text;
      return Attempt::kAgain;
    }
    const Json& body = (*received)->body;
    const Json type = body.value("type", Json());
    if (type == "ready") {
      buffers_shared = body.value("buffers_shared", uint64_t{0});
      return Attempt::kBack;
    }
    if (type == "registered") on_registered(body);
    if (type == "waiting" && body.contains("missing")) {
      const std::lock_guard state(state_mutex_);
      others_missing_ = missing_text(body);
    } else if (control::is_no_room(body)) {
      // Its place went to others before the job went on.
      why = error_of(body).text;
      return Attempt::kAgain;
    } else if (type == "abort" || type == "refused") {
      end_by_switch(body);
      return Attempt::kOver;
    }
  }
}

/// `transport`: the new one; none if the old one was connected anew.
void Context::come_back(uint32_t epoch, std::unique_ptr<Transport> transport) {
  {
    const auto lock = lock_engine();
    // Before the old results are unmapped: it may still need some of them.
    engine_->rejoin(epoch, now_ns());
    leave_result_buffers();
    mismatch_reported_ = false;
    if (transport) {
      const TransportCounters counters = transport_->counters();
      lost_counters_.sleeps += counters.sleeps;
      lost_counters_.dropped += counters.dropped;
      lost_counters_.bytes_copied += counters.bytes_copied;
      const std::lock_guard connection(connection_mutex_);
      std::swap(transport_, transport);
    }
    const std::lock_guard state(state_mutex_);
    away_ = false;
  }
  {
    // The new transport does not know yet whether somebody drives.
    const auto lock = lock_engine();
    rest();
  }
  cv_.notify_all();
  if (leaving_.load()) send_leave();
}

/// A caller's part: sleeps until the job goes on, has failed, or the time has passed.
void Context::await_return(Nanos deadline) {
  std::unique_lock state(state_mutex_);
  sleepers_.fetch_add(1);
  cv_.wait_for(state, std::chrono::nanoseconds(std::max<Nanos>(0, deadline - now_ns())),
               [&] { return !away_.load() || failed_.load() != INA_OK; });
  sleepers_.fetch_sub(1);
}

/// The next message of the switch. Nothing: the time has passed, or the context ends.
Result<std::optional<control::Received>> Context::next_message(Nanos deadline) {
  while (going_on()) {
    auto received = control_.receive(0);
    if (!received || *received) return received;
    const Nanos left = deadline - now_ns();
    if (left <= 0) break;
    pollfd fds[2] = {{control_.fd(), control_.events(), 0}, {kick_event_.get(), POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(std::min(left, kLongestPollNs) / 1'000'000 + 1));
    if (fds[1].revents != 0) drain_kicks();
  }
  return std::optional<control::Received>();
}

/// What a caller is told whose time has passed meanwhile; empty if the switch is there.
std::string Context::away_text() const {
  const std::lock_guard state(state_mutex_);
  if (!away_.load()) return "";
  if (!others_missing_.empty())
    return "the switch at " + settings_.url + " was restarted and waits for " + others_missing_ +
           " to come back";
  return "the switch at " + settings_.url + " has been gone for " + seconds(now_ns() - away_since_);
}

}  // namespace ina::client
