// The workers found late, by the contributions that fragments wait for.
#include "aggregator/late_workers.h"

#include <gtest/gtest.h>

#include "tests/support/worker_literal.h"

namespace ina::aggregator {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr Nanos kPatience = 1'000;
constexpr WorkerSet kAll = 0b1111_workers;

JobSpec spec_of(bool if_it_pays = false) {
  JobSpec spec;
  spec.workers = kWorkers;
  spec.park_window = 64;
  spec.park_begin = 4;
  spec.park_pressure = 8;
  spec.park_patience = kPatience;
  spec.park_if_it_pays = if_it_pays;
  return spec;
}

class LateWorkersTest : public ::testing::Test {
 protected:
  /// True if a fragment with these contributions waits for late workers alone, if the newest one is
  /// `behind` fragments further.
  bool late_only(WorkerSet bits, Nanos now, uint64_t behind = 100, WorkerSet at_fallback = {}) {
    Slot slot;
    slot.seq = Seq{10};
    slot.bits = bits;
    slot.at_fallback = at_fallback;
    return late_.are_all_awaited_by(slot, kAll, Seq{10 + behind}, now);
  }
  LateWorkers late_{spec_of()};
};

TEST_F(LateWorkersTest, WhoeverHoldsOthersUpIsLateWhenPatienceIsOver) {
  EXPECT_FALSE(late_only(0b0111_workers, 0));
  EXPECT_FALSE(late_only(0b0111_workers, kPatience - 1));
  EXPECT_TRUE(late_only(0b0111_workers, kPatience));
  EXPECT_TRUE(late_only(0b0111_workers, kPatience)) << "and stays so";
  EXPECT_FALSE(late_only(0b0011_workers, kPatience)) << "another one is not";
}

TEST_F(LateWorkersTest, PatienceBeginsAgainWithAnother) {
  EXPECT_FALSE(late_only(0b0111_workers, 0));
  EXPECT_FALSE(late_only(0b1101_workers, kPatience - 1));
  EXPECT_FALSE(late_only(0b1101_workers, kPatience));
  EXPECT_TRUE(late_only(0b1101_workers, 2 * kPatience - 1));
}

TEST_F(LateWorkersTest, PatienceBeginsAgainWhenNobodyHasWaited) {
  EXPECT_FALSE(late_only(0b0111_workers, 0));
  late_.nobody_waits();
  EXPECT_FALSE(late_only(0b0111_workers, kPatience));
  EXPECT_TRUE(late_only(0b0111_workers, 2 * kPatience));
}

/// One worker is slow for good, and another one a few fragments behind the first.
TEST_F(LateWorkersTest, WhoIsNearIsWaitedForWhereOneIsAlwaysSlow) {
  constexpr Nanos kHalfHorizon = JobSpec::kHorizonPatiences * kPatience / 2;
  late_ = LateWorkers(spec_of(true));
  const auto soon = [this](WorkerSet bits, uint64_t behind) {
    Slot slot;
    slot.seq = Seq{1000};
    slot.bits = bits;
    return late_.soon_waits_for_one(slot, kAll, Seq{1000 + behind});
  };
  for (uint8_t rank = 0; rank < 3; ++rank) late_.came(Rank{rank}, Seq{rank == 2 ? 997u : 1004u});
  late_.watch(0);
  EXPECT_FALSE(soon(0b0011_workers, 4)) << "it may only be its turn";
  late_.watch(kHalfHorizon);
  EXPECT_TRUE(soon(0b0011_workers, 4));
  EXPECT_FALSE(soon(0b0111_workers, 4)) << "the slowest alone is missing";
  EXPECT_FALSE(soon(0b1011_workers, 4)) << "it is not";
  EXPECT_FALSE(soon(0b0011_workers, 9)) << "others are held up";
  late_.came(Rank{3}, Seq{1002});
  late_.watch(kHalfHorizon + 3 * kPatience);
  EXPECT_TRUE(soon(0b0011_workers, 4)) << "another one is the slowest for a moment";
  late_.watch(kHalfHorizon + 4 * kPatience);
  EXPECT_FALSE(soon(0b0011_workers, 4)) << "another one is the slowest now";
}

TEST_F(LateWorkersTest, WhoIsFarIsNotWaitedFor) {
  constexpr Nanos kHalfHorizon = JobSpec::kHorizonPatiences * kPatience / 2;
  late_ = LateWorkers(spec_of(true));
  for (uint8_t rank = 0; rank < 3; ++rank) late_.came(Rank{rank}, Seq{rank == 2 ? 900u : 1004u});
  late_.watch(0);
  late_.watch(kHalfHorizon);
  Slot slot;
  slot.seq = Seq{1000};
  slot.bits = 0b0011_workers;
  EXPECT_FALSE(late_.soon_waits_for_one(slot, kAll, Seq{1004}));
}

TEST_F(LateWorkersTest, WhoHasSentSomethingLatelyIsComing) {
  constexpr WorkerSet kSlow = 0b1100_workers;
  late_.watch(0);
  EXPECT_FALSE(late_.are_coming(kSlow, Seq{10}, 0)) << "they have sent nothing";
  late_.came(Rank{2}, Seq{5});
  late_.came(Rank{3}, Seq{6});
  late_.watch(kPatience);
  EXPECT_TRUE(late_.are_coming(kSlow, Seq{10}, kPatience));
  EXPECT_FALSE(late_.are_coming(kAll, Seq{10}, kPatience)) << "two have sent nothing";
  EXPECT_FALSE(late_.are_coming({}, Seq{10}, kPatience)) << "nobody is waited for";
  late_.came(Rank{2}, Seq{9});
  late_.watch(8 * kPatience);
  EXPECT_TRUE(late_.are_coming(kSlow, Seq{10}, 11 * kPatience));
  EXPECT_FALSE(late_.are_coming(kSlow, Seq{10}, 12 * kPatience)) << "rank 3 may have stopped";
  late_.came(Rank{2}, Seq{10});
  late_.came(Rank{3}, Seq{9});
  late_.watch(12 * kPatience);
  EXPECT_TRUE(late_.are_coming(kSlow, Seq{11}, 12 * kPatience));
  EXPECT_FALSE(late_.are_coming(kSlow, Seq{10}, 12 * kPatience)) << "rank 2 has sent that";
}

TEST_F(LateWorkersTest, AFragmentThatIsHardlyBehindHoldsNobodyUp) {
  // Nothing was parked lately: help begins further behind.
  EXPECT_FALSE(late_only(0b0111_workers, 0, 4));
  EXPECT_FALSE(late_only(0b0111_workers, kPatience, 4));
  EXPECT_FALSE(late_only(0b0111_workers, 2 * kPatience, 9));
  EXPECT_TRUE(late_only(0b0111_workers, 3 * kPatience, 9));
}

TEST_F(LateWorkersTest, AFullWindowIsHeldUpHoweverNear) {
  late_.count_parked(0);
  EXPECT_FALSE(late_only(0b0111_workers, 1, 8));
  EXPECT_FALSE(late_only(0b0111_workers, 1 + kPatience, 8)) << "nobody's window is full";
  late_.set_out_of_room(Rank{3}, true);
  EXPECT_FALSE(late_only(0b0111_workers, 2 + kPatience, 8));
  EXPECT_FALSE(late_only(0b0111_workers, 2 + 2 * kPatience, 8))
      << "that is the worker that is waited for";
  late_.set_out_of_room(Rank{0}, true);
  EXPECT_FALSE(late_only(0b0111_workers, 3 + 2 * kPatience, 8));
  EXPECT_TRUE(late_only(0b0111_workers, 3 + 3 * kPatience, 8));
  late_.set_out_of_room(Rank{0}, false);
}

TEST_F(LateWorkersTest, HelpThatGoesOnBeginsNearer) {
  late_.set_out_of_room(Rank{0}, true);
  late_.count_parked(0);
  const Nanos horizon = JobSpec::kHorizonPatiences * kPatience;
  EXPECT_FALSE(late_only(0b0111_workers, 1, 4));
  EXPECT_TRUE(late_only(0b0111_workers, 1 + kPatience, 4));
  late_.forget();
  late_.set_out_of_room(Rank{0}, true);
  EXPECT_FALSE(late_only(0b0111_workers, horizon, 4));
  EXPECT_FALSE(late_only(0b0111_workers, horizon + kPatience, 4))
      << "nothing was parked for so long";
}

TEST_F(LateWorkersTest, WhatTheFallbackHasIsNotMissing) {
  EXPECT_FALSE(late_only(0b0011_workers, 0, 100, 0b0100_workers));
  EXPECT_TRUE(late_only(0b0011_workers, kPatience, 100, 0b0100_workers));
  EXPECT_FALSE(late_only(0b0011_workers, kPatience)) << "rank 2 is not late";
}

TEST_F(LateWorkersTest, WhoeverCatchesUpIsLateNoMore) {
  EXPECT_FALSE(late_only(0b0111_workers, 0));
  EXPECT_TRUE(late_only(0b0111_workers, kPatience));
  late_.caught_up(Rank{3});
  late_.nobody_waits();
  EXPECT_FALSE(late_only(0b0111_workers, kPatience));
}

TEST_F(LateWorkersTest, AnotherEpochKnowsOfNobody) {
  EXPECT_FALSE(late_only(0b0111_workers, 0));
  EXPECT_TRUE(late_only(0b0111_workers, kPatience));
  late_.forget();
  EXPECT_FALSE(late_only(0b0111_workers, 2 * kPatience));
}

TEST_F(LateWorkersTest, ProgressIsThatOfTheNewestFragment) {
  late_.came(Rank{1}, Seq{7});
  late_.came(Rank{1}, Seq{5});
  EXPECT_EQ(late_.progress(Rank{1}), Seq{8});
  EXPECT_EQ(late_.slowest(), Seq{0});
  for (uint8_t rank = 0; rank < kWorkers; ++rank) late_.came(Rank{rank}, Seq{6});
  EXPECT_EQ(late_.slowest(), Seq{7});
}

TEST_F(LateWorkersTest, HelpThatIsNotToPayNeverRests) {
  late_.help().messages = 1'000'000;
  for (Nanos now = 0; now < 1'000'000'000; now += 1'000'000) EXPECT_TRUE(late_.help_pays(now));
  EXPECT_FALSE(late_.wakes(1'000'000'000));
}

/// Nobody gets ahead, and help loads the links.
class CostlyHelp : public ::testing::Test {
 protected:
  /// The job goes on until `until`. True: help paid all the time.
  bool run_until(Nanos until) {
    for (; now_ < until; now_ += kPatience) {
      for (uint8_t rank = 0; rank < kWorkers; ++rank) late_.came(Rank{rank}, Seq{fragment_});
      ++fragment_;
      late_.count_parked(now_);
      late_.help().messages += kWorkers;
      if (!late_.help_pays(now_)) return false;
    }
    return true;
  }
  static constexpr Nanos kHorizon = JobSpec::kHorizonPatiences * kPatience;
  LateWorkers late_{spec_of(true)};
  Nanos now_ = 0;
  uint64_t fragment_ = 0;
};

TEST_F(CostlyHelp, RestsAndIsTriedAgain) {
  ASSERT_FALSE(run_until(100 * kHorizon));
  const Nanos rest = JobSpec::kRestHorizons * kHorizon;
  EXPECT_FALSE(late_.help_pays(now_ + rest - 1));
  EXPECT_FALSE(late_.wakes(now_ + rest - 1));
  EXPECT_TRUE(late_.wakes(now_ + rest));
  EXPECT_FALSE(late_.wakes(now_ + rest)) << "once";
}

TEST_F(CostlyHelp, RestsLongerTheSecondTime) {
  ASSERT_FALSE(run_until(100 * kHorizon));
  const Nanos rest = JobSpec::kRestHorizons * kHorizon;
  now_ += rest;
  ASSERT_TRUE(late_.wakes(now_));
  ASSERT_FALSE(run_until(now_ + rest - 1));
  EXPECT_FALSE(late_.wakes(now_ + 2 * rest - 1));
  EXPECT_TRUE(late_.wakes(now_ + 2 * rest));
}

TEST_F(CostlyHelp, ForgetsWhoIsLate) {
  Slot slot;
  slot.bits = 0b0111_workers;
  EXPECT_FALSE(late_.are_all_awaited_by(slot, kAll, Seq{100}, 0));
  EXPECT_TRUE(late_.are_all_awaited_by(slot, kAll, Seq{100}, kPatience));
  ASSERT_FALSE(run_until(100 * kHorizon));
  EXPECT_FALSE(late_.are_all_awaited_by(slot, kAll, Seq{100}, now_));
}

}  // namespace
}  // namespace ina::aggregator
