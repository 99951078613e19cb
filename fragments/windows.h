// The limits on fragments in the network, and the times at which they leave. Parts: round trips
// (RFC 6298), the windows for congestion (AIMD, by ECN marks and losses) and for aggregators (A2TP,
// EuroSys'23), the cap by the rate of delivery, and pacing. Pure, like the engine that uses it.
#pragma once

#include <algorithm>
#include <array>
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

/// How fast results come while something is under way: the best of the last intervals.
class DeliveryRate {
 public:
  /// A result came. `idle`: nothing else is under way. Whether an interval has ended.
  bool delivered(Nanos now, bool idle, Nanos shortest_round_trip);
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

/// At most one reduction per window: not for fragments below what was `next` to be sent at the last
/// one.
class Windows {
 public:
  /// The first window where nothing is known yet: little for any network. Others may already fill
  /// the links, so all workers of a job begin together in one queue.
  static constexpr uint32_t kFirstOnLossyLink = 16;
  /// No smaller one where packets are lost, but not in queues.
  static constexpr uint32_t kLeastWithoutQueues = 32;
  static constexpr uint32_t kFirstAggregators = 16;

  explicit Windows(const WindowConfig& config);
  /// A worker's share of what eight workers may have under way: `each` of up to eight.
  static uint32_t share_of(uint32_t each, uint32_t workers) {
    return std::clamp(kCrowd * each / std::max(1u, workers), 1u, each);
  }
  /// Which of them count from now on: WindowConfig.
  void use(bool congestion, bool aggregators, bool capped) {
    config_.congestion = congestion;
    config_.aggregators = aggregators;
    config_.capped = capped;
  }

  /// True if a fragment was split within a few windows before this one.
  bool split_lately(Seq seq) const { return seq < splits_end_; }
  /// Fragments that may be in the switch at once.
  uint32_t fragments() const {
    uint64_t window = contended_ ? std::min(most_, cap_) : most_;
    if (config_.congestion) window = std::min(window, congestion_);
    if (config_.aggregators) window = std::min(window, aggregators_);
    return std::max(1u, static_cast<uint32_t>(window / kUnit));
  }

  /// A result came with a mark, or without one, when so many fragments were in the switch.
  void marked(Seq seq, Seq next) { congested(seq, next, least_congestion_); }
  void unmarked(Seq seq, Seq next, uint32_t in_flight) {
    most_in_flight_ = std::max(most_in_flight_, in_flight);
    if (seq >= round_end_) end_round(next, in_flight);
    if (grows_)
      congestion_ = std::min(most_, congestion_ + std::max(eager_, kUnit * kUnit / congestion_));
  }
  /// More would have been sent, but for the windows and for the time at which it leaves.
  void all_used() { most_in_flight_ = std::max(most_in_flight_, fragments()); }
  /// Says if the link has lost something lately. Before split() and whole().
  void losing(bool is) { losing_ = is; }
  void lost(Seq seq, Seq next, const RoundTrip& rtt);
  /// A result came. `idle`: nothing else is under way.
  void delivered(Nanos now, bool idle, const RoundTrip& rtt);
  /// From now on by an eighth each round trip, no longer twice.
  void go_slower() { eager_ = std::min(eager_, kUnit / 8); }
  /// Contributions to a fragment met outside the array, or in it.
  void split(Seq seq, Seq next, uint32_t in_flight, const RoundTrip& rtt);
  /// So many fragments are in the switch, this one among them. Once a fragment was split, a window
  /// grows only if it is used. An unfilled window does not show whether there were slots for it
  /// (compare RFC 7661 on congestion), until workers are not in step and all of it is sent. `rtt`:
  /// with this result.
  void whole(Seq seq, uint32_t in_flight, const RoundTrip& rtt);

  /// The time that so many results take at the latest rate. 0: no rate is known yet.
  Nanos time_of_results(uint64_t results) const { return rate_.time_of(results); }

  /// New fragments that leave together.
  uint32_t quantum() const {
    return config_.paced ? std::max(1u, fragments() / kPacedParts) : fragments();
  }
  /// So many new fragments were sent.
  void sent(size_t count, Nanos now, const RoundTrip& rtt);
  /// No new fragment leaves before.
  Nanos paced_until() const { return paced_until_; }

 private:
  /// A fragment, in the windows' fixed point: one of W must still add something.
  static constexpr uint64_t kUnit = 1 << 20;
  static constexpr uint32_t kCrowd = 8;  ///< workers of share_of()
  static constexpr uint32_t kMinCongestionFragments = 4;
  /// A window is used if so much of it is under way.
  static constexpr uint64_t kUsed = 4;
  static constexpr uint64_t kUsedOf = 5;
  /// New fragments leave in so many parts of a window, each at its time.
  static constexpr uint32_t kPacedParts = 8;

  /// Otherwise it is not known whether there was room for the rest.
  static bool is_used(uint64_t window, uint32_t in_flight) {
    return in_flight * kUsedOf > window / kUnit * kUsed;
  }
  void end_round(Seq next, uint32_t in_flight);
  void congested(Seq seq, Seq next, uint64_t least);
  /// Parts of split fragments wait in no queue: a smaller window would bring results later, and
  /// nothing else.
  bool only_distance(const RoundTrip& rtt) const { return config_.distances && rtt.at_distance(); }
  void grow_aggregators(uint32_t in_flight, const RoundTrip& rtt);

  WindowConfig config_;
  uint64_t most_;
  uint64_t ahead_;
  uint64_t least_congestion_;
  uint64_t congestion_;
  uint64_t aggregators_;
  bool losing_ = false;     ///< the link, of late
  bool was_split_ = false;  ///< ever
  bool contended_ = false;  ///< a fragment was split within the last window
  uint64_t cap_ = UINT64_MAX;
  uint64_t lost_share_ = 0;  ///< of the last contributions; kUnit: all
  DeliveryRate rate_;
  /// Growth for each result while nothing was lost or marked yet: a fragment in slow start.
  uint64_t eager_;
  /// Within this round trip. A window grows only after a round trip that used it.
  uint32_t most_in_flight_ = 0;
  bool grows_ = true;
  Seq round_end_;
  Seq congestion_recovery_;
  Seq aggregator_recovery_;
  Seq splits_end_;  ///< until then, fragments are said to be split now and then
  Nanos paced_until_ = 0;
};

}  // namespace ina::client
