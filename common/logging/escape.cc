#include "common/logging/escape.h"

#include <cstdint>

namespace ina::logging {

namespace {

/// Bytes of the UTF-8 sequence that `text` begins with; 0: there is none.
size_t sequence_bytes(std::string_view text) {
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

/// Control characters, and those that turn a terminal's or a reader's line about.
bool is_harmful(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(sequence[i]); };
  if (sequence.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (sequence.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;  // U+0080..U+009F
  if (sequence.size() != 3 || byte(0) != 0xe2) return false;
  if (byte(1) == 0x80) return byte(2) >= 0xa8 && byte(2) <= 0xae;  // U+2028..U+202E
  return byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9;    // U+2066..U+2069
}

void append_bytes_as_hex(std::string& line, std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    line += "\\x";
    line += kDigits[byte >> 4];
    line += kDigits[byte & 15];
  }
}

/// Of a sequence of one to three bytes.
uint32_t code_point_of(std::string_view sequence) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(sequence[i]));
  };
  if (sequence.size() == 1) return byte(0);
  if (sequence.size() == 2) return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
  return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
}

void append_code_point(std::string& line, uint32_t code_point) {
  constexpr char kDigits[] = "0123456789abcdef";
  line += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) line += kDigits[code_point >> shift & 15];
}

}  // namespace

void append_escaped(std::string& line, std::string_view value, Escapes escapes) {
  const size_t begin = line.size();
  while (!value.empty()) {
    if (line.size() - begin >= kMaxValueBytes) {
      line += "...";
      return;
    }
    const size_t bytes = sequence_bytes(value);
    const std::string_view sequence = value.substr(0, bytes == 0 ? 1 : bytes);
    const bool harmful = bytes == 0 || is_harmful(sequence);
    if (harmful && escapes == Escapes::kJson)
      append_code_point(line, bytes == 0 ? 0xfffd : code_point_of(sequence));
    else if (harmful)
      append_bytes_as_hex(line, sequence);
    else if (sequence == "\"" || sequence == "\\")
      (line += '\\') += sequence;
    else
      line += sequence;
    value.remove_prefix(sequence.size());
  }
}

}  // namespace ina::logging
