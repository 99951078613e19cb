// Where the results of a job go: into a ring of rows, or straight to where its users want them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "aggregator/divider.h"
#include "wire/message.h"

namespace ina::aggregator {

/// Memory of a job that its workers map read-only, and into which results go straight to where
/// their users want them (wire::Message::target). Addressed in units of wire::kTargetUnitBytes.
struct ResultBuffer {
  uint32_t first_unit = 0;
  uint32_t units = 0;
  std::byte* memory = nullptr;
};
inline constexpr size_t kMaxResultBuffers = 32;  ///< of a job

class ResultMemory {
 public:
  ResultMemory() = default;
  /// `ring`: 2 `window` rows of `slot_bytes`. `marks`: as many zeros as fragments are remembered;
  /// needed with result buffers only.
  ResultMemory(std::byte* ring, uint32_t window, uint32_t slot_bytes, uint64_t* marks)
      : ring_(ring), rows_(2 * uint64_t{window}), slot_bytes_(slot_bytes), marks_(marks) {}

  /// At most kMaxResultBuffers, whose units do not overlap.
  void add(const ResultBuffer& buffer) { buffers_[count_++] = buffer; }
  void remove(uint32_t first_unit) {
    const auto end = buffers_.begin() + count_;
    const auto found = std::find_if(buffers_.begin(), end, [&](const ResultBuffer& buffer) {
      return buffer.first_unit == first_unit;
    });
    if (found == end) return;
    *found = *(end - 1);
    --count_;
  }

  /// `target`: as wire::Message has it. nullptr: it is not within one of the result buffers.
  std::byte* place(Seq seq, uint32_t target, uint32_t bytes) const {
    if (target != 0) [[unlikely]]
      return in_buffers(target - 1, bytes);
    return ring_ + rows_.remainder(seq.value) * slot_bytes_;
  }
  std::byte* in_buffers(uint32_t unit, uint32_t bytes) const {
    for (const ResultBuffer& buffer : std::span(buffers_).first(count_)) {
      const uint32_t at = unit - buffer.first_unit;  // wraps below the buffer
      const uint64_t begin = uint64_t{at} * wire::kTargetUnitBytes;
      if (at < buffer.units && begin + bytes <= uint64_t{buffer.units} * wire::kTargetUnitBytes)
        return buffer.memory + begin;
    }
    return nullptr;
  }
  /// Notes that this fragment's result is in its result buffer. True: it was noted before, and the
  /// buffer may by now hold another's. `entry`: ReplayWindow::index() of the fragment.
  bool place_once(size_t entry, Seq seq) {
    const uint64_t mark = seq.value + 1;
    return std::exchange(marks_[entry], mark) == mark;
  }

 private:
  std::byte* ring_ = nullptr;
  Divider rows_;
  uint32_t slot_bytes_ = 0;
  uint32_t count_ = 0;
  uint64_t* marks_ = nullptr;
  std::array<ResultBuffer, kMaxResultBuffers> buffers_{};
};

}  // namespace ina::aggregator
