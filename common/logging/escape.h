// The form of a value in the log: within quotes, on one line, and never longer than a bound, for
// any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ina::logging {

/// Most bytes of a value that are written, as escaped; a longer value ends in "...".
inline constexpr size_t kMaxValueBytes = 2048;

/// The replacement of what may not stand in a line: characters that mislead (common/printable.h),
/// and bytes that are no UTF-8. kHex: \xNN for each byte. kJson: \uNNNN, and U+FFFD for a byte that
/// is no UTF-8.
enum class Escapes : uint8_t { kHex, kJson };

/// Appends `value` to `line`: quotes and backslashes get a backslash.
void append_escaped(std::string& line, std::string_view value, Escapes escapes = Escapes::kHex);

}  // namespace ina::logging
