// The aggregator shard under `esa`: preemption, the worth of slots, numbers and epochs. Receive
// this, expect that.
#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

// ---- esa: preemption

TEST_F(PolicyTest, LastContributionCompletesAndFreesTheSlot) {
  start(16);
  const JobIndex job = add_job(2);
  expect_held(grad(job, 0, 0, 1));
  expect_drop(grad(job, 0, 0, 1), DropReason::kDuplicate);
  const Verdict last = grad(job, 1, 0, 10);
  ASSERT_EQ(last.emissions, 1);
  expect_result(last.emission[0], 0, {11});
  EXPECT_EQ(counters().slots_used, 0u);
  // No slot answers for it any more: the fallback does.
  expect_drop(grad(job, 1, 0, 10), DropReason::kDuplicate);
}

TEST_F(PolicyTest, CongestionOnTheWayInIsToldWithTheResult) {
  start(16);
  const JobIndex job = add_job(2);
  say({.job = job, .rank = 0, .values = {1}, .flags = wire::kFlagEcn | wire::kFlagOverflow});
  const Verdict last = grad(job, 1, 0, 10);
  ASSERT_EQ(last.emissions, 1);
  EXPECT_EQ(last.emission[0].message.flags, wire::kFlagEcn) << "and nothing else of a worker's";
}

TEST_F(PolicyTest, CongestionOnTheWayInIsToldToTheFallback) {
  start(1);
  const JobIndex job = add_job(2);
  const uint16_t marked = wire::kFlagEcn | wire::kFlagOverflow;
  say({.job = job, .rank = 0, .seq = 0, .values = {1}, .flags = marked});
  const Verdict bypassed = say({.job = job, .rank = 0, .seq = 1, .values = {1}, .flags = marked});
  ASSERT_EQ(bypassed.emissions, 1);
  EXPECT_EQ(bypassed.emission[0].message.flags, wire::kFlagRaw | wire::kFlagEcn);
  const Verdict victim = grad(job, 0, 2, 1, 200);
  ASSERT_EQ(victim.emissions, 1);
  EXPECT_EQ(victim.emission[0].message.seq, 0u);
  EXPECT_EQ(victim.emission[0].message.flags, wire::kFlagEcn);
}

TEST_F(PolicyTest, VictimLeavesAsPartInTheSameVerdict) {
  start(1);
  const JobIndex victim = add_job(3);
  const JobIndex urgent = add_job(2);
  grad(victim, 2, 0, 1);
  grad(victim, 0, 0, 10);
  const Verdict verdict = grad(urgent, 0, 1, 7, 11);
  EXPECT_EQ(verdict.fate, Fate::kAbsorbed);
  ASSERT_EQ(verdict.emissions, 1);
  expect_part(verdict.emission[0], victim, 0, 0b101_workers, {11});
  EXPECT_EQ(counters().preemptions, 1u);
  EXPECT_EQ(aggregator_->job_counters(victim).preempted, 1u);
  EXPECT_EQ(aggregator_->job_counters(victim).slots_held, 0u);
  EXPECT_EQ(aggregator_->job_counters(urgent).slots_held, 1u);
  expect_result(grad(urgent, 1, 1, 70, 1).emission[0], 1, {77});
}

TEST_F(PolicyTest, WhatLostItsSlotIsStillKnownToWait) {
  start(1);
  const JobIndex victim = add_job(3);
  const JobIndex urgent = add_job(2);
  grad(victim, 2, 0, 1);
  grad(urgent, 0, 1, 7, 11);
  ASSERT_EQ(aggregator_->job_counters(victim).slots_held, 0u);
  const auto waiting = aggregator_->oldest_waiting(victim);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->seq, Seq{0});
  EXPECT_EQ(waiting->missing, 0b011_workers);
  EXPECT_FALSE(waiting->signature) << "the slot had it";
  grad(victim, 0, 0, 1);
  grad(victim, 1, 0, 1);
  EXPECT_FALSE(aggregator_->oldest_waiting(victim)) << "nobody's contribution is missing";
}

