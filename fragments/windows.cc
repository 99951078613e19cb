#include "fragments/windows.h"

namespace ina::client {

namespace {

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

void Windows::delivered(Nanos now, bool idle, const RoundTrip& rtt) {
  congestion_.delivered();
  if (!rtt.known()) return;
  if (!rate_.delivered(now, idle, rtt.shortest()) || !config_.capped) return;
  cap_ = std::max<uint64_t>(share_of(kMinCapFragments, config_.workers),
                            rate_.results_in(kCapRoundTrips * rtt.shortest())) *
         kWindowUnit;
}

/// Operations begin with a whole window, which would meet a queue as one burst. So many new
/// fragments have left now, and the next ones wait for their share of the round trip. A late call
/// makes up for no more than the fragments that may leave together.
void Windows::sent(size_t count, Nanos now, const RoundTrip& rtt) {
  if (!config_.paced || !rtt.known()) return;
  const Nanos gain_percent =
      congestion_.in_slow_start() ? kPaceGainSlowStartPercent : kPaceGainPercent;
  const Nanos window_ns =
      std::min(rtt.smoothed(), kPacedRoundTrips * rtt.shortest()) * 100 / gain_percent;
  const auto time_of = [&](uint64_t some) {
    return static_cast<Nanos>(static_cast<uint64_t>(window_ns) * some / fragments());
  };
  paced_until_ = std::max(paced_until_, now - time_of(quantum())) + time_of(count);
}

}  // namespace ina::client
