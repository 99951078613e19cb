// The verdict on straggler help: workers' progress beside that of workers in lockstep.
#include "aggregator/lockstep.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::aggregator {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr uint64_t kWindow = 50;
constexpr Nanos kStep = 1000;
constexpr Nanos kHorizon = 500 * kStep;
constexpr uint64_t kFull = 8;  // fragments a step

/// Workers that nobody stops, and help that costs so many messages a fragment.
class LockstepTest : public testing::Test {
 protected:
  LockstepTest() { lockstep_.begin(progress_, help_, now_); }

  /// `steps` in which worker i does done(i) fragments each.
  template <class Done>
  void go(int steps, Done&& done) {
    for (int step = 0; step < steps; ++step) {
      for (uint32_t i = 0; i < kWorkers; ++i) progress_[i] = progress_[i] + done(i);
      help_.parked += kFull;
      help_.messages += messages_a_fragment_ * kFull;
      lockstep_.look(progress_, help_, now_ += kStep);
    }
  }
  void go(int steps) {
    go(steps, [](uint32_t) { return kFull; });
  }
  /// One worker after the other is four times slower, for so many steps each.
  void rotate(int turns, int steps) {
    for (int turn = 0; turn < turns; ++turn)
      go(steps, [&](uint32_t i) {
        return i == static_cast<uint32_t>(turn) % kWorkers ? kFull / 4 : kFull;
      });
  }

  uint64_t messages_a_fragment_ = 1;
  Lockstep::Help help_;
  Nanos now_ = 1'000'000;
  std::vector<Seq> progress_ = std::vector<Seq>(kWorkers, Seq{7});
  Lockstep lockstep_{kWorkers, kWindow, kStep, kHorizon};
};

TEST_F(LockstepTest, RunningAheadInARotationPays) {
  rotate(40, 100);
  EXPECT_TRUE(lockstep_.pays());
}

TEST_F(LockstepTest, MoreMessagesThanItSavesDoNot) {
  // 13/16 of the links' rate, where all would go at somewhat more than a quarter of it.
  messages_a_fragment_ = 2 * kWorkers;
  rotate(40, 100);
  EXPECT_FALSE(lockstep_.pays());
}

TEST_F(LockstepTest, MessagesThatSaveNothingDoNotPay) {
  go(100);
  EXPECT_FALSE(lockstep_.pays());
}

TEST_F(LockstepTest, WithoutMessagesHelpThatSavesNothingIsAsGood) {
  messages_a_fragment_ = 0;
  go(100);
  EXPECT_TRUE(lockstep_.pays());
}

TEST_F(LockstepTest, WhatTheWindowHoldsNeedsNoHelp) {
  rotate(400, 8);
  EXPECT_FALSE(lockstep_.pays());
}

TEST_F(LockstepTest, WhoIsBehindButAsFastIsNoReason) {
  rotate(1, 100);
  go(100);
  EXPECT_TRUE(lockstep_.pays()) << "it did not long ago";
  go(2000);
  EXPECT_FALSE(lockstep_.pays());
}

TEST_F(LockstepTest, NothingIsSaidOfLittle) {
  go(4 * kWindow / kFull);
  EXPECT_TRUE(lockstep_.pays());
  go(20);
  EXPECT_FALSE(lockstep_.pays());
}

TEST_F(LockstepTest, WhereNothingIsParkedNothingCosts) {
  messages_a_fragment_ = 0;
  go(100, [this](uint32_t) {
    help_.parked = 0;
    return kFull;
  });
  // A rotation's end, when the last ones come up: slower than the play.
  EXPECT_TRUE(lockstep_.pays());
}

TEST_F(LockstepTest, HelpThatLosesWhatItSendsDoesNotPay) {
  rotate(40, 100);
  help_.asked += help_.messages / 100;
  rotate(4, 100);
  EXPECT_FALSE(lockstep_.pays());
}

TEST_F(LockstepTest, WhatWasBeforeItBeganIsForgotten) {
  go(1000);
  ASSERT_FALSE(lockstep_.pays());
  lockstep_.begin(progress_, help_, now_);
  EXPECT_TRUE(lockstep_.pays());
  rotate(8, 100);
  EXPECT_TRUE(lockstep_.pays());
}

TEST_F(LockstepTest, LooksTooOftenAreNone) {
  go(1000);
  lockstep_.begin(progress_, help_, now_);
  for (int i = 0; i < 1000; ++i) {
    for (Seq& at : progress_) at = at + kFull;
    help_.parked += kFull;
    help_.messages += kFull;
    lockstep_.look(progress_, help_, now_ + kStep - 1);
  }
  EXPECT_TRUE(lockstep_.pays());
}

}  // namespace
}  // namespace ina::aggregator
