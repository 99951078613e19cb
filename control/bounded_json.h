// JSON of a peer that may be long.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ina::control {

/// Values, keys, and ends of arrays and objects. A status of ten thousand jobs has as many. A short
/// text can have very many, and each takes tens of bytes.
inline constexpr size_t kMaxJsonParts = size_t{1} << 19;

/// Discarded: the text is no JSON, or has more parts than kMaxJsonParts.
inline nlohmann::json parse_bounded(std::string_view text) {
  struct TooMany {};
  size_t parts = 0;
  const auto count = [&parts](int, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (++parts > kMaxJsonParts) throw TooMany();
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), count, false);
  } catch (const TooMany&) {
    return nlohmann::json::value_t::discarded;
  }
}

}  // namespace ina::control
