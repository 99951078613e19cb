// Straggler help in the shard: a fragment left behind leaves its slot, and late contributions
// follow it.
#include "tests/aggregator/park_fixture.h"

namespace ina::aggregator {
namespace {

TEST_F(ParkTest, WhatIsLeftBehindGoesToTheFallbackAndItsWorkersAreTold) {
  start(16);
  const JobIndex job = add_parking_job(0);
  const Verdict verdict = leave_behind(job);
  EXPECT_EQ(verdict.fate, Fate::kAbsorbed);
  ASSERT_EQ(verdict.emissions, 2);
  expect_part(verdict.emission[0], job, 0, 0b011_workers, {1 + 2});
  expect_parked(verdict.emission[1], To::kHolders, 0, 0b011_workers);
  EXPECT_EQ(counters().parked, 1u);
  EXPECT_EQ(counters().slots_used, 2u);
}

TEST_F(ParkTest, WhatComesLaterFollows) {
  start(16);
  const JobIndex job = add_parking_job(0);
  leave_behind(job);
  const Verdict late = grad(job, 2, 0, 100);
  EXPECT_EQ(late.fate, Fate::kForwarded);
  ASSERT_EQ(late.emissions, 1) << "the last one waits for the result";
  EXPECT_EQ(late.emission[0].to, To::kFallback);
  EXPECT_EQ(late.emission[0].message.flags, wire::kFlagRaw | wire::kFlagParked);
  EXPECT_EQ(late.emission[0].message.bitmap, 0b100_workers);
  expect_drop(grad(job, 2, 0, 100), DropReason::kDuplicate);
}

TEST_F(ParkTest, WhoComesLaterIsToldAndWaitsForWhoIsNear) {
  start(16);
  const JobIndex job = add_parking_job(0);
  for (uint64_t seq = 0; seq <= kParkAfter; ++seq) grad(job, 0, seq, 1);
  const Verdict late = grad(job, 1, 0, 2);
  EXPECT_EQ(late.fate, Fate::kAbsorbed);
  ASSERT_EQ(late.emissions, 1);
  expect_parked(late.emission[0], To::kSender, 0);
  const Verdict last = grad(job, 2, 0, 40);
  ASSERT_EQ(last.emissions, 1) << "the last one waits for the result";
  expect_part(last.emission[0], job, 0, 0b110_workers, {42});
  EXPECT_EQ(last.emission[0].message.flags, wire::kFlagParked);
}

TEST_F(ParkTest, OnlyWhoIsNearIsWaitedFor) {
  window_ = 2 * kNearFragments;
  start(2 * kNearFragments);
  const JobIndex job = add_parking_job(0);
  for (uint64_t seq = 0; seq <= kNearFragments + kParkAfter; ++seq) grad(job, 0, seq, 1);
  EXPECT_EQ(counters().parked, kNearFragments + 1);
  // Rank 2 is at fragment 0.
  const Verdict near = grad(job, 1, kNearFragments - 1, 2);
  EXPECT_EQ(near.fate, Fate::kAbsorbed);
  const Verdict far = grad(job, 1, kNearFragments, 2);
  EXPECT_EQ(far.fate, Fate::kForwarded);
  ASSERT_EQ(far.emissions, 2);
  EXPECT_EQ(far.emission[0].to, To::kFallback);
  EXPECT_EQ(far.emission[0].message.bitmap, 0b010_workers);
}

TEST_F(ParkTest, WhatComesLateTogetherGoesToWhoKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  for (uint64_t seq = 0; seq <= kParkAfter; ++seq) grad(job, 0, seq, 1);
  grad(job, 1, 0, 2);
  const Verdict last = grad(job, 2, 0, 40);
  expect_part_to_parker(last, 0b110_workers);
}

TEST_F(ParkTest, WhoHasMadeAResultIsNotToldOfIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  grad(job, 2, 0, 100);
  const Verdict verdict = say({.type = Type::kResult,
                               .job = job,
                               .rank = 0,
                               .values = {103},
                               .flags = wire::kFlagKept,
                               .origin = wire::Origin::kParker});
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_EQ(verdict.emission[0].to, To::kHolders);
  EXPECT_EQ(verdict.emission[0].message.bitmap, 0b110_workers);
  EXPECT_EQ(verdict.emission[0].message.flags, 0u);
}

/// On a slow link the fallback's polls, and answers to them, would take the place of results.
TEST_F(ParkTest, WhoAsksForWhatIsKeptIsToldToWait) {
  for (const uint32_t park_room : {0u, 4u}) {
    SCOPED_TRACE(park_room);
    start_lossy();
    const JobIndex job = add_parking_job(park_room);
    const auto ask = [&](uint32_t rank, uint16_t flags = wire::kFlagQuick) {
      return say({.type = Type::kQuery, .job = job, .rank = rank, .flags = flags});
    };
    leave_behind(job);
    Verdict verdict = ask(0);
    ASSERT_EQ(verdict.emissions, 1);
    expect_parked(verdict.emission[0], To::kSender, 0);
    verdict = ask(2);
    ASSERT_EQ(verdict.emissions, 1) << "its own contribution was lost";
    EXPECT_EQ(verdict.emission[0].to, To::kHolders);
    EXPECT_EQ(verdict.emission[0].message.type, Type::kPoll);
    EXPECT_EQ(verdict.emission[0].message.phase, wire::Phase::kLost);
    EXPECT_EQ(verdict.emission[0].message.bitmap, 0b100_workers);
    grad(job, 2, 0, 100);
    verdict = ask(2);
    ASSERT_EQ(verdict.emissions, 1);
    expect_parked(verdict.emission[0], To::kSender, 0);
    verdict = ask(2, 0);
    ASSERT_EQ(verdict.emissions, 1) << "it may have been lost on its way there";
    EXPECT_EQ(verdict.emission[0].to, To::kFallback);
  }
}

/// The fallback would poll all workers, and hear from the slow one that it has not got that far.
TEST_F(ParkTest, TheFallbackIsNotAskedWhileTheSlowOneComes) {
  for (const uint32_t park_room : {0u, 4u}) {
    SCOPED_TRACE(park_room);
    window_ = 16;
    start_lossy();
    const JobIndex job = add_parking_job(park_room);
    leave_behind(job);
    EXPECT_EQ(asked_for(job, 0, 0, 0), To::kFallback) << "it has sent nothing";
    grad(job, 1, kParkAfter, 21);
    grad(job, 0, kParkAfter + 1, 31);
    grad(job, 2, 0, 100);
    EXPECT_EQ(asked_for(job, 1, 0, 0), To::kSender);
    EXPECT_EQ(asked_for(job, 0, 0, 0), To::kFallback) << "all have sent that";
    now_ += 1;
    EXPECT_EQ(asked_for(job, 1, 0, 0), To::kFallback) << "it may have stopped";
  }
}

/// Results of a keeper come in order: what it has kept for longer was lost. So the fallback is to
/// find out.
TEST_F(ParkTest, WhatAKeeperShouldHaveGivenOutIsAskedForAtTheFallback) {
  window_ = 16;
  start_lossy();
  const JobIndex job = add_parking_job(4);
  std::vector<Rank> keepers;
  for (uint64_t seq = 0; seq < 4 + kParkAfter; ++seq) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const Verdict verdict = grad(job, rank, seq, 1);
      if (verdict.emissions != 0) keepers.push_back(verdict.emission[0].worker);
    }
  }
  ASSERT_EQ(keepers.size(), 4u);
  ASSERT_EQ(keepers[1], keepers[3]) << "the least loaded one in turn";
  ASSERT_NE(keepers[2], keepers[3]);
  for (uint64_t seq = 0; seq < 4; ++seq) grad(job, 2, seq, 1);
  EXPECT_EQ(asked_for(job, 1), To::kSender);
  say({.type = Type::kResult,
       .job = job,
       .rank = value(keepers[3]),
       .seq = 3,
       .values = {3},
       .origin = wire::Origin::kParker});
  EXPECT_EQ(asked_for(job, 1), To::kFallback);
  EXPECT_EQ(asked_for(job, 2), To::kSender) << "another one keeps it";
}

