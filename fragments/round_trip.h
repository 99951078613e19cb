// Round trips of fragments (RFC 6298), and what they say of queues and of distance. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "wire/types.h"

namespace ina::client {

/// From a contribution to its result: holds waiting for other workers, too.
class RoundTrip {
 public:
  /// `clocked`: a result made room for the contribution, so that this worker was in step with the
  /// others. Only then does the round trip hold the distance of the farthest worker.
  void sample(Nanos rtt, Nanos now, bool clocked = true);
  /// Old samples say nothing about the next round trips. The shortest one is still possible.
  void forget() { smoothed_ = deviation_ = 0; }

  bool known() const { return smoothed_ != 0; }
  Nanos smoothed() const { return smoothed_; }
  Nanos shortest() const { return shortest_; }
  Nanos sampled_at() const { return sampled_at_; }
  /// Shortest of the last ones: standing queues make all of them wait.
  Nanos standing() const { return std::min(latest_, latest_before_); }
  /// A longer round trip is late: RFC 6298's time-out, without a floor. Round trips that are all
  /// long, because all wait in the same queue, hardly deviate: half of the shortest of them is
  /// added.
  Nanos late() const {
    if (!known()) return 0;
    return std::max(smoothed_ + 4 * deviation_, standing() / 2 * 3);
  }
  /// True if queues, not distance, take the time. Every packet that passes a queue waits in it. So
  /// the shortest of the last round trips tells, not their mean: the mean also holds other workers'
  /// losses, for which all wait, but with few fragments.
  bool in_queues() const { return standing() / kQueuedRoundTrips > shortest_; }
  /// True if what is under way waits for distance, and for hardly anything else: round trips are
  /// hardly longer than the shortest one that was clocked. Their mean tells: even where half of all
  /// fragments wait in the queue of a server, some do not.
  bool at_distance() const;

 private:
  /// A round trip of this many times the shortest has waited in queues.
  static constexpr Nanos kQueuedRoundTrips = 2;
  /// The last round trips: so many, to twice as many.
  static constexpr uint32_t kLatest = 16;

  Nanos smoothed_ = 0;
  Nanos deviation_ = 0;
  Nanos shortest_ = INT64_MAX;
  Nanos latest_ = INT64_MAX;  ///< shortest of the last `samples_`
  Nanos latest_before_ = INT64_MAX;
  uint32_t samples_ = 0;
  Nanos sampled_at_ = 0;
  Nanos clocked_ = INT64_MAX;  ///< shortest
};

}  // namespace ina::client
