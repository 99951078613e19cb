// How much of its time a job loses because workers cannot run further ahead of the slowest one.
#include "aggregator/lost_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace ina::aggregator {
namespace {

constexpr Nanos kStep = 1000;
constexpr Nanos kHorizon = 500 * kStep;
constexpr uint64_t kFull = 12;  // fragments a step

/// Workers that go on as fast as they can, but no further than a window ahead of the slowest.
class LostTimeTest : public testing::Test {
 protected:
  static constexpr size_t kWorkers = 3;

  /// `steps` in which one worker does so many fragments each, and the others all that they can.
  void go(int steps, uint64_t slow, size_t who = 0) {
    for (int i = 0; i < steps; ++i) {
      const Seq end = *std::ranges::min_element(progress_) + window_;
      WorkerSet held_up;
      for (size_t rank = 0; rank < kWorkers; ++rank) {
        const Seq wanted = progress_[rank] + (rank == who ? slow : kFull);
        progress_[rank] = std::max(progress_[rank], std::min(wanted, end));
        if (wanted > end) held_up.insert(Rank{static_cast<uint8_t>(rank)});
      }
      lost_.look(progress_, held_up, now_ += kStep);
    }
  }
  /// Turns in which one worker after the other is slower by `factor`.
  void turns(int count, uint64_t factor, int steps) {
    for (int turn = 0; turn < count; ++turn)
      go(steps, kFull / factor, static_cast<size_t>(turn) % kWorkers);
  }

  uint64_t window_ = 10 * kFull;
  Nanos now_ = 7 * kHorizon;
  std::array<Seq, kWorkers> progress_{Seq{100}, Seq{100}, Seq{100}};
  LostTime lost_{kHorizon};
};

TEST_F(LostTimeTest, NothingIsLostWhileNobodyIsHeldUp) {
  window_ = 10'000 * kFull;
  go(2000, kFull / 4);
  EXPECT_FALSE(lost_.is_above(0.01));
}

TEST_F(LostTimeTest, FullWindowsOfFastWorkersLoseNothing) {
  window_ = kFull - 1;
  go(2000, kFull);
  EXPECT_FALSE(lost_.is_above(0.01));
}

/// The others wait nearly all the time. Nothing would get on faster if they ran ahead.
TEST_F(LostTimeTest, AWorkerThatIsAlwaysSlowLosesNothing) {
  go(2000, kFull / 4);
  EXPECT_FALSE(lost_.is_above(0.01));
}

/// Each could do three quarters of its best, and hardly does a quarter.
TEST_F(LostTimeTest, LongTurnsOfASlowWorkerLoseMuch) {
  turns(30, 4, 100);
  EXPECT_TRUE(lost_.is_above(0.45));
  EXPECT_FALSE(lost_.is_above(0.65));
}

TEST_F(LostTimeTest, TurnsThatWindowsHoldLoseLittle) {
  window_ = 90 * kFull;
  turns(30, 4, 100);
  EXPECT_FALSE(lost_.is_above(0.2));
}

TEST_F(LostTimeTest, AWorkerThatIsHardlySlowerLosesLittle) {
  turns(30, 2, 100);
  EXPECT_TRUE(lost_.is_above(0.2));
  EXPECT_FALSE(lost_.is_above(0.4));
}

TEST_F(LostTimeTest, AShortStopSaysLittle) {
  go(10, kFull);
  go(30, 0);
  EXPECT_FALSE(lost_.is_above(0.4));
  go(200, 0);
  EXPECT_TRUE(lost_.is_above(0.4));
}

TEST_F(LostTimeTest, AWorkerThatHasNotBegunIsTakenForAFastOne) {
  go(300, 0);
  EXPECT_TRUE(lost_.is_above(0.4));
}

TEST_F(LostTimeTest, IdleTimeIsNotCounted) {
  turns(30, 4, 100);
  for (int i = 0; i < 10'000; ++i) lost_.look(progress_, {}, now_ += kStep);
  turns(3, 4, 100);
  EXPECT_TRUE(lost_.is_above(0.2));
}

TEST_F(LostTimeTest, WhatWasBeforeItBeganIsForgotten) {
  turns(30, 4, 100);
  lost_.begin(progress_, now_);
  EXPECT_FALSE(lost_.is_above(0.01));
  turns(30, 4, 100);
  EXPECT_TRUE(lost_.is_above(0.45));
}

}  // namespace
}  // namespace ina::aggregator