TEST_F(ParkTest, WhatAHomeShouldHaveDecidedIsAskedForThere) {
  window_ = 16;
  start_lossy();
  const JobIndex job = add_parking_job(0);
  for (uint64_t seq = 0; seq < 4 + kParkAfter; ++seq)
    for (uint32_t rank = 0; rank < 2; ++rank) grad(job, rank, seq, 1);
  for (uint64_t seq = 0; seq < 4; ++seq) grad(job, 2, seq, 1);
  EXPECT_EQ(asked_for(job, 0), To::kSender);
  say({.type = Type::kResult,
       .job = job,
       .rank = value(home_of(Seq{3}, 3)),
       .seq = 3,
       .values = {3},
       .origin = wire::Origin::kFallback,
       .bitmap = 0b111_workers});
  EXPECT_EQ(asked_for(job, 0), To::kFallback) << "its home is that of fragment 3";
  EXPECT_EQ(asked_for(job, 1), To::kSender);
}

TEST_F(ParkTest, AKeptResultThatWasGivenOutIsGivenAgain) {
  start_lossy();
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  grad(job, 2, 0, 100);
  result_of_parker(job, 0, {103});
  const Verdict verdict =
      say({.type = Type::kQuery, .job = job, .rank = 1, .flags = wire::kFlagQuick});
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_EQ(verdict.emission[0].to, To::kSender);
  EXPECT_EQ(verdict.emission[0].message.type, Type::kResult);
  EXPECT_EQ(values_of(verdict.emission[0]), Values{103});
}

