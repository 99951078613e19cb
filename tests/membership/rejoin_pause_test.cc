#include "membership/rejoin_pause.h"

#include <gtest/gtest.h>

namespace ina::membership {
namespace {

constexpr Nanos kMs = 1'000'000;

/// When the attempts are, one that fails at once after the other.
int attempts_until(Nanos until, Nanos& longest_lag) {
  int attempts = 0;
  for (Nanos now = 0; now < until; ++attempts) {
    const Nanos next = now + rejoin_pause(now);
    // A switch that is there just after an attempt is found by the next.
    if (now >= 20 * kMs) longest_lag = std::max(longest_lag, (next - now) * 100 / now);
    now = next;
  }
  return attempts;
}

TEST(RejoinPause, FindsASwitchWithinAQuarterOfTheTimeThatItWasGone) {
  Nanos percent = 0;
  EXPECT_LE(attempts_until(1000 * kMs, percent), 25);
  EXPECT_LE(percent, 25);
  EXPECT_GT(percent, 15);
}

TEST(RejoinPause, IsNeitherAStormNorEndless) {
  EXPECT_EQ(rejoin_pause(0), 5 * kMs);
  EXPECT_EQ(rejoin_pause(-kMs), 5 * kMs);
  EXPECT_EQ(rejoin_pause(100 * kMs), 25 * kMs);
  EXPECT_EQ(rejoin_pause(3600'000 * kMs), 200 * kMs);
}

}  // namespace
}  // namespace ina::membership
