// Tables for a terminal.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ina {

/// Columns as wide as their widest cell; those named in `left` aligned left, numbers right.
class TextTable {
 public:
  TextTable(std::vector<std::string> heading, std::vector<bool> left)
      : left_(std::move(left)), rows_{std::move(heading)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }

  /// A line for each row, the heading first.
  std::string str() const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - width_of(row[i]), ' ');
        if (i != 0) line += "  ";
        line += left_[i] ? row[i] + padding : padding + row[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  /// Characters, not bytes, of UTF-8.
  static size_t width_of(const std::string& cell) {
    return static_cast<size_t>(std::count_if(cell.begin(), cell.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
  }

  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ina