TEST_F(ParkTest, WhatIsParkedIsCounted) {
  start(16);
  const JobIndex job = add_parking_job(1, Home::kDedicated);
  for (uint64_t seq = 0; seq < 2; ++seq) grad(job, 0, seq, 1);
  grad(job, 0, 2, 1);  // kept by rank 0
  grad(job, 0, 3, 1);  // by the fallback: it has no more room
  EXPECT_EQ(parked_now(job), 2u);
  result_of_parker(job, 0, {1000});
  EXPECT_EQ(parked_now(job), 1u);
  say({.type = Type::kResult,
       .job = job,
       .rank = value(kFallbackRank),
       .seq = 1,
       .values = {1000},
       .origin = wire::Origin::kFallback});
  EXPECT_EQ(parked_now(job), 0u);
  EXPECT_EQ(aggregator_->job_counters(job).parked_now_peak, 2u);
  EXPECT_EQ(aggregator_->job_counters(job).parker_results, 1u);
}

TEST_F(ParkTest, WhoseSlotWasTakenIsNotParked) {
  start(1, scheduler::PolicyOptions{.kind = PolicyKind::kEsa});
  const JobIndex job = add_parking_job(0);
  grad(job, 0, 0, 1, 10);
  grad(job, 0, 1, 1, 20);  // takes the only slot
  grad(job, 0, 2, 1, 30);
  EXPECT_EQ(counters().preemptions, 2u);
  EXPECT_EQ(counters().parked, 0u);
  Verdict verdict;
  grad(job, 0, 3, 1, 5);  // finds no slot
  ASSERT_TRUE(aggregator_->park_overdue(job, 0, verdict));
  ASSERT_EQ(verdict.emissions, 1) << "the fallback has it; it takes no place in the switch";
  expect_parked(verdict.emission[0], To::kHolders, 0, 0b001_workers);
  EXPECT_EQ(counters().parked, 0u);
}

}  // namespace
}  // namespace ina::aggregator
