// How much of its time a job loses because workers cannot run further ahead of the slowest one.
#include "aggregator/lost_time.h"

#include <gtest/gtest.h>

namespace ina::aggregator {
namespace {

constexpr Nanos kStep = 1000;
constexpr Nanos kHorizon = 500 * kStep;
constexpr uint64_t kFull = 12;  // fragments a step

class LostTimeTest : public testing::Test {
 protected:
  /// `steps` in which the slowest worker does so many fragments each, and the first one as many
  /// if it is held up, else all that it can.
  void go(int steps, uint64_t slowest, bool held_up) {
    for (int i = 0; i < steps; ++i) {
      slowest_ = slowest_ + slowest;
      newest_ = newest_ + (held_up ? slowest : kFull);
      lost_.look(slowest_, std::max(slowest_, newest_), held_up, now_ += kStep);
    }
  }
  /// Turns of a worker that is slower by `factor`. Windows hold a lag of so many steps.
  void turns(int count, uint64_t factor, int held, int steps) {
    for (int turn = 0; turn < count; ++turn) {
      go(held, kFull / factor, false);
      go(steps - held, kFull / factor, true);
      slowest_ = newest_;  // it has caught up
    }
  }

  Nanos now_ = 7 * kHorizon;
  Seq slowest_{100};
  Seq newest_{100};
  LostTime lost_{kHorizon};
};

TEST_F(LostTimeTest, NothingIsLostWhileNobodyIsHeldUp) {
  go(2000, kFull / 4, false);
  EXPECT_FALSE(lost_.is_above(0.01));
}

TEST_F(LostTimeTest, FullWindowsOfFastWorkersLoseNothing) {
  go(10, kFull, false);
  go(2000, kFull, true);
  EXPECT_FALSE(lost_.is_above(0.01));
}

TEST_F(LostTimeTest, LongTurnsOfASlowWorkerLoseMuch) {
  turns(20, 4, 20, 100);
  EXPECT_TRUE(lost_.is_above(0.5)) << "four fifths of the time three quarters are lost";
  EXPECT_FALSE(lost_.is_above(0.65));
}

TEST_F(LostTimeTest, TurnsThatWindowsHoldLoseLittle) {
  turns(20, 4, 90, 100);
  EXPECT_FALSE(lost_.is_above(0.1));
}

TEST_F(LostTimeTest, AWorkerThatIsHardlySlowerLosesLittle) {
  turns(20, 2, 50, 100);
  EXPECT_TRUE(lost_.is_above(0.2));
  EXPECT_FALSE(lost_.is_above(0.3));
}

TEST_F(LostTimeTest, OneStopSaysLittle) {
  go(10, kFull, false);
  go(20, 0, true);
  EXPECT_FALSE(lost_.is_above(0.4));
  go(200, 0, true);
  EXPECT_TRUE(lost_.is_above(0.4));
}

TEST_F(LostTimeTest, IdleTimeIsNotCounted) {
  turns(20, 4, 20, 100);
  for (int i = 0; i < 10'000; ++i) lost_.look(slowest_, slowest_, false, now_ += kStep);
  turns(2, 4, 20, 100);
  EXPECT_TRUE(lost_.is_above(0.2));
}

TEST_F(LostTimeTest, WhatWasBeforeItBeganIsForgotten) {
  turns(20, 4, 20, 100);
  lost_.begin(slowest_, newest_, now_);
  EXPECT_FALSE(lost_.is_above(0.01));
  turns(20, 4, 20, 100);
  EXPECT_TRUE(lost_.is_above(0.5));
}

}  // namespace
}  // namespace ina::aggregator
