// Tables and lines for a terminal, no wider than that.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/printable.h"

namespace ina {

/// Columns of a terminal that a character takes: East Asian ones and emoji two, combining ones
/// none.
constexpr size_t columns_of(uint32_t code_point) {
  const auto in = [code_point](uint32_t first, uint32_t last) {
    return first <= code_point && code_point <= last;
  };
  if (in(0x300, 0x36f) || in(0x1ab0, 0x1aff) || in(0x20d0, 0x20ff)) return 0;
  const bool wide = in(0x1100, 0x115f) || in(0x2e80, 0xa4cf) || in(0xac00, 0xd7a3) ||
                    in(0xf900, 0xfaff) || in(0xfe30, 0xfe6f) || in(0xff00, 0xff60) ||
                    in(0xffe0, 0xffe6) || in(0x1f300, 0x1faff) || in(0x20000, 0x3fffd);
  return wide ? 2 : 1;
}

/// Columns that a whole text in UTF-8 takes.
constexpr size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const size_t bytes = std::max<size_t>(1, utf8_bytes(text));
    columns += columns_of(code_point_of(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
  return columns;
}

/// The text, or as much of its begin as leaves room for an ellipsis behind it. `width` is not 0.
inline std::string shortened(std::string_view text, size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  size_t bytes = 0, columns = 0;
  for (;;) {
    const size_t next = std::max<size_t>(1, utf8_bytes(text.substr(bytes)));
    columns += columns_of(code_point_of(text.substr(bytes, next)));
    if (columns + 1 > width) return std::string(text.substr(0, bytes)) + "…";
    bytes += next;
  }
}

namespace detail {

/// Bytes of the begin of `text` that fill at most `width` columns, but one character at least.
constexpr size_t bytes_within(std::string_view text, size_t width) {
  size_t bytes = 0, columns = 0;
  while (bytes < text.size()) {
    const size_t next = std::max<size_t>(1, utf8_bytes(text.substr(bytes)));
    columns += columns_of(code_point_of(text.substr(bytes, next)));
    if (columns > width && bytes != 0) break;
    bytes += next;
  }
  return bytes;
}

/// A word that is longer than a line is broken, too.
inline void append_wrapped(std::string& out, std::string_view line, size_t width) {
  const size_t text = std::min(line.find_first_not_of(" -"), line.size());
  const size_t indent = std::min(text + 2, width / 2);
  size_t before = 0;  // columns that stand before `line` already
  while (before + columns_of(line) > width) {
    const size_t whole = bytes_within(line, width - before);
    const size_t blank = line.substr(0, whole + 1).find_last_of(' ');
    const bool at_blank = blank != std::string_view::npos && line.find_first_not_of(" -") < blank;
    (out += line.substr(0, at_blank ? blank : whole)) += "\n" + std::string(indent, ' ');
    line.remove_prefix(at_blank ? blank + 1 : whole);
    before = indent;
  }
  out += line;
}

}  // namespace detail

/// Lines of more columns than `width` are broken, at blanks if they have some; what follows stands
/// two columns farther in than their text. 0: any width will do.
inline std::string wrapped(std::string_view text, size_t width) {
  if (width == 0) return std::string(text);
  std::string out;
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
    detail::append_wrapped(out, text.substr(0, end), width);
    out += "\n";
    text.remove_prefix(end + 1);
  }
  detail::append_wrapped(out, text, width);
  return out;
}

/// Columns as wide as their widest cell; those named in `left` are texts, aligned left, the others
/// numbers, aligned right.
class TextTable {
 public:
  TextTable(std::vector<std::string> heading, std::vector<bool> left)
      : left_(std::move(left)), rows_{std::move(heading)} {}

  /// Columns that a narrow terminal does without: the first of them first.
  void set_expendable(std::vector<size_t> columns) { expendable_ = std::move(columns); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }

  /// A line for each row, the heading first. No line has more columns than `width`: texts are
  /// shortened, and end in an ellipsis. 0: any width will do.
  std::string str(size_t width = 0) const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
    if (width != 0) fit(widths, width);
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) append(line, row[i], widths[i], left_[i]);
      line.erase(line.find_last_not_of(' ') + 1);
      out += (width != 0 ? shortened(line, width) : line) + "\n";
    }
    return out;
  }

 private:
  static constexpr size_t kGap = 2;
  static constexpr size_t kLeastText = 12;

  static size_t sum(const std::vector<size_t>& widths) {
    size_t columns = 0;
    for (const size_t width : widths)
      if (width != 0) columns += width + (columns == 0 ? 0 : kGap);
    return columns;
  }

  /// 0: the column is left out.
  void fit(std::vector<size_t>& widths, size_t width) const {
    std::vector<size_t> least = widths;
    for (size_t i = 0; i < widths.size(); ++i)
      if (left_[i]) least[i] = std::min(widths[i], std::max(kLeastText, columns_of(rows_[0][i])));
    for (const size_t column : expendable_)
      if (sum(least) > width) widths[column] = least[column] = 0;
    while (sum(widths) > width) {
      size_t widest = widths.size();
      for (size_t i = 0; i < widths.size(); ++i)
        if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest]))
          widest = i;
      if (widest == widths.size()) return;
      --widths[widest];
    }
  }

  static void append(std::string& line, const std::string& cell, size_t width, bool left) {
    if (width == 0) return;
    const std::string text = shortened(cell, width);
    const std::string padding(width - columns_of(text), ' ');
    if (!line.empty()) line.append(kGap, ' ');
    line += left ? text + padding : padding + text;
  }

  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> expendable_;
};

}  // namespace ina
