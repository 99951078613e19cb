// Which cache lines of this process a part of it writes, by comparing memory before and after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ina::test {

/// Between before() and after() nothing may run but the part that is watched; neither allocates.
/// Only what changes is seen: a write of the value that was there already is not.
class WrittenLines {
 public:
  static constexpr size_t kLineBytes = 64;

  /// `own`: memory that the caller itself writes meanwhile. The main thread's stack counts as such.
  explicit WrittenLines(std::span<const std::byte> own);
  ~WrittenLines();
  WrittenLines(const WrittenLines&) = delete;
  WrittenLines& operator=(const WrittenLines&) = delete;

  void before();
  /// Counts lines that have changed as written by `writer`, which is less than 64.
  void after(uint32_t writer);

  /// Lines that a writer wrote.
  uint64_t written_by(uint32_t writer) const { return counts_[writer]; }
  /// Lines that several wrote: address, mapping and writers, one a line.
  std::vector<std::string> shared() const;
  /// False: there was more memory than there is room for, so that nothing is known.
  bool complete() const { return complete_; }

 private:
  struct Mapping {
    uintptr_t begin;
    uintptr_t end;
  };
  struct Page {
    uintptr_t address;
    const std::byte* copy;
  };
  struct Line {
    uintptr_t address;
    uint64_t writers;
  };

  void read_mappings();
  template <class Visit>
  void for_each_present_page(Visit visit);
  void compare(uintptr_t page, const std::byte* copy, uint32_t writer);
  void note(uintptr_t line, uint32_t writer);
  template <class T>
  std::span<T> reserve(size_t count);

  std::vector<Mapping> own_;
  std::vector<std::span<std::byte>> reserved_;
  int maps_ = -1;
  int pagemap_ = -1;
  std::span<Mapping> mappings_;
  size_t mapping_count_ = 0;
  std::span<Page> pages_;
  size_t page_count_ = 0;
  std::span<std::byte> copies_;
  std::span<Line> lines_;  ///< a hash table
  size_t line_count_ = 0;
  std::span<char> text_;
  uint64_t counts_[64] = {};
  bool complete_ = true;
};

}  // namespace ina::test
