#include "common/idle.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ina {
namespace {

constexpr int kMost = 2000;

/// Empty polls in a row before the loop is told to sleep; at most kMost.
int polls_until_sleep(IdleStrategy& idle) {
  idle.reset();
  for (int polls = 1; polls <= kMost; ++polls)
    if (idle.idle(now_ns()) == IdleStrategy::Step::kSleep) return polls;
  return kMost;
}

/// A yield that lets another process run ends the wait early, so the longest of some counts.
int longest(IdleMode mode, Nanos spin_ns) {
  IdleStrategy idle(mode, spin_ns);
  int most = 0;
  for (int i = 0; i < 100 && most < kMost; ++i) most = std::max(most, polls_until_sleep(idle));
  return most;
}

TEST(Idle, ALoopThatIsWokenSleepsSoon) {
  EXPECT_LT(longest(IdleMode::kAuto, 0), 250);
}

TEST(Idle, ALoopThatNothingWakesGoesOnWhileNobodyWantsTheCore) {
  EXPECT_EQ(longest(IdleMode::kAuto, 60'000'000'000), kMost);
  EXPECT_LT(longest(IdleMode::kBackoff, 60'000'000'000), 250);
}

TEST(Idle, ALoopThatNothingWakesSleepsInTheEnd) {
  IdleStrategy idle(IdleMode::kAuto, 1'000'000);
  const Nanos deadline = now_ns() + 10'000'000'000;
  bool sleeps = false;
  while (!sleeps && now_ns() < deadline) sleeps = idle.idle(now_ns()) == IdleStrategy::Step::kSleep;
  EXPECT_TRUE(sleeps);
}

}  // namespace
}  // namespace ina
