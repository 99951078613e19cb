#include "common/logging/escape.h"

#include <cstdint>

#include "common/printable.h"

namespace ina::logging {

namespace {

void append_bytes_as_hex(std::string& line, std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    line += "\\x";
    line += kDigits[byte >> 4];
    line += kDigits[byte & 15];
  }
}

/// JSON has no more than 16 bits in one: two stand for a larger one.
void append_for_json(std::string& line, uint32_t code_point) {
  const auto append = [&line](uint32_t unit) {
    constexpr char kDigits[] = "0123456789abcdef";
    line += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) line += kDigits[unit >> shift & 15];
  };
  if (code_point <= 0xffff) return append(code_point);
  append(0xd7c0 + (code_point >> 10));
  append(0xdc00 | (code_point & 0x3ff));
}

}  // namespace

void append_escaped(std::string& line, std::string_view value, Escapes escapes) {
  const size_t begin = line.size();
  while (!value.empty()) {
    if (line.size() - begin >= kMaxValueBytes) {
      line += "...";
      return;
    }
    const size_t bytes = utf8_bytes(value);
    const std::string_view sequence = value.substr(0, bytes == 0 ? 1 : bytes);
    const bool harmful = !may_be_shown(value, bytes);
    if (harmful && escapes == Escapes::kJson)
      append_for_json(line, bytes == 0 ? 0xfffd : code_point_of(sequence));
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
