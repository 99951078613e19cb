// Straggler help in the shard: the workers that keep sums left behind.
#include "tests/aggregator/park_fixture.h"

namespace ina::aggregator {
namespace {

TEST_F(ParkTest, OnlyWhoCanKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  aggregator_->set_parker(job, Rank{0}, false);
  EXPECT_EQ(leave_behind(job).emission[0].worker, Rank{1});
  aggregator_->set_parker(job, Rank{1}, false);
  EXPECT_EQ(grad(job, 0, kParkAfter + 1, 31).emission[0].to, To::kFallback);
}

TEST_F(ParkTest, WhatTooManyAreMissingOfGoesToTheFallback) {
  start(16);
  const JobIndex job = add_parking_job(2, Home::kWorkers, 1);
  grad(job, 0, 0, 1);
  grad(job, 0, 1, 1);
  grad(job, 1, 1, 1);
  const Verdict two = grad(job, 0, 2, 1);  // of fragment 0 ranks 1 and 2 are missing
  ASSERT_EQ(two.emissions, 2);
  expect_part(two.emission[0], job, 0, 0b001_workers, {1});
  const Verdict one = grad(job, 0, 3, 1);
  ASSERT_EQ(one.emissions, 2);
  EXPECT_EQ(one.emission[0].to, To::kWorker);
  EXPECT_EQ(one.emission[0].message.type, Type::kPark);
}

TEST_F(ParkTest, WhoIsWaitedForAloneDoesNotKeepIt) {
  park_home_ = true;
  start(16);
  const JobIndex job = add_parking_job(4);
  // Rank 1 is slow, and home to fragment 1.
  for (uint64_t seq = 0; seq < kParkAfter; ++seq)
    for (const uint32_t rank : {0, 2}) expect_held(grad(job, rank, seq, 1));
  const Verdict others = grad(job, 0, 2, 1);
  ASSERT_EQ(others.emissions, 2);
  expect_part(others.emission[0], job, 0, 0b101_workers, {2});
  const Verdict own = grad(job, 0, 3, 1);
  ASSERT_EQ(own.emissions, 2);
  EXPECT_EQ(own.emission[0].message.seq, 1u);
  EXPECT_EQ(own.emission[0].to, To::kWorker);
  EXPECT_EQ(own.emission[0].message.type, Type::kPark);
  EXPECT_EQ(grad(job, 1, 0, 100).emission[0].to, To::kFallback);
  EXPECT_EQ(grad(job, 1, 1, 100).emission[0].to, To::kWorker) << "it follows";
}

TEST_F(ParkTest, WhatMoreAreMissingOfTheirHomeKeeps) {
  park_home_ = true;
  start(16);
  const JobIndex job = add_parking_job(4);
  for (uint64_t seq = 0; seq <= kParkAfter; ++seq) grad(job, 0, seq, 1);
  const Verdict verdict = grad(job, 0, kParkAfter + 1, 1);  // fragment 1: of ranks 1 and 2
  ASSERT_EQ(verdict.emissions, 2);
  EXPECT_EQ(verdict.emission[0].message.seq, 1u);
  EXPECT_EQ(verdict.emission[0].to, To::kFallback);
}

TEST_F(ParkTest, TheLeastLoadedLeaderKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  const Verdict first = leave_behind(job);
  ASSERT_EQ(first.emissions, 2);
  EXPECT_EQ(first.emission[0].to, To::kWorker);
  EXPECT_EQ(first.emission[0].worker, Rank{0});
  EXPECT_EQ(first.emission[0].message.type, Type::kPark);
  EXPECT_EQ(first.emission[0].message.bitmap, 0b011_workers);
  EXPECT_EQ(values_of(first.emission[0]), Values({1 + 2}));
  const Verdict second = grad(job, 0, kParkAfter + 1, 31);
  ASSERT_EQ(second.emissions, 2);
  EXPECT_EQ(second.emission[0].worker, Rank{1});
}

TEST_F(ParkTest, WhoHasNoRoomIsSpared) {
  start(16);
  const JobIndex job = add_parking_job(1, Home::kDedicated);
  grad(job, 0, 0, 1);
  grad(job, 0, 1, 11);
  EXPECT_EQ(grad(job, 0, 2, 21).emission[0].to, To::kWorker);
  EXPECT_EQ(grad(job, 0, 3, 31).emission[0].to, To::kFallback) << "nobody else has contributed";
  result_of_parker(job, 0, {1000});
  EXPECT_EQ(grad(job, 0, 4, 41).emission[0].to, To::kWorker) << "has given out what it kept";
}

TEST_F(ParkTest, WhatComesLaterGoesToWhoKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  const Verdict late = grad(job, 2, 0, 100);
  expect_part_to_parker(late, 0b100_workers);
}

TEST_F(ParkTest, ItsResultIsGivenToAllOnce) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  grad(job, 2, 0, 100);
  const Verdict verdict = result_of_parker(job, 0, {103});
  EXPECT_EQ(verdict.fate, Fate::kForwarded);
  ASSERT_EQ(verdict.emissions, 1);
  expect_result(verdict.emission[0], 0, {103}, wire::Origin::kParker);
  EXPECT_EQ(counters().parker_results, 1u);
  expect_drop(result_of_parker(job, 0, {103}), DropReason::kNotHome);
}

TEST_F(ParkTest, NobodyElseMayGiveItOut) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  expect_drop(result_of_parker(job, 1, {103}), DropReason::kNotHome);
  expect_drop(part_of_parker(job, 1, 0b011_workers, {3}), DropReason::kNotHome);
  expect_drop(say({.type = Type::kResult,
                   .job = job,
                   .rank = 0,
                   .values = {103},
                   .epoch = kEpoch - 1,
                   .origin = wire::Origin::kParker}),
              DropReason::kStaleEpoch);
}

TEST_F(ParkTest, WhatItPassesOnGoesToTheFallbackAndSoDoesAllElse) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  const Verdict verdict = part_of_parker(job, 0, 0b011_workers, {3});
  EXPECT_EQ(verdict.fate, Fate::kForwarded);
  ASSERT_EQ(verdict.emissions, 1);
  expect_part(verdict.emission[0], job, 0, 0b011_workers, {3});
  EXPECT_EQ(verdict.emission[0].message.origin, wire::Origin::kNone);
  EXPECT_EQ(grad(job, 2, 0, 100).emission[0].to, To::kFallback);
  expect_drop(part_of_parker(job, 0, 0b011_workers, {3}), DropReason::kNotHome);
  expect_drop(result_of_parker(job, 0, {103}), DropReason::kNotHome);
}

TEST_F(ParkTest, WhatHasPartlyLeftIsNotKeptByAWorker) {
  start(16);
  const JobIndex job = add_parking_job(4);
  grad(job, 0, 0, 1);
  say({.type = Type::kRemind, .job = job, .rank = 0});  // rank 0 is its home
  grad(job, 1, 0, 2);
  grad(job, 0, 1, 11);
  const Verdict verdict = grad(job, 0, 2, 21);
  ASSERT_EQ(verdict.emissions, 2);
  expect_part(verdict.emission[0], job, 0, 0b010_workers, {2});
}

TEST_F(ParkTest, ANewEpochForgetsWhoKeepsWhat) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  aggregator_->new_epoch(job, kEpoch + 1, kInstance + 1, nullptr);
  expect_drop(say({.type = Type::kResult,
                   .job = job,
                   .rank = 0,
                   .values = {103},
                   .epoch = kEpoch + 1,
                   .origin = wire::Origin::kParker}),
              DropReason::kNotHome);
}

}  // namespace
}  // namespace ina::aggregator
