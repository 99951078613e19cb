#include "common/logging/stderr_log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "common/logging/journal.h"
#include "common/logging/record.h"

namespace ina::logging {

Result<void> log_to_stderr(LogFormat format) {
  if (format == LogFormat::kJournal)
    if (auto journal = find_journal("--log-format"); !journal)
      return tl::unexpected(journal.error());
  auto logger = spdlog::stderr_color_mt("log");
  logger->set_pattern(pattern_of(format));
  spdlog::set_default_logger(std::move(logger));
  set_format(format);
  return {};
}

}  // namespace ina::logging
