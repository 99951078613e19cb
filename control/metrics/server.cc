#include "control/metrics/server.h"

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <mutex>
#include <vector>

#include "common/clock.h"
#include "control/metrics/families.h"
#include "control/metrics/http_server.h"
#include "control/metrics/page_files.h"
#include "control/metrics/snapshot.h"

namespace ina::metrics {

namespace {

using prometheus::MetricFamily;

/// A snapshot serves all requests that come this soon after it.
constexpr Nanos kFreshNs = 50'000'000;

MetricFamily answers_family(bool answers) {
  MetricFamily family;
  family.name = "ina_switch_answers";
  family.help = "1 if the switch told its figures in time; otherwise there are no others.";
  family.type = prometheus::MetricType::Gauge;
  family.metric.emplace_back().gauge.value = answers ? 1 : 0;
  return family;
}

/// The figures, from one snapshot for all who ask at the same time.
class Figures {
 public:
  Figures(size_t most_jobs, const CounterLists& counters, admin::Queue& queue)
      : queue_(queue), families_(most_jobs, counters) {}

  std::string text() {
    const std::lock_guard lock(mutex_);
    if (!last_.empty() && now_ns() - made_ < kFreshNs) return last_;
    last_.clear();
    const admin::Answer answer = queue_.ask(admin::Question::kCounters, kAnswerNs);
    if (!answer) return page({answers_family(false)});
    made_ = now_ns();
    std::vector<MetricFamily> families = families_.collect(*answer, made_);
    families.push_back(answers_family(true));
    last_ = page(families);
    return last_;
  }

 private:
  /// The last line shows that nothing is cut off; to readers of the text format it is a comment.
  std::string page(const std::vector<MetricFamily>& families) const {
    return serializer_.Serialize(families) + "# EOF\n";
  }

  admin::Queue& queue_;
  const prometheus::TextSerializer serializer_;
  std::mutex mutex_;  ///< of the following
  Families families_;
  std::string last_;
  Nanos made_ = 0;
};

/// The addresses, and their content.
class Site final : public Server {
 public:
  Site(const ServerConfig& config, admin::Queue& queue)
      : figures_(config.most_jobs, config.counters, queue),
        status_(queue, admin::Question::kStatus, now_ns),
        slots_(queue, admin::Question::kSlots, now_ns),
        page_(config.page),
        server_(config.listen, config.hosts, [this](std::string_view path) { return at(path); }) {}

  uint16_t port() const override { return server_.port(); }

 private:
  HttpAnswer at(std::string_view path) {
    if (path == "/metrics")
      return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = figures_.text()};
    if (!page_) return nothing();
    if (path == "/status.json") return json(status_);
    if (path == "/slots.json") return json(slots_);
    for (const PageFile& file : page_files())
      if (file.path == path) return {.type = file.type, .body = std::string(file.text)};
    return nothing();
  }
  static HttpAnswer json(Snapshot& snapshot) {
    auto text = snapshot.text();
    if (!text) return {.status = 503, .body = "the switch did not answer in time\n"};
    return {.type = "application/json", .body = std::move(*text)};
  }
  static HttpAnswer nothing() { return {.status = 404, .body = "there is nothing here\n"}; }

  Figures figures_;
  Snapshot status_;
  Snapshot slots_;
  const bool page_;
  HttpServer server_;  ///< the last: its threads use all others
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerConfig& config, admin::Queue& queue) try {
  return std::make_unique<Site>(config, queue);
} catch (const std::exception& error) {
  return fail(INA_ERR_INVALID,
              fmt::format("cannot listen on {} (metrics.listen): {}", config.listen, error.what()));
}

}  // namespace ina::metrics
