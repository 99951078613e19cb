#include "io/ethdev/backlog.h"

#include <gtest/gtest.h>

namespace ina::io {
namespace {

constexpr uint32_t kBurst = 32;

TEST(Backlog, FullBurstsOfMessagesAreCongestion) {
  Backlog backlog;
  EXPECT_FALSE(backlog.congested());
  for (int bursts = 1; bursts <= 10; ++bursts) {
    backlog.burst(kBurst, kBurst, kBurst, true);
    EXPECT_EQ(backlog.congested(), bursts >= 4) << bursts;
  }
}

TEST(Backlog, EndsWithTheFirstBurstThatIsNotFull) {
  Backlog backlog;
  for (int bursts = 0; bursts < 10; ++bursts) backlog.burst(kBurst, kBurst, kBurst, true);
  backlog.burst(kBurst, kBurst - 1, kBurst - 1, false);
  EXPECT_FALSE(backlog.congested());
  for (int bursts = 0; bursts < 3; ++bursts) backlog.burst(kBurst, kBurst, kBurst, true);
  EXPECT_FALSE(backlog.congested());
}

TEST(Backlog, OthersFramesAreNone) {
  Backlog backlog;
  for (int bursts = 0; bursts < 10; ++bursts) backlog.burst(kBurst, kBurst, 23, true);
  EXPECT_FALSE(backlog.congested());
  for (int bursts = 0; bursts < 10; ++bursts) backlog.burst(kBurst, kBurst, 24, true);
  EXPECT_TRUE(backlog.congested());
}

TEST(Backlog, SmallBurstsAreMeasuredByTheLargest) {
  Backlog backlog;
  backlog.burst(kBurst, 0, 0, false);
  for (uint32_t bursts = 1; bursts <= 4 * kBurst; ++bursts) {
    backlog.burst(1, 1, 1, true);
    EXPECT_EQ(backlog.congested(), bursts >= 4 * kBurst) << bursts;
  }
}

}  // namespace
}  // namespace ina::io
