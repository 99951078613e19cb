// Messages of the switch on the control socket, put into words for a person.
#pragma once

#include <cstdio>
#include <string>

#include "control/messages.h"
#include "wire/types.h"

namespace ina::membership {

/// How long a worker that gave up waits for the switch to say what it waited for.
inline constexpr Nanos kExplainNs = 1'000'000'000;
/// In place of what it says.
inline constexpr const char* kNoAnswer = "the switch does not answer";
/// For which a job waits, before the switch says which.
inline constexpr const char* kOtherRanks = "the other ranks";

inline std::string seconds(Nanos ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", static_cast<double>(ns) * 1e-9);
  return text;
}

/// The ranks for which a job still waits, by the switch's message.
inline std::string missing_text(const control::answer::Waiting& waiting) {
  const std::string fallback = waiting.fallback_missing ? "the fallback server (ina-psd)" : "";
  if (waiting.missing.empty()) return fallback;
  std::string text = waiting.missing.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < waiting.missing.size(); ++i)
    text += (i ? ", " : "") + std::to_string(waiting.missing[i]);
  if (waiting.more != 0) text += " and " + std::to_string(waiting.more) + " more";
  return text + (fallback.empty() ? "" : " and " + fallback);
}

}  // namespace ina::membership
