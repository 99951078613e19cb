// A line of the log. Its event and the names of its values are literals, and every value is quoted
// and escaped (common/logging/escape.h). So a text of foreign origin can only be a value. No other
// code writes to spdlog; scripts/check_logs.sh checks that.
#pragma once

#include <fmt/format.h>
#include <spdlog/common.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/log_format.h"
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

/// True if a value may have this name: one that journal_field() makes a field's, and not one of the
/// members that every line has in JSON.
constexpr bool is_key(std::string_view name) {
  for (const char c : name)
    if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.') return false;
  return !name.empty() && name != "time" && name != "level" && name != "message";
}

/// The name of a value: a literal, too.
class Key : public Literal {
 public:
#if defined(__clang__) && __clang_major__ < 17
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Key(const char* text)
      : Literal(text){
#else
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval Key(const char* text) : Literal(text) {
#endif
            if (!is_key(text)) throw "no name for a value";  // does not compile
}
};  // namespace ina::logging

/// Sets the format of the process, before there are threads that write; until then it is text.
void set_format(LogFormat format);
/// The spdlog pattern of this format, with time and level. kJournal: journald has both.
std::string pattern_of(LogFormat format);

/// Written when it is destroyed: `info("job admitted", owner)("job", name)("workers", 4);`
class Record {
 public:
  /// `source`: by whose act it comes to be, a user or an address; the number of its lines is
  /// limited. Empty: by nobody's but the operator's and the program's own.
  Record(spdlog::level::level_enum level, Literal event, std::string_view source = {});
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();

  Record& operator()(Key key, std::string_view value) { return add(key, value, true); }
  Record& operator()(Key key, const char* value) { return (*this)(key, std::string_view(value)); }
  Record& operator()(Key key, const std::string& value) {
    return (*this)(key, std::string_view(value));
  }
  Record& operator()(Key key, bool value) { return add(key, value ? "true" : "false", false); }
  /// A status by its name.
  Record& operator()(Key key, ina_status status);
  template <class Number>
  requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, char>) Record& operator()(
      Key key, Number value) {
    return wanted_ ? add(key, fmt::format("{}", value), !std::isfinite(value)) : *this;
  }

 private:
  /// `is_text`: JSON wants quotes around it.
  Record& add(Key key, std::string_view value, bool is_text);

  spdlog::level::level_enum level_;
  bool wanted_;
  std::string line_;
  std::vector<std::string> fields_;  ///< of journald, if it gets the record
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
