// Text of foreign origin (names of jobs, hosts, users and files), as it may be shown. All places
// that show such text use this function, so that they agree about the characters that mislead.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ina {

/// The characters that a text begins with: bytes of its first UTF-8 sequence; 0: there is none.
constexpr size_t utf8_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, and numbers beyond Unicode.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return bytes;
}

/// The code point that a whole sequence stands for.
constexpr uint32_t code_point_of(std::string_view sequence) {
  uint32_t code = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() > 1) code &= 0x7fu >> sequence.size();
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<uint8_t>(c) & 0x3f);
  return code;
}

/// Characters that change what a reader sees without being seen: those of Unicode's categories Cc
/// (control), Cf (format, such as those that turn the direction of a line), Zl and Zp (ends of
/// lines), and letters and marks that are drawn as nothing.
constexpr bool is_misleading(uint32_t code_point) {
  struct Range {
    uint32_t first, last;
  };
  constexpr std::array kRanges = {
      Range{0x00, 0x1f},       Range{0x7f, 0x9f},       Range{0xad, 0xad},
      Range{0x34f, 0x34f},     Range{0x600, 0x605},     Range{0x61c, 0x61c},
      Range{0x6dd, 0x6dd},     Range{0x70f, 0x70f},     Range{0x890, 0x891},
      Range{0x8e2, 0x8e2},     Range{0x115f, 0x1160},   Range{0x17b4, 0x17b5},
      Range{0x180b, 0x180f},   Range{0x200b, 0x200f},   Range{0x2028, 0x202e},
      Range{0x2060, 0x206f},   Range{0x3164, 0x3164},   Range{0xfe00, 0xfe0f},
      Range{0xfeff, 0xfeff},   Range{0xffa0, 0xffa0},   Range{0xfff0, 0xfffb},
      Range{0x110bd, 0x110bd}, Range{0x110cd, 0x110cd}, Range{0x13430, 0x1343f},
      Range{0x1bca0, 0x1bca3}, Range{0x1d173, 0x1d17a}, Range{0xe0000, 0xe0fff}};
  return std::ranges::any_of(kRanges, [code_point](const Range& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

/// True if the first sequence of `text`, of `bytes` bytes (utf8_bytes), may be shown as it is.
constexpr bool may_be_shown(std::string_view text, size_t bytes) {
  return bytes != 0 && !is_misleading(code_point_of(text.substr(0, bytes)));
}

/// One line of UTF-8 for any bytes: `\x1b` stands for a control character of ASCII, and for a byte
/// that is no UTF-8; `\u202e` for another character that misleads. `kept` may stand as they are.
inline std::string printable(std::string_view text, std::string_view kept = "") {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_bytes(text);
    const std::string_view sequence = text.substr(0, std::max<size_t>(1, bytes));
    text.remove_prefix(sequence.size());
    if (may_be_shown(sequence, bytes) || kept.find(sequence) != std::string_view::npos) {
      out += sequence;
      continue;
    }
    const uint32_t code = bytes == 0 ? static_cast<uint8_t>(sequence[0]) : code_point_of(sequence);
    const bool one_byte = sequence.size() == 1;
    out += one_byte ? "\\x" : code > 0xffff ? "\\U" : "\\u";
    for (int shift = one_byte ? 4 : code > 0xffff ? 28 : 12; shift >= 0; shift -= 4)
      out += kDigits[code >> shift & 15];
  }
  return out;
}

}  // namespace ina
