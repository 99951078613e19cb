#include "common/logging/record.h"

#include <spdlog/spdlog.h>

#include <mutex>

#include "common/clock.h"
#include "common/logging/escape.h"
#include "common/status_name.h"

namespace ina::logging {

namespace {

// Between two reports of what was left out.
constexpr Nanos kReportNs = 10'000'000'000;

/// Of the process: its threads share one log.
struct Shared {
  std::mutex mutex;
  RateLimit limit;
  Nanos reported = 0;
};

Shared& shared() {
  static auto* const instance = new Shared;
  return *instance;
}

bool is_admitted(std::string_view source, std::string_view event) {
  if (source.empty()) return true;
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  return state.limit.admit(source, event, now_ns());
}

}  // namespace

Record::Record(spdlog::level::level_enum level, Literal event, std::string_view source)
    : level_(level),
      wanted_(spdlog::should_log(level) && is_admitted(source, event.text())),
      line_(wanted_ ? event.text() : std::string_view()) {}

Record::~Record() {
  if (wanted_) spdlog::log(level_, std::string_view(line_));
}

Record& Record::operator()(Literal key, std::string_view value) {
  if (!wanted_) return *this;
  line_ += ' ';
  line_ += key.text();
  line_ += "=\"";
  append_escaped(line_, value);
  line_ += '"';
  return *this;
}

Record& Record::operator()(Literal key, ina_status status) {
  return (*this)(key, std::string_view(name_of(status)));
}

void report_omitted(Nanos now) {
  Shared& state = shared();
  std::vector<RateLimit::Omitted> omitted;
  {
    const std::lock_guard lock(state.mutex);
    if (now - state.reported < kReportNs) return;
    state.reported = now;
    omitted = state.limit.take_omitted();
    state.limit.forget_silent(now);
  }
  for (const RateLimit::Omitted& one : omitted)
    warn("records left out")("source", one.source)("event", one.event)("records", one.records);
}

}  // namespace ina::logging
