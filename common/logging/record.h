// A line of the log. Its event and the names of its values are literals, and every value is quoted
// and escaped (common/logging/escape.h). So a text of foreign origin can only be a value. No other
// code writes to spdlog; scripts/check_logs.sh checks that.
#pragma once

#include <fmt/format.h>
#include <spdlog/common.h>

#include <string>
#include <string_view>
#include <utility>

#include "common/logging/rate_limit.h"
#include "common/result.h"

namespace ina::logging {

/// A text that stands in the source.
class Literal {
 public:
// Clang 14 does not destroy the record of a statement in which a consteval constructor is called.
#if defined(__clang__) && __clang_major__ < 17
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Literal(const char* text) : text_(text) {}
#else
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval Literal(const char* text) : text_(text) {}
#endif
  constexpr std::string_view text() const {
    return text_;
  }

 private:
  std::string_view text_;
};

/// Written when it is destroyed: `info("job admitted", owner)("job", name)("workers", 4);`
class Record {
 public:
  /// `source`: by whose act it comes to be, a user or an address; the number of its lines is
  /// limited. Empty: by nobody's but the operator's and the program's own.
  Record(spdlog::level::level_enum level, Literal event, std::string_view source = {});
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();

  Record& operator()(Literal key, std::string_view value);
  Record& operator()(Literal key, const char* value) {
    return (*this)(key, std::string_view(value));
  }
  Record& operator()(Literal key, const std::string& value) {
    return (*this)(key, std::string_view(value));
  }
  Record& operator()(Literal key, bool value) { return (*this)(key, value ? "true" : "false"); }
  /// A status by its name.
  Record& operator()(Literal key, ina_status status);
  template <class Number>
  requires std::is_arithmetic_v<Number> Record& operator()(Literal key, Number value) {
    return wanted_ ? (*this)(key, std::string_view(fmt::format("{}", value))) : *this;
  }

 private:
  spdlog::level::level_enum level_;
  bool wanted_;
  std::string line_;
};

inline Record info(Literal event, std::string_view source = {}) {
  return Record(spdlog::level::info, event, source);
}
inline Record warn(Literal event, std::string_view source = {}) {
  return Record(spdlog::level::warn, event, source);
}
inline Record error(Literal event, std::string_view source = {}) {
  return Record(spdlog::level::err, event, source);
}
inline Record critical(Literal event) {
  return Record(spdlog::level::critical, event);
}

/// Says how many records were left out, if that was not said lately. To be called now and then.
void report_omitted(Nanos now);

}  // namespace ina::logging
