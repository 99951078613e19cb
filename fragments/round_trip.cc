#include "fragments/round_trip.h"

#include <utility>

namespace ina::client {

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

bool RoundTrip::at_distance() const {
  return clocked_ != INT64_MAX && smoothed_ <= clocked_ + clocked_ / 4;
}

}  // namespace ina::client
