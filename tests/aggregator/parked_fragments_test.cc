#include "aggregator/parked_fragments.h"

#include <gtest/gtest.h>

#include <array>

namespace ina::aggregator {
namespace {

class ParkedFragmentsTest : public testing::Test {
 protected:
  static constexpr uint32_t kWindow = 4;
  static constexpr uint32_t kLanes = 2;
  static constexpr uint64_t kLap = 2 * kWindow / kLanes;
  static constexpr uint64_t kFirst = 100;

  static JobSpec spec(uint8_t* keepers) {
    JobSpec spec;
    spec.window = kWindow;
    spec.parked_at = keepers;
    return spec;
  }

  std::array<uint8_t, kLap> keepers_{};
  JobCounters counters_;
  ParkedFragments parked_{spec(keepers_.data()), kFirst, kLanes};
};

TEST_F(ParkedFragmentsTest, FragmentsAreLeftBehindInOrder) {
  EXPECT_FALSE(parked_.left_behind(kFirst));
  parked_.pass_next();
  EXPECT_TRUE(parked_.left_behind(kFirst));
  EXPECT_EQ(parked_.next(), kFirst + 1);
  parked_.pass_below(kFirst + 5);
  EXPECT_TRUE(parked_.left_behind(kFirst + 4));
  parked_.pass_below(kFirst);
  EXPECT_EQ(parked_.next(), kFirst + 5) << "what was passed stays passed";
}

TEST_F(ParkedFragmentsTest, AWorkerKeepsAFragmentUntilItHasAResult) {
  parked_.park(kFirst, Rank{3}, counters_);
  EXPECT_EQ(parked_.keeper(kFirst), Rank{3});
  EXPECT_EQ(parked_.load(Rank{3}), 1u);
  EXPECT_EQ(counters_.parked_now, 1u);
  parked_.forget(kFirst, counters_);
  parked_.forget(kFirst, counters_);
  EXPECT_EQ(parked_.keeper(kFirst), std::nullopt);
  EXPECT_EQ(parked_.load(Rank{3}), 0u);
  EXPECT_EQ(counters_.parked_now, 0u);
  EXPECT_EQ(counters_.parked_now_peak, 1u);
}

TEST_F(ParkedFragmentsTest, WhatTheFallbackKeepsLoadsNoWorker) {
  parked_.park(kFirst, std::nullopt, counters_);
  parked_.park(kFirst + 1, Rank{0}, counters_);
  parked_.move_home(kFirst + 1);
  EXPECT_EQ(parked_.keeper(kFirst), std::nullopt);
  EXPECT_EQ(parked_.keeper(kFirst + 1), std::nullopt);
  EXPECT_EQ(parked_.load(Rank{0}), 0u);
  EXPECT_EQ(counters_.parked_now, 2u);
  parked_.forget(kFirst, counters_);
  parked_.forget(kFirst + 1, counters_);
  EXPECT_EQ(parked_.load(Rank{0}), 0u);
  EXPECT_EQ(counters_.parked_now, 0u);
}

TEST_F(ParkedFragmentsTest, AnotherEpochForgetsAll) {
  for (uint64_t i = 0; i < kLap; ++i) parked_.park(kFirst + i, Rank{1}, counters_);
  parked_.forget_all(counters_);
  EXPECT_EQ(keepers_, (std::array<uint8_t, kLap>{}));
  EXPECT_EQ(parked_.load(Rank{1}), 0u);
  EXPECT_EQ(counters_.parked_now, 0u);
  EXPECT_EQ(counters_.parked_now_peak, kLap);
}

TEST_F(ParkedFragmentsTest, WithoutARingNoKeeperIsKnown) {
  ParkedFragments parked(spec(nullptr), kFirst, kLanes);
  EXPECT_FALSE(parked.knows_keepers());
  parked.park(kFirst, std::nullopt, counters_);
  parked.forget(kFirst, counters_);
  parked.forget_all(counters_);
  EXPECT_EQ(parked.keeper(kFirst), std::nullopt);
  EXPECT_EQ(counters_.parked_now_peak, 0u);
}

}  // namespace
}  // namespace ina::aggregator
