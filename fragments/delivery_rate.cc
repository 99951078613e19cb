#include "fragments/delivery_rate.h"

#include <algorithm>

namespace ina::client {

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

}  // namespace ina::client
