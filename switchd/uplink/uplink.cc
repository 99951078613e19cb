#include "switchd/uplink/uplink.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/event_fd.h"
#include "common/fd.h"
#include "control/client.h"
#include "control/tokens.h"

namespace ina::switchd {

namespace request = control::request;
namespace answer = control::answer;

namespace {

constexpr Nanos kMsNs = 1'000'000;
/// Of one attempt to connect, and between two.
constexpr Nanos kAttemptNs = 500 * kMsNs;
constexpr Nanos kPauseNs = 200 * kMsNs;

control::Trust trust_of(const config::UplinkConfig& config) {
  return {.tls = {.files = config.tls, .name = {}}, .user = std::nullopt};
}

Result<void> send(const control::Connection& connection, const control::Request& said) {
  return connection.send_text(control::to_text(said.message, said.channel));
}

}  // namespace

/// The thread's state.
class Uplink::Line {
 public:
  Line(config::UplinkConfig config, ConductorEvent& rings)
      : config_(std::move(config)),
        rings_(rings),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void stop();
  void open(request::Message first, Nanos patience_ns);
  void say(control::Request said);
  std::optional<Event> next();
  void run();

 private:
  struct Order {
    request::Message first;
    Nanos deadline = 0;
  };
  void serve(const Order& order);
  Result<control::Connection> connect(const Order& order);
  void pause();
  Result<void> exchange(const control::Connection& connection);
  std::optional<Order> next_order();
  std::vector<control::Request> take_unsaid();
  void report(Event event);
  Result<request::Message> with_token(request::Message message) const;

  const config::UplinkConfig config_;
  ConductorEvent& rings_;
  const Fd wake_;
  bool again_ = false;  ///< not the first order
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable ordered_;
  // Under mutex_.
  std::optional<Order> order_;
  std::vector<control::Request> unsaid_;
  std::deque<Event> events_;
};

Uplink::Uplink(config::UplinkConfig config, ConductorEvent& rings)
    : line_(std::make_shared<Line>(std::move(config), rings)) {
  std::thread([line = line_] { line->run(); }).detach();
}

Uplink::~Uplink() {
  line_->stop();
}

void Uplink::open(request::Message first, Nanos patience_ns) {
  line_->open(std::move(first), patience_ns);
}

void Uplink::say(request::Message message, std::optional<uint32_t> channel) {
  line_->say({channel, std::move(message)});
}

std::optional<Uplink::Event> Uplink::next() {
  return line_->next();
}

void Uplink::Line::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ordered_.notify_one();
  ring_event(wake_.get());
}

void Uplink::Line::open(request::Message first, Nanos patience_ns) {
  {
    const std::lock_guard lock(mutex_);
    order_ = {std::move(first), now_ns() + patience_ns};
    unsaid_.clear();
    events_.clear();
  }
  ordered_.notify_one();
  ring_event(wake_.get());
}

void Uplink::Line::say(control::Request said) {
  {
    const std::lock_guard lock(mutex_);
    unsaid_.push_back(std::move(said));
  }
  ring_event(wake_.get());
}

std::optional<Uplink::Event> Uplink::Line::next() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Uplink::Line::run() {
  for (; const auto order = next_order(); again_ = true) serve(*order);
}

/// Nothing: it is to stop.
std::optional<Uplink::Line::Order> Uplink::Line::next_order() {
  std::unique_lock lock(mutex_);
  ordered_.wait(lock, [this] { return stopping_ || order_; });
  if (stopping_) return std::nullopt;
  return std::exchange(order_, std::nullopt);
}

void Uplink::Line::serve(const Order& order) {
  auto connection = connect(order);
  Result<void> ended = connection ? exchange(*connection) : tl::unexpected(connection.error());
  if (!ended) report(Lost{ended.error().status, ended.error().text});
}

Result<control::Connection> Uplink::Line::connect(const Order& order) {
  for (bool first = true;; first = false) {
    // Also before the first attempt of another order: the last one may have been refused.
    if (!first || again_) pause();
    if (stopping_) return fail(INA_ERR_SWITCH_LOST, "the job has ended");
    auto connection = control::Connection::open(
        config_.url, std::min(kAttemptNs, order.deadline - now_ns()), trust_of(config_), 0);
    if (connection) {
      const auto message = with_token(order.first);
      if (!message) return tl::unexpected(message.error());
      auto said = control::say(*connection, *message);
      if (said) return connection;
      connection = tl::unexpected(said.error());
    }
    if (connection.error().status == INA_ERR_REFUSED || now_ns() + kPauseNs >= order.deadline)
      return connection;
    if (first) report(Failed{connection.error().text});
  }
}

/// Between two attempts; shorter if it is to stop.
void Uplink::Line::pause() {
  drain_event(wake_.get());
  if (stopping_) return;
  pollfd woken{wake_.get(), POLLIN, 0};
  ::poll(&woken, 1, static_cast<int>(kPauseNs / kMsNs));
}

/// Until the connection ends, which is an error, or there is another order, or none is wanted.
Result<void> Uplink::Line::exchange(const control::Connection& connection) {
  for (;;) {
    drain_event(wake_.get());
    if (stopping_) {
      for (const control::Request& said : take_unsaid()) (void)send(connection, said);
      return {};
    }
    for (const control::Request& said : take_unsaid())
      if (auto sent = send(connection, said); !sent) return sent;
    for (;;) {
      auto heard = control::hear(connection, 0);
      if (!heard) return tl::unexpected(heard.error());
      if (!*heard) break;
      report(control::Answer{(*heard)->channel, std::move((*heard)->message)});
    }
    {
      const std::lock_guard lock(mutex_);
      if (order_) return {};
    }
    pollfd fds[2] = {{connection.fd(), connection.events(), 0}, {wake_.get(), POLLIN, 0}};
    ::poll(fds, 2, 1000);
  }
}

std::vector<control::Request> Uplink::Line::take_unsaid() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unsaid_, {});
}

void Uplink::Line::report(Event event) {
  const std::lock_guard lock(mutex_);
  // It is about a connection that is none any more, or nobody is there to hear of it.
  if (order_ || stopping_) return;
  events_.push_back(std::move(event));
  rings_.ring();
}

/// The file is read each time: a new token needs no restart.
Result<request::Message> Uplink::Line::with_token(request::Message message) const {
  if (config_.token_file.empty()) return message;
  const auto token = control::own_token([this](const char* name) {
    return std::string_view(name) == "INA_TOKEN_FILE" ? config_.token_file.c_str() : nullptr;
  });
  if (!token)
    return fail(INA_ERR_REFUSED, fmt::format("uplink.token_file: {}", token.error().text));
  if (auto* join = std::get_if<request::Join>(&message)) join->member.token = *token;
  if (auto* rejoin = std::get_if<request::Rejoin>(&message)) rejoin->member.token = *token;
  return message;
}

}  // namespace ina::switchd