TEST_F(PolicyTest, WhatLeftStaysIntactUntilTheNextBurst) {
  start(1);
  const JobIndex job = add_job(2);
  const std::vector<Said> rising{{.job = job, .seq = 0, .values = {1, 2}, .priority = 1},
                                 {.job = job, .seq = 1, .values = {3, 4}, .priority = 2},
                                 {.job = job, .seq = 2, .values = {5, 6}, .priority = 3},
                                 {.job = job, .seq = 3, .values = {7, 8}, .priority = 4}};
  const std::vector<Verdict> verdicts = burst(rising);
  expect_held(verdicts[0]);
  for (uint32_t i = 1; i < kBurst; ++i)
    expect_part(verdicts[i].emission[0], job, i - 1, 0b1_workers, rising[i - 1].values);
}

TEST_F(PolicyTest, PreemptingAndCompletingSendsBoth) {
  start(1);
  const JobIndex victim = add_job(2);
  const JobIndex single = add_job(1);
  grad(victim, 0, 0, 1);
  const Verdict verdict = grad(single, 0, 0, 7, 11);
  ASSERT_EQ(verdict.emissions, 2);
  expect_part(verdict.emission[0], victim, 0, 0b1_workers, {1});
  expect_result(verdict.emission[1], 0, {7});
  EXPECT_EQ(counters().slots_used, 0u);
}

TEST_F(PolicyTest, ResidualCompletesWithAPartNeverAResult) {
  start(1);
  const JobIndex victim = add_job(3);
  const JobIndex single = add_job(1);
  grad(victim, 0, 0, 1);
  grad(single, 0, 0, 7, 11);
  expect_held(grad(victim, 1, 0, 10));
  grad(single, 0, 1, 7, 11);  // the base of a victim is remembered, too
  const Verdict last = grad(victim, 2, 0, 100);
  EXPECT_EQ(last.fate, Fate::kAbsorbed);
  ASSERT_EQ(last.emissions, 1);
  expect_part(last.emission[0], victim, 0, 0b100_workers, {100});
  EXPECT_EQ(counters().slots_used, 0u);
  EXPECT_EQ(counters().results, 2u) << "the other job's only";
}

TEST_F(PolicyTest, PreemptorWithAResidualOfItsOwn) {
  start(1);
  const JobIndex job = add_job(3);
  const JobIndex other = add_job(2);
  grad(job, 0, 0, 1, 10);
  grad(other, 0, 0, 7, 11);  // takes the slot
  const Verdict back = grad(job, 1, 0, 10, 12);
  ASSERT_EQ(back.emissions, 1);
  expect_part(back.emission[0], other, 0, 0b1_workers, {7});
  expect_part(grad(job, 2, 0, 100, 12).emission[0], job, 0, 0b110_workers, {110});
  EXPECT_EQ(counters().slots_used, 0u);
  expect_part(grad(other, 1, 0, 70).emission[0], other, 0, 0b10_workers, {70});
}

TEST_F(PolicyTest, WithoutResidualTheRestWaits) {
  start(1, {.kind = PolicyKind::kEsa, .residual = false});
  const JobIndex victim = add_job(2);
  const JobIndex single = add_job(1);
  grad(victim, 0, 0, 1);
  grad(single, 0, 0, 7, 11);
  expect_held(grad(victim, 1, 0, 10));
  EXPECT_EQ(counters().slots_used, 1u);
}

TEST_F(PolicyTest, EqualPriorityNeverPreempts) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(2);
  grad(job, 0, 0, 1, 10);
  for (int i = 0; i < 3; ++i) {
    const Verdict verdict = grad(job, 0, 1 + i, 5, 10);
    expect_bypass(verdict);
    expect_part(verdict.emission[0], job, 1 + i, 0b1_workers, {5});
    EXPECT_EQ(verdict.emission[0].payload, reinterpret_cast<const std::byte*>(sent_.back().data()))
        << "from the worker's memory";
    EXPECT_EQ(verdict.emission[0].message.rank, Rank{0}) << "as bound, not as said";
  }
  EXPECT_EQ(counters().preemptions, 0u);
  EXPECT_EQ(counters().bypassed, 3u);
  EXPECT_EQ(counters().bypassed_bytes, 12u);
  expect_drop(grad(job, 0, 1, 5, 10), DropReason::kDuplicate);
}

