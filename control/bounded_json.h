// JSON of a peer that may be long.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ina::control {

/// Values, keys, and ends of arrays and objects. A status of ten thousand jobs has half as many, as
/// has a trace of 4,096 packets of 64 workers. A short text can have very many, and each takes tens
/// of bytes.
inline constexpr size_t kMaxJsonParts = size_t{1} << 20;
/// Arrays and objects within each other.
inline constexpr int kMaxJsonDepth = 64;

/// Discarded: the text is no JSON, or has more parts than kMaxJsonParts or is deeper than
/// kMaxJsonDepth.
inline nlohmann::json parse_bounded(std::string_view text) {
  struct TooMany {};
  size_t parts = 0;
  const auto count = [&parts](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (++parts > kMaxJsonParts || depth > kMaxJsonDepth) throw TooMany();
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), count, false);
  } catch (const TooMany&) {
    return nlohmann::json::value_t::discarded;
  }
}

}  // namespace ina::control
