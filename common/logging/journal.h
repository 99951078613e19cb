// Records for journald, with fields of their own.
#pragma once

#include <spdlog/common.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ina::logging {

/// Fails if no journal takes records here; the error says why, and names `setting`.
Result<void> find_journal(const std::string& setting = "log.format");

/// "FIELD=value", as journald takes it; the name is that of a record's value, in capitals, with _
/// for a point: log.file -> INA_LOG_FILE. Any bytes may be in the value, which ends in "..." after
/// kMaxValueBytes.
std::string journal_field(std::string_view key, std::string_view value);

/// `fields` besides the line and its priority. Records that journald does not take are lost.
void send_to_journal(spdlog::level::level_enum level, std::string_view line,
                     std::vector<std::string> fields) noexcept;

}  // namespace ina::logging
