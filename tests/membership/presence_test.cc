// Presence knows whether the switch is there, and has the text for those that wait for it.
#include "membership/presence.h"

#include <gtest/gtest.h>

namespace ina::membership {
namespace {

constexpr const char* kUrl = "shm:/s";
constexpr Nanos kSecond = 1'000'000'000;

class PresenceTest : public testing::Test {
 protected:
  void go_away(Nanos now) {
    const auto state = callers_.lock();
    presence_.go_away(now);
  }
  Callers callers_;
  Presence presence_{callers_};
};

TEST_F(PresenceTest, ASwitchThatIsThereNeedsNoText) {
  EXPECT_FALSE(presence_.is_live());
  presence_.go_live();
  EXPECT_TRUE(presence_.is_live());
  EXPECT_FALSE(presence_.is_away());
  EXPECT_EQ(presence_.away_text(kUrl, kSecond), "");
}

TEST_F(PresenceTest, TheTimeCountsFromTheFirstLossUntilTheSwitchIsBack) {
  go_away(kSecond);
  go_away(3 * kSecond);
  EXPECT_EQ(presence_.away_since(), kSecond);
  EXPECT_EQ(presence_.away_text(kUrl, 6 * kSecond), "the switch at shm:/s has been gone for 5 s");
  {
    const auto state = callers_.lock();
    presence_.come_back();
  }
  EXPECT_EQ(presence_.away_text(kUrl, 6 * kSecond), "");
  go_away(7 * kSecond);
  EXPECT_EQ(presence_.away_since(), 7 * kSecond);
}

TEST_F(PresenceTest, ARestartedSwitchIsSaidToWaitForOthersUntilItGoesToo) {
  go_away(kSecond);
  presence_.wait_anew(4 * kSecond, "rank 3");
  EXPECT_EQ(presence_.others_missing(), "rank 3");
  EXPECT_EQ(presence_.away_text(kUrl, 6 * kSecond),
            "the switch at shm:/s was restarted and waits for rank 3 to come back");
  go_away(5 * kSecond);
  EXPECT_EQ(presence_.away_text(kUrl, 6 * kSecond), "the switch at shm:/s has been gone for 2 s");
}

}  // namespace
}  // namespace ina::membership
