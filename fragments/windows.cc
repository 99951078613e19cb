#include "fragments/windows.h"

#include <utility>

namespace ina::client {

namespace {

constexpr uint32_t kMinAggregatorFragments = 8;
// Fewer losses, of so many contributions, do not come from a queue too short for the window.
constexpr uint64_t kLossSamples = 512;
constexpr uint64_t kFewLostPercent = 2;
// An array in which something was split is one that splits for so many of the largest windows.
constexpr uint64_t kSplitWindows = 4;
// The cap: a round trip holds waiting for other workers and for links, so that the shortest one is
// exceeded often, but not by much more than this where nothing waits for long.
constexpr uint64_t kCapRoundTrips = 4;
constexpr uint32_t kMinCapFragments = 16;
// New fragments leave so much faster than a window a round trip that pacing does not limit the
// rate, as in RFC 9002, section 7.7; in slow start the next window is twice as large.
constexpr Nanos kPaceGainPercent = 125;
constexpr Nanos kPaceGainSlowStartPercent = 200;
// A longer delay than this many shortest round trips is not the network's.
constexpr Nanos kPacedRoundTrips = 4;

}  // namespace

void RoundTrip::sample(Nanos rtt, Nanos now, bool clocked) {
  sampled_at_ = now;
  if (clocked) clocked_ = std::min(clocked_, rtt);
  shortest_ = std::min(shortest_, rtt);
  if (samples_++ == kLatest) {
    samples_ = 1;
    latest_before_ = std::exchange(latest_, INT64_MAX);
  }
  latest_ = std::min(latest_, rtt);
  if (smoothed_ == 0) {
    smoothed_ = rtt;
    deviation_ = rtt / 2;
    return;
  }
  const Nanos error = rtt > smoothed_ ? rtt - smoothed_ : smoothed_ - rtt;
  deviation_ += (error - deviation_) / 4;
  smoothed_ += (rtt - smoothed_) / 8;
}

bool DeliveryRate::delivered(Nanos now, bool idle, Nanos shortest_round_trip) {
  if (results_++ == 0) began_ = now;
  const Nanos span = now - began_;
  const bool ended = span > 0 && span >= kIntervalRoundTrips * shortest_round_trip;
  if (ended)
    per_ns_[next_++ % kIntervals] = static_cast<double>(results_ - 1) / static_cast<double>(span);
  if (ended || idle) results_ = 0;
  return ended;
}

uint64_t DeliveryRate::results_in(Nanos time) const {
  return static_cast<uint64_t>(*std::ranges::max_element(per_ns_) * static_cast<double>(time));
}

Nanos DeliveryRate::time_of(uint64_t results) const {
  const double best = *std::ranges::max_element(per_ns_);
  return best == 0 ? 0 : static_cast<Nanos>(static_cast<double>(results) / best);
}

bool RoundTrip::at_distance() const {
  return clocked_ != INT64_MAX && smoothed_ <= clocked_ + clocked_ / 4;
}

Windows::Windows(const WindowConfig& config)
    : config_(config),
      most_(config.most * kUnit),
      ahead_(config.ahead != 0 ? std::min(most_, config.ahead * kUnit) : most_),
      least_congestion_(share_of(kMinCongestionFragments, config.workers) * kUnit),
      congestion_(config.first != 0 ? std::min(most_, config.first * kUnit) : most_),
      aggregators_(config.first_aggregators != 0 ? std::min(most_, config.first_aggregators * kUnit)
                                                 : most_),
      eager_(config.first != 0 ? kUnit : 0) {}

/// A loss need not mean congestion, unless round trips say so, too, as in TCP Veno (Fu and Liew,
/// 2003, section III-A). Round trips are long where hosts are busy, too, so that few losses do not
/// count, as in BBR (draft-cardwell-ccwg-bbr, section 2.7, LossThresh).
void Windows::lost(Seq seq, Seq next, const RoundTrip& rtt) {
  lost_share_ += (kUnit - lost_share_) / kLossSamples;
  const bool overrun = rtt.in_queues() && lost_share_ >= kUnit / 100 * kFewLostPercent;
  congested(seq, next,
            overrun ? least_congestion_ : share_of(kLeastWithoutQueues, config_.workers) * kUnit);
}

/// What limits a worker may be its own link, or its operations. Then the network may hold less than
/// the window, which would show only when others begin to send (RFC 7661).
void Windows::end_round(Seq next, uint32_t in_flight) {
  grows_ = is_used(congestion_, most_in_flight_);
  most_in_flight_ = in_flight;
  round_end_ = next;
}

void Windows::congested(Seq seq, Seq next, uint64_t least) {
  eager_ = 0;
  if (seq < congestion_recovery_) return;
  congestion_ = std::max(std::min(least, most_), congestion_ / 2);
  congestion_recovery_ = next;
}

void Windows::whole(Seq seq, uint32_t in_flight, const RoundTrip& rtt) {
  if (seq >= aggregator_recovery_) contended_ = false;
  grow_aggregators(in_flight, rtt);
}

void Windows::grow_aggregators(uint32_t in_flight, const RoundTrip& rtt) {
  if (aggregators_ == most_) return;
  if ((was_split_ || config_.ahead != 0) && !is_used(aggregators_, in_flight)) return;
  const bool needed = only_distance(rtt);
  const bool lossy = losing_ && !rtt.in_queues();
  if (aggregators_ >= ahead_ && !needed && !lossy) return;
  uint64_t step = was_split_ ? kUnit * kUnit / aggregators_ : kUnit;
  if (needed) step = kUnit / 2;
  aggregators_ = std::min(most_, aggregators_ + step);
}

void Windows::split(Seq seq, Seq next, uint32_t in_flight, const RoundTrip& rtt) {
  // Slots are held by what is lost, which a smaller window would not change.
  if (losing_) return whole(seq, in_flight, rtt);
  was_split_ = true;
  splits_end_ = std::max(splits_end_, seq + kSplitWindows * (most_ / kUnit));
  if (only_distance(rtt)) return grow_aggregators(in_flight, rtt);
  contended_ = true;
  if (seq < aggregator_recovery_) return;
  const uint64_t least = share_of(kMinAggregatorFragments, config_.workers) * kUnit;
  aggregators_ = std::max(std::min(least, most_), aggregators_ / 4 * 3);
  aggregator_recovery_ = next;
}

void Windows::delivered(Nanos now, bool idle, const RoundTrip& rtt) {
  lost_share_ -= lost_share_ / kLossSamples;
  if (!rtt.known()) return;
  if (!rate_.delivered(now, idle, rtt.shortest()) || !config_.capped) return;
  cap_ = std::max<uint64_t>(share_of(kMinCapFragments, config_.workers),
                            rate_.results_in(kCapRoundTrips * rtt.shortest())) *
         kUnit;
}

/// Operations begin with a whole window, which would meet a queue as one burst. So many new
/// fragments have left now, and the next ones wait for their share of the round trip. A late call
/// makes up for no more than the fragments that may leave together.
void Windows::sent(size_t count, Nanos now, const RoundTrip& rtt) {
  if (!config_.paced || !rtt.known()) return;
  const Nanos gain_percent = eager_ == kUnit ? kPaceGainSlowStartPercent : kPaceGainPercent;
  const Nanos window_ns =
      std::min(rtt.smoothed(), kPacedRoundTrips * rtt.shortest()) * 100 / gain_percent;
  const auto time_of = [&](uint64_t some) {
    return static_cast<Nanos>(static_cast<uint64_t>(window_ns) * some / fragments());
  };
  paced_until_ = std::max(paced_until_, now - time_of(quantum())) + time_of(count);
}

}  // namespace ina::client
