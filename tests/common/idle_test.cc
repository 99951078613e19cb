#include "common/idle.h"

#include <gtest/gtest.h>

namespace ina {
namespace {

constexpr int kMost = 2000;
constexpr Nanos kPollNs = 100;
constexpr Nanos kSpinNs = 60'000'000'000;

Nanos time_ns = 0;
Nanos nobody_wants_the_core() {
  return time_ns += 500;
}
Nanos another_process_runs() {
  return time_ns += 3'000;
}

/// Empty polls in a row before the loop is told to sleep; at most kMost.
int polls_until_sleep(IdleStrategy& idle) {
  idle.reset();
  for (int polls = 1; polls <= kMost; ++polls)
    if (idle.idle(time_ns += kPollNs) == IdleStrategy::Step::kSleep) return polls;
  return kMost;
}

TEST(Idle, ALoopThatIsWokenSleepsSoon) {
  IdleStrategy idle(IdleMode::kAuto, 0, nobody_wants_the_core);
  EXPECT_LT(polls_until_sleep(idle), 250);
}

TEST(Idle, ALoopThatNothingWakesGoesOnWhileNobodyWantsTheCore) {
  IdleStrategy idle(IdleMode::kAuto, kSpinNs, nobody_wants_the_core);
  EXPECT_EQ(polls_until_sleep(idle), kMost);
  IdleStrategy backoff(IdleMode::kBackoff, kSpinNs, nobody_wants_the_core);
  EXPECT_LT(polls_until_sleep(backoff), 250);
}

TEST(Idle, ALoopThatNothingWakesLeavesTheCoreToOthers) {
  IdleStrategy idle(IdleMode::kAuto, kSpinNs, another_process_runs);
  EXPECT_LT(polls_until_sleep(idle), 250);
  const Nanos before = time_ns;
  polls_until_sleep(idle);
  EXPECT_LT(time_ns - before, 300'000)
      << "a thread that sleeps is woken ahead of those that compute";
}

TEST(Idle, ALoopThatNothingWakesSleepsInTheEnd) {
  constexpr Nanos kSpin = 1'000'000;
  IdleStrategy idle(IdleMode::kAuto, kSpin, nobody_wants_the_core);
  const Nanos before = time_ns;
  EXPECT_LT(polls_until_sleep(idle), kMost);
  EXPECT_GE(time_ns - before, kSpin);
}

}  // namespace
}  // namespace ina
