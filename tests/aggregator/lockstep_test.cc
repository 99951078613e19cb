// What waiting for the slowest worker would cost a job.
#include "aggregator/lockstep.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::aggregator {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr uint64_t kWindow = 50;
constexpr Nanos kStep = 1000;
constexpr Nanos kHorizon = 100 * kStep;
constexpr uint64_t kFull = 8;  // fragments a step

/// Workers that nobody stops.
class LockstepTest : public testing::Test {
 protected:
  /// `steps` in which worker i does done(i) fragments each.
  template <class Done>
  void go(int steps, Done&& done) {
    for (int step = 0; step < steps; ++step) {
      for (uint32_t i = 0; i < kWorkers; ++i) progress_[i] = progress_[i] + done(i);
      lockstep_.look(progress_, held_up_, now_ += kStep);
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

  bool held_up_ = false;
  Nanos now_ = 1'000'000;
  std::vector<Seq> progress_ = std::vector<Seq>(kWorkers, Seq{7});
  Lockstep lockstep_{kWorkers, kWindow, Seq{7}, kStep, kHorizon};
};

TEST_F(LockstepTest, WhereAllAreAsFastNothingIsLost) {
  go(100);
  EXPECT_EQ(lockstep_.lost(), 0);
}

TEST_F(LockstepTest, WaitingForOneThatStandsStillLosesAll) {
  go(10);
  for (int i = 0; i < 10; ++i) {
    const auto stopped = [](uint32_t rank) { return rank == 0 ? 0 : kFull; };
    go(100, stopped);
  }
  EXPECT_GT(lockstep_.lost(), 0.95);
}

TEST_F(LockstepTest, NothingIsLostWithinTheWindow) {
  go(10);
  const auto slow = [](uint32_t rank) { return rank == 0 ? kFull - 1 : kFull; };
  go(kWindow - 1, slow);
  EXPECT_EQ(lockstep_.lost(), 0);
  go(20, slow);
  EXPECT_GT(lockstep_.lost(), 0);
}

TEST_F(LockstepTest, InARotationEachTurnWouldBeTheSlowestOnes) {
  rotate(40, 100);
  // Of each 100 steps 8 pass until the window is full.
  EXPECT_NEAR(lockstep_.lost(), 0.75 * 0.92, 0.15);
}

TEST_F(LockstepTest, ShortTurnsFitIntoTheWindow) {
  rotate(400, 8);
  EXPECT_LT(lockstep_.lost(), 0.05);
}

TEST_F(LockstepTest, WhoIsBehindButAsFastCostsNothing) {
  rotate(1, 300);
  EXPECT_GT(lockstep_.lost(), 0.5);
  go(300);
  EXPECT_LT(lockstep_.lost(), 0.05);
}

TEST_F(LockstepTest, WhoSaysThatItsWindowIsFullIsHeldUp) {
  go(10);
  const auto slow = [](uint32_t rank) { return rank == 0 ? kFull / 4 : kFull / 4 + 1; };
  go(20, slow);
  EXPECT_EQ(lockstep_.lost(), 0);
  held_up_ = true;
  go(20, slow);
  EXPECT_NEAR(lockstep_.lost(), 0.75 * 0.2, 0.03);
}

TEST_F(LockstepTest, TimeWithNothingToDoDoesNotCount) {
  rotate(4, 100);
  ASSERT_EQ(progress_.front(), progress_.back());
  const double before = lockstep_.lost();
  ASSERT_GT(before, 0.5);
  now_ += 100 * kHorizon;
  go(1);
  EXPECT_EQ(lockstep_.lost(), before);
}

TEST_F(LockstepTest, LooksTooOftenAreNone) {
  rotate(4, 100);
  const double before = lockstep_.lost();
  progress_[0] = progress_[0] + 1;
  lockstep_.look(progress_, false, now_ + kStep - 1);
  EXPECT_EQ(lockstep_.lost(), before);
}

}  // namespace
}  // namespace ina::aggregator
