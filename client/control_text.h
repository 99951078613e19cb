// Messages of the switch on the control socket, put into words for a person.
#pragma once

#include <cstdio>
#include <string>

#include "common/result.h"
#include "control/socket.h"

namespace ina::client {

inline std::string seconds(Nanos ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", static_cast<double>(ns) * 1e-9);
  return text;
}

inline std::string rank_list(const control::Json& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + ranks[i].dump();
  return text;
}

/// Whom the switch says a job still waits for.
inline std::string missing_text(const control::Json& waiting) {
  const std::string fallback =
      waiting.value("fallback_missing", false) ? "the fallback server (ina-psd)" : "";
  if (waiting["missing"].empty()) return fallback;
  return rank_list(waiting["missing"]) + (fallback.empty() ? "" : " and " + fallback);
}

inline Error error_of(const control::Json& message) {
  return {static_cast<ina_status>(message.value("status", static_cast<int>(INA_ERR_INTERNAL))),
          message.value("text", std::string("the switch gave no reason"))};
}

}  // namespace ina::client
