// The limits on fragments in the network, and the times at which they leave: the windows for
// congestion and for aggregators, the cap by the rate of delivery, and pacing. Pure, like the
// engine that uses it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fragments/aggregator_window.h"
#include "fragments/congestion_window.h"
#include "fragments/delivery_rate.h"
#include "fragments/round_trip.h"
#include "fragments/window_config.h"
#include "wire/types.h"

namespace ina::client {

class Windows {
 public:
  /// The first window where nothing is known yet: little for any network. Others may already fill
  /// the links, so all workers of a job begin together in one queue.
  static constexpr uint32_t kFirstOnLossyLink = 16;
  static constexpr uint32_t kFirstAggregators = 16;

  explicit Windows(const WindowConfig& config)
      : config_(config),
        most_(config.most * kWindowUnit),
        congestion_(config),
        aggregators_(config) {}
  /// Which of them count from now on: WindowConfig.
  void use(bool congestion, bool aggregators, bool capped) {
    config_.congestion = congestion;
    config_.aggregators = aggregators;
    config_.capped = capped;
  }

  /// True if a fragment was split within a few windows before this one.
  bool split_lately(Seq seq) const { return aggregators_.split_lately(seq); }
  /// Fragments that may be in the switch at once.
  uint32_t fragments() const {
    uint64_t window = aggregators_.is_contended() ? std::min(most_, cap_) : most_;
    if (config_.congestion) window = std::min(window, congestion_.value());
    if (config_.aggregators) window = std::min(window, aggregators_.value());
    return std::max(1u, static_cast<uint32_t>(window / kWindowUnit));
  }

  /// A result came with a mark, or without one, when so many fragments were in the switch.
  void marked(Seq seq, Seq next) { congestion_.marked(seq, next); }
  void unmarked(Seq seq, Seq next, uint32_t in_flight) {
    congestion_.unmarked(seq, next, in_flight);
  }
  /// More would have been sent, but for the windows and for the time at which it leaves.
  void all_used() { congestion_.note_in_flight(fragments()); }
  /// Says if the link has lost something lately. Before split() and whole().
  void losing(bool is) { aggregators_.losing(is); }
  void lost(Seq seq, Seq next, const RoundTrip& rtt) { congestion_.lost(seq, next, rtt); }
  /// A result came. `idle`: nothing else is under way.
  void delivered(Nanos now, bool idle, const RoundTrip& rtt);
  /// From now on by an eighth each round trip, no longer twice.
  void go_slower() { congestion_.go_slower(); }
  /// Contributions to a fragment met outside the array, or in it, when so many fragments were in
  /// the switch, this one among them. `rtt`: with this result.
  void split(Seq seq, Seq next, uint32_t in_flight, const RoundTrip& rtt) {
    aggregators_.split(seq, next, in_flight, rtt);
  }
  void whole(Seq seq, uint32_t in_flight, const RoundTrip& rtt) {
    aggregators_.whole(seq, in_flight, rtt);
  }

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
  /// New fragments leave in so many parts of a window, each at its time.
  static constexpr uint32_t kPacedParts = 8;

  WindowConfig config_;
  uint64_t most_;
  CongestionWindow congestion_;
  AggregatorWindow aggregators_;
  DeliveryRate rate_;
  uint64_t cap_ = UINT64_MAX;
  Nanos paced_until_ = 0;
};

}  // namespace ina::client
