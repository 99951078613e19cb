#include "common/logging/record.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>

#include "common/clock.h"
#include "common/logging/escape.h"
#include "common/logging/journal.h"
#include "common/status_name.h"

namespace ina::logging {

namespace {

// Between two reports of omitted records.
constexpr Nanos kReportNs = 10'000'000'000;

/// The state that the threads of the process share: they have one log.
struct Shared {
  std::mutex mutex;
  RateLimit limit;
  Nanos reported = 0;
};

Shared& shared() {
  static auto* const instance = new Shared;
  return *instance;
}

std::atomic<LogFormat> format_of_process{LogFormat::kText};

void append_json_string(std::string& line, std::string_view text) {
  line += '"';
  append_escaped(line, text, Escapes::kJson);
  line += '"';
}

bool is_admitted(std::string_view source, std::string_view event) {
  if (source.empty()) return true;
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  return state.limit.admit(source, event, now_ns());
}

}  // namespace

void set_format(LogFormat format) {
  format_of_process = format;
}

std::string pattern_of(LogFormat format) {
  constexpr std::string_view kTime = "%Y-%m-%dT%H:%M:%S.%f%z";
  if (format == LogFormat::kJson) return fmt::format(R"({{"time":"{}","level":"%l",%v}})", kTime);
  return fmt::format("{} %l %v", kTime);
}

Record::Record(spdlog::level::level_enum level, Literal event, std::string_view source)
    : level_(level), wanted_(spdlog::should_log(level) && is_admitted(source, event.text())) {
  if (!wanted_) return;
  const LogFormat format = format_of_process;
  if (format == LogFormat::kJson) {
    line_ = R"("message":)";
    append_json_string(line_, event.text());
    return;
  }
  line_ = event.text();
  if (format == LogFormat::kJournal) fields_.push_back(journal_field("record", event.text()));
}

Record::~Record() {
  if (!wanted_) return;
  if (fields_.empty())
    spdlog::log(level_, std::string_view(line_));
  else
    send_to_journal(level_, line_, std::move(fields_));
}

Record& Record::add(Key key, std::string_view value, bool is_text) {
  if (!wanted_) return *this;
  const LogFormat format = format_of_process;
  if (format == LogFormat::kJson) {
    line_ += ',';
    append_json_string(line_, key.text());
    line_ += ':';
    if (is_text)
      append_json_string(line_, value);
    else
      line_ += value;
    return *this;
  }
  if (format == LogFormat::kJournal) fields_.push_back(journal_field(key.text(), value));
  line_ += ' ';
  line_ += key.text();
  line_ += "=\"";
  append_escaped(line_, value);
  line_ += '"';
  return *this;
}

Record& Record::operator()(Key key, ina_status status) {
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
