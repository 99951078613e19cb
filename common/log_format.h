// The forms in which a log can be written.
#pragma once

#include <cstdint>

#include "wire/named.h"

namespace ina {

/// kText: a line with values as key="value". kJson: an object a line. kJournal: fields of journald.
enum class LogFormat : uint8_t { kText, kJson, kJournal };
inline constexpr Names<LogFormat, 3> kLogFormatNames = {
    {{"text", LogFormat::kText}, {"json", LogFormat::kJson}, {"journal", LogFormat::kJournal}}};

}  // namespace ina
