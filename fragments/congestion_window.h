// The window for congestion: additive increase and multiplicative decrease by ECN marks and losses,
// with a slow start. At most one reduction per window: not for fragments below what was `next` to
// be sent at the last one. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fragments/round_trip.h"
#include "fragments/window_config.h"
#include "wire/types.h"

namespace ina::client {

class CongestionWindow {
 public:
  explicit CongestionWindow(const WindowConfig& config);

  uint64_t value() const { return window_; }
  /// It doubles with each round trip.
  bool in_slow_start() const { return eager_ == kWindowUnit; }

  /// A result came with a mark, or without one, when so many fragments were in the switch.
  void marked(Seq seq, Seq next) { reduce(seq, next, least_); }
  void unmarked(Seq seq, Seq next, uint32_t in_flight) {
    note_in_flight(in_flight);
    if (seq >= round_end_) end_round(next, in_flight);
    if (grows_)
      window_ = std::min(most_, window_ + std::max(eager_, kWindowUnit * kWindowUnit / window_));
  }
  void lost(Seq seq, Seq next, const RoundTrip& rtt);
  /// A result came.
  void delivered() { lost_share_ -= lost_share_ / kLossSamples; }
  /// So many fragments were under way, or would have been, but for the windows.
  void note_in_flight(uint32_t fragments) {
    most_in_flight_ = std::max(most_in_flight_, fragments);
  }
  /// From now on it grows by an eighth each round trip, no longer twice.
  void go_slower() { eager_ = std::min(eager_, kWindowUnit / 8); }

 private:
  /// Fewer losses, of so many contributions, do not come from a queue too short for the window.
  static constexpr uint64_t kLossSamples = 512;

  void end_round(Seq next, uint32_t in_flight);
  void reduce(Seq seq, Seq next, uint64_t least);

  uint64_t most_;
  uint64_t least_;
  uint64_t least_without_queues_;
  uint64_t window_;
  /// Growth for each result while nothing was lost or marked yet: a fragment in slow start.
  uint64_t eager_;
  uint64_t lost_share_ = 0;  ///< of the last contributions; kWindowUnit: all
  /// Within this round trip. A window grows only after a round trip that used it.
  uint32_t most_in_flight_ = 0;
  bool grows_ = true;
  Seq round_end_;
  Seq recovery_end_;  ///< fragments below it say nothing of the present window
};

}  // namespace ina::client
