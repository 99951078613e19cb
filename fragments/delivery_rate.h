// The rate at which results come. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/types.h"

namespace ina::client {

/// How fast results come while something is under way: the best of the last intervals.
class DeliveryRate {
 public:
  /// A result came. `idle`: nothing else is under way. Whether an interval has ended.
  bool delivered(Nanos now, bool idle, Nanos shortest_round_trip) {
    if (results_++ == 0) began_ = now;
    const Nanos span = now - began_;
    const bool ended = span > 0 && span >= kIntervalRoundTrips * shortest_round_trip;
    if (ended)
      per_ns_[next_++ % kIntervals] = static_cast<double>(results_ - 1) / static_cast<double>(span);
    if (ended || idle) results_ = 0;
    return ended;
  }
  /// Results that come in a time so long. At least one interval has ended.
  uint64_t results_in(Nanos time) const;
  /// Until so many results have come. 0: nothing is known yet.
  Nanos time_of(uint64_t results) const;

 private:
  static constexpr Nanos kIntervalRoundTrips = 2;
  static constexpr size_t kIntervals = 8;

  Nanos began_ = 0;
  uint64_t results_ = 0;  ///< of the interval, its first one included; 0: none has begun
  std::array<double, kIntervals> per_ns_{};
  size_t next_ = 0;
};

}  // namespace ina::client
