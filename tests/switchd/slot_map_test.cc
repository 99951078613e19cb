// The sample of the slots that people are shown.
#include "switchd/reports/slot_map.h"

#include <gtest/gtest.h>

#include "tests/support/switch_fixture.h"

namespace ina::switchd {
namespace {

TEST(SlotSample, IsAllSlotsWhereThereAreFew) {
  EXPECT_EQ(SlotSample::of(1, 1).per_lane, 1u);
  EXPECT_EQ(SlotSample::of(512, 1).per_lane, 512u);
  EXPECT_EQ(SlotSample::of(512, 1).step, 1u);
  EXPECT_EQ(SlotSample::of(2048, 4).per_lane, 512u);
  EXPECT_EQ(SlotSample::of(2048, 4).step, 1u);
}

TEST(SlotSample, IsBoundedAndReachesTheLastSlots) {
  for (const uint32_t slots : {64u, 2049u, 4096u, 100'000u, 1u << 24})
    for (const uint32_t lanes : {1u, 3u, 64u}) {
      const SlotSample sample = SlotSample::of(slots, lanes);
      const uint32_t in_lane = slots / lanes;
      EXPECT_LE(sample.per_lane * lanes, SlotMap::kMostCells) << slots << " in " << lanes;
      EXPECT_LT((sample.per_lane - 1) * uint64_t{sample.step}, in_lane);
      EXPECT_GE(sample.per_lane * uint64_t{sample.step}, in_lane);
    }
}

TEST(SlotMap, OfASwitchWithoutJobsHasNothing) {
  test::TestSwitch ina_switch({.slots = 6000, .lanes = 2});
  const admin::Answer answer =
      ina_switch.conductor().admin().ask(admin::Question::kSlots, 60'000'000'000);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->at("slots"), 6000);
  EXPECT_EQ(answer->at("lanes"), 2);
  EXPECT_EQ(answer->at("slots_per_cell"), 3);
  EXPECT_EQ(answer->at("cells"), 2000);
  EXPECT_EQ(answer->at("columns").size(), 5u);
  EXPECT_TRUE(answer->at("used").empty());
}

}  // namespace
}  // namespace ina::switchd
