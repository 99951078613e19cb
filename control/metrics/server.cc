#include "control/metrics/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "common/logging/record.h"
#include "control/metrics/families.h"

namespace ina::metrics {

namespace {

using prometheus::MetricFamily;

/// A snapshot serves everybody who asks this soon after it.
constexpr Nanos kFreshNs = 50'000'000;
/// How long the conductor may take.
constexpr Nanos kAnswerNs = 2'000'000'000;

MetricFamily answers_family(bool answers) {
  MetricFamily family;
  family.name = "ina_switch_answers";
  family.help = "1 if the switch told its figures in time; otherwise there are no others.";
  family.type = prometheus::MetricType::Gauge;
  family.metric.emplace_back().gauge.value = answers ? 1 : 0;
  return family;
}

/// The figures, from one snapshot for all who ask at the same time.
class Figures final : public prometheus::Collectable {
 public:
  Figures(size_t most_jobs, admin::Queue& queue) : queue_(queue), families_(most_jobs) {}

  std::vector<MetricFamily> Collect() const override try {
    const std::lock_guard lock(mutex_);
    if (!last_.empty() && now_ns() - made_ < kFreshNs) return last_;
    last_.clear();
    const admin::Answer answer = queue_.ask(admin::GetCounters{}, "metrics", kAnswerNs);
    if (!answer) return {answers_family(false)};
    made_ = now_ns();
    last_ = families_.collect(*answer, made_);
    last_.push_back(answers_family(true));
    return last_;
  } catch (const std::exception& error) {
    // The callers are C.
    logging::warn("metrics", "metrics")("text", error.what());
    return {answers_family(false)};
  }

 private:
  admin::Queue& queue_;
  mutable std::mutex mutex_;  ///< what follows
  mutable Families families_;
  mutable std::vector<MetricFamily> last_;
  mutable Nanos made_ = 0;
};

class HttpServer final : public Server {
 public:
  HttpServer(const ServerConfig& config, admin::Queue& queue)
      : figures_(std::make_shared<Figures>(config.most_jobs, queue)),
        address_(config.listen.substr(0, config.listen.rfind(':'))) {
    exposer_.emplace(options(config));
    exposer_->RegisterCollectable(figures_);
  }
  /// Civetweb looks whether to stop when somebody connects, or after two seconds. The next switch
  /// waits for the end of this one.
  ~HttpServer() override {
    const uint16_t own_port = port();
    std::atomic<bool> stopped{false};
    std::thread stopper([&] {
      exposer_.reset();
      stopped = true;
    });
    while (!stopped) {
      connect_to(own_port);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    stopper.join();
  }

  uint16_t port() const override {
    return static_cast<uint16_t>(exposer_->GetListeningPorts().front());
  }

 private:
  /// And no more; of an IPv6 address nothing.
  void connect_to(uint16_t own_port) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(own_port);
    if (::inet_pton(AF_INET, address_.c_str(), &to.sin_addr) != 1) return;
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  }

  /// Civetweb's. Whoever connects can have so much of the switch, and no more: the requests of four
  /// connections at a time, 16 KiB and 1 s each, and 20 connections that wait. The end waits for
  /// those that are served.
  static std::vector<std::string> options(const ServerConfig& config) {
    return {"listening_ports",    config.listen, "num_threads",      "4",
            "request_timeout_ms", "1000",        "max_request_size", "16384"};
  }

  std::shared_ptr<Figures> figures_;
  std::string address_;
  std::optional<prometheus::Exposer> exposer_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerConfig& config, admin::Queue& queue) try {
  return std::make_unique<HttpServer>(config, queue);
} catch (const std::exception& error) {
  return fail(INA_ERR_INVALID,
              fmt::format("cannot listen on {} (metrics.listen): {}", config.listen, error.what()));
}

}  // namespace ina::metrics