TEST_F(PolicyTest, BypassedBitsAreRemembered) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(3);
  const JobIndex other = add_job(2);
  grad(other, 0, 0, 1);
  expect_bypass(grad(job, 0, 0, 1));
  expect_bypass(grad(job, 1, 0, 10));
  grad(other, 1, 0, 1);  // done: the slot is empty
  expect_part(grad(job, 2, 0, 100).emission[0], job, 0, 0b100_workers, {100});
}

TEST_F(PolicyTest, PriorityOfASlotIsItsMostUrgentContribution) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(3);
  const JobIndex other = add_job(2);
  grad(job, 0, 0, 1, 10);
  grad(job, 1, 0, 1, 20);
  expect_bypass(grad(other, 0, 0, 1, 20));
  EXPECT_EQ(grad(other, 0, 1, 1, 21).emission[0].message.bitmap, 0b11_workers);
}

// ---- esa: worth

TEST_F(PolicyTest, DecayByPreemptionHalvesWithEachAttempt) {
  start(1);
  const JobIndex job = add_job(2);
  const JobIndex other = add_job(2);
  grad(job, 0, 0, 1, 8);
  expect_bypass(grad(other, 0, 0, 5, 4));  // 4 against 8
  expect_bypass(grad(other, 0, 1, 5, 4));  // 4 against 4
  EXPECT_EQ(counters().preemptions, 0u);
  expect_part(grad(other, 0, 2, 5, 4).emission[0], job, 0, 0b1_workers, {1});  // 4 against 2
}

TEST_F(PolicyTest, DecayByTimeHalvesWithEachHalfLife) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kTime, .decay_half_life_ns = 1000});
  const JobIndex job = add_job(2);
  const JobIndex other = add_job(3);
  now_ = 500;
  grad(job, 0, 0, 1, 8);
  now_ = 1499;
  for (uint64_t seq = 0; seq < 3; ++seq) expect_bypass(grad(other, 0, seq, 5, 8));
  expect_bypass(grad(other, 1, 0, 5, 8));
  now_ = 1500;  // 8 / 2
  expect_bypass(grad(other, 1, 1, 5, 4));
  expect_part(grad(other, 1, 2, 5, 5).emission[0], job, 0, 0b1_workers, {1});
}

TEST_F(PolicyTest, WithoutDecayASlotIsKeptForEver) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(2);
  const JobIndex other = add_job(64);
  grad(job, 0, 0, 1, 8);
  now_ = 1'000'000'000'000;
  for (uint32_t rank = 0; rank < 64; ++rank) expect_bypass(grad(other, rank, 0, 5, 8));
}

TEST_F(PolicyTest, NearlyFullCountsTwice) {
  for (const bool bonus : {false, true}) {
    start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone, .near_full_bonus = bonus});
    const JobIndex job = add_job(4);
    const JobIndex other = add_job(2);
    grad(job, 0, 0, 1, 8);
    grad(job, 1, 0, 1, 8);
    grad(job, 2, 0, 1, 8);  // three quarters
    const Verdict verdict = grad(other, 0, 0, 5, 12);
    if (bonus)
      expect_bypass(verdict);
    else
      expect_part(verdict.emission[0], job, 0, 0b111_workers, {3});
  }
}

TEST_F(PolicyTest, NearlyFullStillYieldsToTheMostUrgent) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone, .near_full_bonus = true});
  const JobIndex job = add_job(4);
  const JobIndex other = add_job(2);
  for (uint32_t rank = 0; rank < 3; ++rank) grad(job, rank, 0, 1, 200);
  expect_bypass(grad(other, 0, 0, 5, 254));
  expect_part(grad(other, 0, 1, 5, 255).emission[0], job, 0, 0b111_workers, {3});
}

TEST_F(PolicyTest, PriorityIsClampedToTheClass) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(3);
  const JobIndex low_class = add_job(3, {}, 10);
  grad(job, 0, 0, 1, 10);
  expect_bypass(grad(low_class, 0, 0, 5, 255));
  expect_bypass(grad(job, 0, 1, 5, 0));  // 0 counts as 1
  // The claim does not help to keep a slot either, at the first contribution or later.
  grad(job, 1, 0, 1);
  grad(job, 2, 0, 1);  // complete: the slot is empty
  grad(low_class, 0, 1, 7, 255);
  grad(low_class, 1, 1, 7, 255);
  expect_part(grad(job, 0, 2, 5, 11).emission[0], low_class, 1, 0b11_workers, {14});
}

