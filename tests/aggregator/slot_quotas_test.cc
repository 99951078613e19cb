#include "aggregator/slot_quotas.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ina::aggregator {
namespace {

class SlotQuotasTest : public testing::Test {
 protected:
  static constexpr uint32_t kSlots = 8;

  SlotAccount job(uint32_t floor, uint32_t ceiling = UINT32_MAX) {
    SlotAccount account;
    account.quota = {floor, ceiling};
    quotas_.open(account);
    return account;
  }
  void take(SlotAccount& account, int count) {
    for (int i = 0; i < count; ++i) quotas_.take(account);
  }

  SlotQuotas quotas_{kSlots};
};

TEST_F(SlotQuotasTest, WhatAFloorIsShortOfStaysEmptyForIt) {
  SlotAccount modest = job(3), greedy = job(0);
  take(greedy, 5);
  EXPECT_FALSE(quotas_.may_take_empty(greedy));
  EXPECT_TRUE(quotas_.may_take_empty(modest));
  take(modest, 2);
  EXPECT_FALSE(quotas_.may_take_empty(greedy)) << "one is still kept";
  quotas_.give_back(greedy);
  EXPECT_TRUE(quotas_.may_take_empty(greedy));
}

TEST_F(SlotQuotasTest, AJobThatGivesBackIsShortAgain) {
  SlotAccount modest = job(2), greedy = job(0);
  take(modest, 2);
  take(greedy, 5);
  EXPECT_TRUE(quotas_.may_take_empty(greedy));
  quotas_.give_back(modest);
  quotas_.take(greedy);
  EXPECT_FALSE(quotas_.may_take_empty(greedy));
}

TEST_F(SlotQuotasTest, AJobThatLeavesKeepsNothing) {
  SlotAccount modest = job(8), greedy = job(0);
  EXPECT_FALSE(quotas_.may_take_empty(greedy));
  quotas_.close(modest);
  EXPECT_TRUE(quotas_.may_take_empty(greedy));
}

TEST_F(SlotQuotasTest, NobodyPassesACeiling) {
  SlotAccount bounded = job(0, 2), other = job(0);
  take(bounded, 2);
  EXPECT_FALSE(quotas_.may_take_empty(bounded));
  quotas_.take(other);
  EXPECT_FALSE(quotas_.may_preempt(bounded, other));
  EXPECT_TRUE(quotas_.may_preempt(bounded, bounded)) << "that changes nothing";
}

TEST_F(SlotQuotasTest, AtItsFloorAJobLosesNothingToOthers) {
  SlotAccount modest = job(2), greedy = job(0);
  take(modest, 2);
  EXPECT_FALSE(quotas_.may_preempt(greedy, modest));
  take(modest, 1);
  EXPECT_TRUE(quotas_.may_preempt(greedy, modest));
}

TEST_F(SlotQuotasTest, BelowItsFloorAJobIsEntitledToOthersSlots) {
  SlotAccount modest = job(1), greedy = job(0);
  take(greedy, 2);
  EXPECT_TRUE(quotas_.is_entitled(modest, greedy));
  EXPECT_FALSE(quotas_.is_entitled(greedy, modest));
  EXPECT_FALSE(quotas_.is_entitled(modest, modest));
  take(modest, 1);
  EXPECT_FALSE(quotas_.is_entitled(modest, greedy));
}

TEST_F(SlotQuotasTest, FloorsAreAlwaysToBeHad) {
  std::mt19937 random(1);
  std::vector<SlotAccount> jobs = {job(3), job(2, 4), job(0), job(1)};
  for (int i = 0; i < 10'000; ++i) {
    SlotAccount& account = jobs[random() % jobs.size()];
    if (random() % 2 != 0 && account.held != 0)
      quotas_.give_back(account);
    else if (quotas_.used() < kSlots && quotas_.may_take_empty(account))
      quotas_.take(account);
    uint32_t used = 0, owed = 0;
    for (const SlotAccount& each : jobs) {
      used += each.held;
      owed += each.quota.floor - std::min(each.held, each.quota.floor);
      ASSERT_LE(each.held, each.quota.ceiling);
    }
    ASSERT_EQ(quotas_.used(), used);
    ASSERT_LE(used + owed, kSlots);
  }
  EXPECT_EQ(quotas_.peak(), kSlots);
}

}  // namespace
}  // namespace ina::aggregator
