// The form of a value in the log: within quotes, on one line, and never longer than a bound, for
// any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ina::logging {

/// Most bytes of a value that are written, as escaped; what is longer ends in "...".
inline constexpr size_t kMaxValueBytes = 2048;

/// Appends `value` to `line`: quotes and backslashes get a backslash, control characters (also
/// those of two bytes, U+0080..U+009F) and what is no UTF-8 become \xNN.
void append_escaped(std::string& line, std::string_view value);

}  // namespace ina::logging