TEST_F(PolicyTest, PriorityZeroIsNobodysWhoAsks) {
  start(1);
  const JobIndex job = add_job(2);
  const JobIndex other = add_job(2);
  grad(job, 0, 0, 1, 0);
  expect_bypass(grad(other, 0, 0, 5, 0));  // 1 against 1, which leaves 0
  expect_part(grad(other, 0, 1, 5, 0).emission[0], job, 0, 0b1_workers, {1});
}

// ---- numbers and epochs

TEST_F(PolicyTest, BeyondTwoWindowsContributionsAreTooOld) {
  start(16);
  const JobIndex job = add_job(2);
  for (uint64_t seq = 0; seq < 2 * kWindow; ++seq) {
    grad(job, 0, seq, 1);
    grad(job, 1, seq, 1);
  }
  expect_drop(grad(job, 0, 0, 1), DropReason::kDuplicate);  // still within 2W
  grad(job, 0, 2 * kWindow, 1);
  expect_drop(grad(job, 0, 0, 1), DropReason::kTooOld);
  expect_drop(say({.type = Type::kQuery, .job = job, .seq = 0}), DropReason::kTooOld);
  expect_drop(say({.type = Type::kRemind, .job = job, .rank = 0, .seq = 0}), DropReason::kTooOld);
  expect_drop(grad(job, 0, 1, 1), DropReason::kDuplicate);
}

TEST_F(PolicyTest, SequenceNumbersGoOnAcross32Bits) {
  start(16);
  const uint64_t first = (uint64_t{1} << 32) - 2;
  const JobIndex job = add_job(2, {}, 255, Home::kWorkers, Seq{first});
  for (uint64_t seq = first; seq < first + 4 * kWindow; ++seq) {
    expect_held(grad(job, 0, seq, 1));
    expect_result(grad(job, 1, seq, 10).emission[0], seq, {11});
    expect_drop(grad(job, 1, seq, 10), DropReason::kDuplicate);
  }
  expect_drop(grad(job, 0, first, 1), DropReason::kTooOld);
  EXPECT_EQ(counters().slots_used, 0u);
}

TEST_F(PolicyTest, NewEpochForgetsSlotsResidualsAndWhatWasSeen) {
  start(1);
  const JobIndex job = add_job(2);
  const JobIndex other = add_job(1);
  grad(job, 0, 0, 1);
  grad(other, 0, 0, 7, 11);  // the residual remembers job's fragment 0
  grad(job, 0, 1, 1);
  aggregator_->new_epoch(job, kEpoch + 1, kInstance + 1, nullptr);
  EXPECT_EQ(counters().slots_used, 0u);
  EXPECT_EQ(counters().contributions_discarded, 1u);
  const Verdict stale = grad(job, 1, 0, 1);
  EXPECT_EQ(stale.reason, DropReason::kStaleEpoch);
  ASSERT_EQ(stale.emissions, 1);
  EXPECT_EQ(stale.emission[0].to, To::kSender);
  EXPECT_EQ(stale.emission[0].message.type, Type::kStale);
  EXPECT_EQ(stale.emission[0].message.epoch, kEpoch + 1);
  const auto in_new = [&](uint32_t rank, int32_t value) {
    return say({.job = job, .rank = rank, .values = {value}, .epoch = kEpoch + 1});
  };
  expect_held(in_new(0, 1));
  expect_result(in_new(1, 10).emission[0], 0, {11});
}

TEST_F(PolicyTest, MismatchStopsTheJob) {
  start(16);
  const JobIndex job = add_job(3);
  grad(job, 0, 0, 1);
  const Verdict verdict = say({.job = job, .rank = 1, .values = {1, 2}});
  expect_drop(verdict, DropReason::kMismatch);
  EXPECT_EQ(verdict.first_rank, Rank{0});
  EXPECT_EQ(verdict.first_signature.elements, 1u);
  expect_drop(grad(job, 2, 0, 1), DropReason::kJobAborted);
  expect_drop(say({.type = Type::kResult, .job = job, .rank = 0, .values = {1}}),
              DropReason::kJobAborted);
}

}  // namespace
}  // namespace ina::aggregator
