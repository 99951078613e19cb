#include "scheduler/admission.h"

#include <gtest/gtest.h>

#include <random>

namespace ina::scheduler {
namespace {

TEST(StaticAdmission, GrantsTwiceTheWindowFromOnePiece) {
  StaticAdmission admission(100, 1);
  const auto grant = admission.admit(64, UINT64_MAX);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->window, 32u);
  EXPECT_EQ(grant->slots_per_lane, 64u);
  EXPECT_EQ(admission.slots_reserved(), 64u);
}

TEST(StaticAdmission, SmallerWindowWantedTakesFewerSlots) {
  StaticAdmission admission(100, 1);
  EXPECT_EQ(admission.admit(64, 5)->slots_per_lane, 10u);
  EXPECT_EQ(admission.admit(64, 0)->slots_per_lane, 2u) << "at least one fragment";
}

TEST(StaticAdmission, WindowIsAMultipleOfTheLanes) {
  StaticAdmission admission(64, 4);
  const auto grant = admission.admit(30, UINT64_MAX);
  EXPECT_EQ(grant->window, 12u);
  EXPECT_EQ(grant->slots_per_lane, 6u);
}

TEST(StaticAdmission, RefusalNamesNeedFreeAndShortfall) {
  StaticAdmission admission(100, 1);
  ASSERT_TRUE(admission.admit(64, UINT64_MAX));
  const auto refused = admission.admit(64, UINT64_MAX);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("needs 64 slots"), std::string::npos) << refused.error();
  EXPECT_NE(refused.error().find("36 of 100 are free"), std::string::npos);
  EXPECT_NE(refused.error().find("short by 28"), std::string::npos);
}

TEST(StaticAdmission, RangesNeverOverlapAndAllComesBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    StaticAdmission admission(256, 1);
    std::vector<Grant> held;
    std::vector<bool> used(256);
    for (int step = 0; step < 100; ++step) {
      if (!held.empty() && random() % 2) {
        const size_t which = random() % held.size();
        for (uint32_t i = 0; i < held[which].slots_per_lane; ++i)
          used[held[which].first_slot + i] = false;
        admission.release(held[which]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      } else if (const auto grant = admission.admit(2 + random() % 60, UINT64_MAX)) {
        for (uint32_t i = 0; i < grant->slots_per_lane; ++i) {
          ASSERT_LT(grant->first_slot + i, 256u);
          ASSERT_FALSE(used[grant->first_slot + i]) << "given out twice";
          used[grant->first_slot + i] = true;
        }
        held.push_back(*grant);
      }
    }
    for (const Grant& grant : held) admission.release(grant);
    EXPECT_EQ(admission.slots_reserved(), 0u);
    EXPECT_TRUE(admission.admit(256, UINT64_MAX)) << "the free ranges did not join again";
  }
}

TEST(StaticAdmission, ReservesWhatWasGrantedBefore) {
  StaticAdmission before(200, 2);
  std::vector<Grant> grants;
  for (int i = 0; i < 3; ++i) grants.push_back(*before.admit(60, UINT64_MAX));
  // In any order, after a restart.
  for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}}) {
    StaticAdmission after(200, 2);
    for (const int i : order) EXPECT_TRUE(after.reserve(grants[static_cast<size_t>(i)]));
    for (const Grant& grant : grants) EXPECT_FALSE(after.reserve(grant)) << "taken already";
    EXPECT_EQ(after.slots_reserved(), before.slots_reserved());
    EXPECT_EQ(after.admit(20, UINT64_MAX)->first_slot, 90u);
    for (const Grant& grant : grants) after.release(grant);
    EXPECT_TRUE(after.reserve(grants[1])) << "free again";
  }
  StaticAdmission smaller(100, 2);
  EXPECT_FALSE(smaller.reserve(grants[2]));
  EXPECT_FALSE(smaller.reserve({UINT32_MAX, 4, 1}));
  EXPECT_EQ(smaller.slots_reserved(), 0u);
}

TEST(SharedAdmission, WindowIsAMultipleOfTheLanesAndNotBoundToTheSlots) {
  SharedAdmission admission(64, 4);
  EXPECT_EQ(admission.admit(4099, 0, 0)->window, 4096u);
  EXPECT_EQ(admission.admit(0, 0, 0)->window, 4u) << "at least one fragment a lane";
  EXPECT_EQ(admission.admit(UINT64_MAX, 0, 0)->window % 4, 0u);
  EXPECT_LT(admission.admit(UINT64_MAX, 0, 0)->window, 1u << 31);
  EXPECT_EQ(admission.slots_reserved(), 0u) << "no floor, nothing promised";
}

TEST(SharedAdmission, FloorsOfAllJobsFitTheSlots) {
  SharedAdmission admission(64, 4);
  const auto first = admission.admit(16, 33, 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->floor_per_lane, 9u) << "rounded up, so that the floor holds";
  EXPECT_EQ(admission.slots_reserved(), 36u);
  const auto refused = admission.admit(16, 30, 0);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("floor needs 32 slots"), std::string::npos) << refused.error();
  EXPECT_NE(refused.error().find("28 of 64 are not promised"), std::string::npos);
  EXPECT_NE(refused.error().find("short by 4"), std::string::npos);
  EXPECT_EQ(admission.slots_reserved(), 36u) << "a refusal takes nothing";
  ASSERT_TRUE(admission.admit(16, 28, 0));
  admission.release(*first);
  EXPECT_TRUE(admission.admit(16, 36, 0));
}

TEST(SharedAdmission, CeilingIsNeverBelowTheFloor) {
  SharedAdmission admission(64, 4);
  EXPECT_EQ(admission.admit(16, 0, 0)->ceiling_per_lane, 16u) << "0: all";
  EXPECT_EQ(admission.admit(16, 0, 1000)->ceiling_per_lane, 16u);
  EXPECT_EQ(admission.admit(16, 8, 9)->ceiling_per_lane, 3u);
  const auto refused = admission.admit(16, 12, 4);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("ceiling of 4 slots is below its floor of 12"), std::string::npos)
      << refused.error();
}

TEST(MemoryBudget, RefusesWhatDoesNotFitAndNamesTheNumbers) {
  MemoryBudget budget(1000);
  ASSERT_TRUE(budget.take(700));
  const auto refused = budget.take(301);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("needs 301 bytes"), std::string::npos) << refused.error();
  EXPECT_NE(refused.error().find("300 of 1000 are free"), std::string::npos);
  EXPECT_NE(refused.error().find("short by 1"), std::string::npos);
  EXPECT_EQ(budget.used(), 700u);
  ASSERT_TRUE(budget.take(300));
  budget.give_back(700);
  EXPECT_EQ(budget.used(), 300u);
  EXPECT_FALSE(budget.take(UINT64_MAX));
}

}  // namespace
}  // namespace ina::scheduler
