// A sign that workers send faster than their frames are handled, so that the device's queue grows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ina::io {

/// Workers must not give way to others' traffic, which does not give way to theirs: only a backlog
/// of their own frames makes them send less.
class Backlog {
 public:
  /// A burst of up to `room` frames brought `received`, of which `messages` were workers'. `full`:
  /// there may be more where they came from.
  void burst(uint32_t room, size_t received, size_t messages, bool full) {
    largest_burst_ = std::max(largest_burst_, room);
    frames_ = full && 4 * messages >= 3 * received ? frames_ + room : 0;
  }
  bool congested() const { return frames_ >= kCongestedBursts * largest_burst_; }

 private:
  static constexpr uint32_t kCongestedBursts = 4;

  uint32_t largest_burst_ = 1;
  uint64_t frames_ = 0;  ///< nearly all workers' messages, since the queue was last empty
};

}  // namespace ina::io
