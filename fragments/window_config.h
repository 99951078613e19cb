// The rules of a worker's windows, and the fixed point in which they are kept.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ina::client {

/// A fragment, in the windows' fixed point: one of W must still add something.
inline constexpr uint64_t kWindowUnit = 1 << 20;

/// A worker's share of what eight workers may have under way: `each` of up to eight.
inline uint32_t share_of(uint32_t each, uint32_t workers) {
  constexpr uint32_t kCrowd = 8;
  return std::clamp(kCrowd * each / std::max(1u, workers), 1u, each);
}

/// True if so much of a window is under way that there was room for the rest, too. Otherwise that
/// is not known.
inline bool is_window_used(uint64_t window, uint32_t in_flight) {
  constexpr uint64_t kUsed = 4;
  constexpr uint64_t kUsedOf = 5;
  return in_flight * kUsedOf > window / kWindowUnit * kUsed;
}

struct WindowConfig {
  uint32_t most = 1;  ///< fragments
  /// What all of them have under way may meet in one queue, of a server or of an uplink. So the
  /// first and the least windows are those of eight workers, shared out: share_of().
  uint32_t workers = 1;
  /// The window for congestion begins with so many fragments, and doubles each round trip until the
  /// first mark or loss. 0: with all.
  uint32_t first = 0;
  bool congestion = true;    ///< the window for congestion
  bool aggregators = false;  ///< the one for aggregators
  /// The window for aggregators begins with so many fragments, and doubles each round trip
  /// until the first fragment was split. 0: with all.
  uint32_t first_aggregators = 0;
  /// From a split until fragments sent after it come whole, no more is under way than a few
  /// times the results that come in the shortest round trip. The excess would wait in queues or
  /// slots, in the way of others. A worker that is merely slow splits nothing, and caps no
  /// other.
  bool capped = false;
  bool paced = false;  ///< sending as the windows allow is spread over the round trip
  /// The window for aggregators grows further only if that brings more results, and never unless it
  /// is used. Fragments that workers out of step have sent ahead of others would overrun the link
  /// of a server before the first split were known. 0: no limit. Nor is there one while frames are
  /// lost, but not in queues: recovery takes longer than distance.
  uint32_t ahead = 0;
  /// Workers may be at different distances: only_distance() counts.
  bool distances = false;
};

}  // namespace ina::client
