// The aggregator shard under the policies that share slots, `esa` and `fcfs`, and its handling of
// the fallback's messages: receive this, expect that.
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

uint32_t slot_of(uint32_t job, uint64_t seq, uint32_t slots) {
  return scheduler::hashed_slot(JobId{100 + job}, Seq{seq}, slots);
}

/// Sequence numbers of the window in slots of their own.
std::vector<uint64_t> apart(uint32_t job, uint32_t slots, size_t wanted) {
  std::vector<uint64_t> seqs;
  std::vector<bool> used(slots);
  for (uint64_t seq = 0; seq < kWindow && seqs.size() < wanted; ++seq) {
    const uint32_t slot = slot_of(job, seq, slots);
    if (used[slot]) continue;
    used[slot] = true;
    seqs.push_back(seq);
  }
  return seqs;
}

TEST_F(PolicyTest, NoJobExceedsItsCeiling) {
  start(64);
  const JobIndex job = add_job(2, {.floor = 0, .ceiling = 2});
  const std::vector<uint64_t> seqs = apart(job, 64, 3);
  ASSERT_EQ(seqs.size(), 3u);
  expect_held(grad(job, 0, seqs[0], 1));
  expect_held(grad(job, 0, seqs[1], 1));
  expect_bypass(grad(job, 0, seqs[2], 1, 255));
  EXPECT_EQ(aggregator_->job_counters(job).slots_held, 2u);
  expect_result(grad(job, 1, seqs[0], 10).emission[0], seqs[0], {11});
  expect_part(grad(job, 1, seqs[2], 10).emission[0], job, seqs[2], 0b10_workers, {10});
  EXPECT_EQ(aggregator_->job_counters(job).slots_held_peak, 2u);
}

TEST_F(PolicyTest, AtItsCeilingAJobPreemptsItselfOnly) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex other = add_job(2);
  const JobIndex none = add_job(2, {.floor = 0, .ceiling = 0});
  const JobIndex one = add_job(2, {.floor = 0, .ceiling = 1});
  grad(other, 0, 0, 1, 1);
  expect_bypass(grad(none, 0, 0, 1, 255));
  expect_part(grad(one, 0, 0, 2, 255).emission[0], other, 0, 0b1_workers, {1});
  expect_bypass(grad(one, 0, 1, 3, 255));
  EXPECT_EQ(aggregator_->job_counters(one).slots_held, 1u);
}

TEST_F(PolicyTest, AtOrBelowItsFloorAJobLosesToNobody) {
  start(1);
  const JobIndex guarded = add_job(2, {.floor = 1});
  const JobIndex other = add_job(2);
  grad(guarded, 0, 0, 1, 1);
  for (uint64_t seq = 0; seq < kWindow; ++seq) expect_bypass(grad(other, 0, seq, 5, 255));
  expect_part(grad(guarded, 0, 1, 2, 2).emission[0], guarded, 0, 0b1_workers,
              {1});  // but to itself
}

TEST_F(PolicyTest, BelowItsFloorAJobDoesNotPushItselfOut) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(2, {.floor = 2});
  grad(job, 0, 0, 1);
  expect_bypass(grad(job, 0, 1, 5));
}

TEST_F(PolicyTest, AboveItsFloorAJobIsLikeAnyOther) {
  start(64);
  const JobIndex job = add_job(2, {.floor = 1});
  const std::vector<uint64_t> seqs = apart(job, 64, 2);
  for (const uint64_t seq : seqs) grad(job, 0, seq, 1, 10);
  ASSERT_EQ(aggregator_->job_counters(job).slots_held, 2u);
  // A fragment of another job that meets one of these.
  uint64_t seq = 0;
  while (slot_of(1, seq, 64) != slot_of(job, seqs[0], 64)) ++seq;
  const JobIndex other = add_job(2, {}, 255, Home::kWorkers, Seq{seq});
  expect_part(grad(other, 0, seq, 5, 11).emission[0], job, seqs[0], 0b1_workers, {1});
  EXPECT_EQ(aggregator_->job_counters(job).slots_held, 1u);
}

TEST_F(PolicyTest, BelowItsFloorAJobPreemptsWhateverThePriority) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex other = add_job(2);
  grad(other, 0, 0, 1, 255);
  const JobIndex guarded = add_job(2, {.floor = 1});
  expect_part(grad(guarded, 0, 0, 5, 1).emission[0], other, 0, 0b1_workers, {1});
  // But nobody that is entitled itself.
  const JobIndex third = add_job(2, {.floor = 1});
  expect_bypass(grad(third, 0, 0, 5, 255));
}

TEST_F(PolicyTest, EmptySlotsAreKeptForJobsBelowTheirFloors) {
  start(2);
  const JobIndex guarded = add_job(2, {.floor = 1});
  const JobIndex other = add_job(2);
  const std::vector<uint64_t> seqs = apart(other, 2, 2);
  ASSERT_EQ(seqs.size(), 2u);
  expect_held(grad(other, 0, seqs[0], 1));
  expect_bypass(grad(other, 0, seqs[1], 1));  // the other slot is empty, but spoken for
  EXPECT_EQ(counters().slots_used, 1u);
  uint64_t seq = 0;
  while (slot_of(guarded, seq, 2) != slot_of(other, seqs[1], 2)) ++seq;
  ASSERT_LT(seq, kWindow) << "the hash has changed: another window";
  expect_held(grad(guarded, 0, seq, 1, 1));
  EXPECT_EQ(aggregator_->job_counters(guarded).slots_held, 1u);
  // Removed, it takes its claim with it.
  aggregator_->remove_job(guarded);
  EXPECT_EQ(counters().slots_used, 1u);
  expect_part(grad(other, 1, seqs[1], 10).emission[0], other, seqs[1], 0b10_workers, {10});
  EXPECT_EQ(aggregator_->job_counters(other).slots_held_peak, 2u);
}

// ---- fcfs

TEST_F(PolicyTest, FcfsNeverPreempts) {
  start(1, PolicyKind::kFcfs);
  const JobIndex job = add_job(2);
  const JobIndex other = add_job(2);
  grad(job, 0, 0, 1, 1);
  for (uint64_t seq = 0; seq < kWindow; ++seq) expect_bypass(grad(other, 0, seq, 5, 255));
  EXPECT_EQ(counters().preemptions, 0u);
}

TEST_F(PolicyTest, FcfsFullSlotIsFrozenUntilTheResultPasses) {
  start(16, PolicyKind::kFcfs);
  const JobIndex job = add_job(2);
  expect_held(grad(job, 0, 0, 1));
  const Verdict full = grad(job, 1, 0, 10);
  EXPECT_EQ(full.fate, Fate::kAbsorbed);
  ASSERT_EQ(full.emissions, 1);
  expect_part(full.emission[0], job, 0, 0b11_workers, {11});
  EXPECT_EQ(counters().slots_used, 1u);
  EXPECT_EQ(counters().results, 0u);
  for (int i = 0; i < 2; ++i) {
    const Verdict again = say({.type = Type::kRemind, .job = job, .rank = 0});
    EXPECT_EQ(again.fate, Fate::kForwarded);
    ASSERT_EQ(again.emissions, 1);
    expect_part(again.emission[0], job, 0, 0b11_workers, {11});
  }
  const Verdict result = say({.type = Type::kResult, .job = job, .rank = 0, .values = {11}});
  expect_result(result.emission[0], 0, {11}, wire::Origin::kFallback);
  EXPECT_EQ(counters().slots_used, 0u);
  EXPECT_EQ(say({.type = Type::kRemind, .job = job, .rank = 0}).emissions, 0);
}

TEST_F(PolicyTest, FcfsRemindFreezesAndLateBitsPassBy) {
  start(16, PolicyKind::kFcfs);
  const JobIndex job = add_job(3);
  grad(job, 0, 0, 1);
  grad(job, 1, 0, 10);
  const Verdict flushed = say({.type = Type::kRemind, .job = job, .rank = 0});
  ASSERT_EQ(flushed.emissions, 1);
  expect_part(flushed.emission[0], job, 0, 0b11_workers, {11});
  const Verdict late = grad(job, 2, 0, 100);
  expect_bypass(late);
  expect_part(late.emission[0], job, 0, 0b100_workers, {100});
  expect_drop(grad(job, 2, 0, 100), DropReason::kDuplicate);
  expect_drop(grad(job, 0, 0, 1), DropReason::kDuplicate);
  EXPECT_EQ(counters().slots_used, 1u);
}

TEST_F(PolicyTest, FcfsFrozenPartStaysIntactThoughItsSlotIsFreedInTheBurst) {
  start(1, PolicyKind::kFcfs);
  const JobIndex job = add_job(2);
  grad(job, 0, 0, 1);
  const std::vector<Verdict> verdicts =
      burst({{.job = job, .rank = 1, .seq = 0, .values = {10}},
             {.type = Type::kResult, .job = job, .rank = 0, .seq = 0, .values = {11}},
             {.job = job, .rank = 1, .seq = 1, .values = {99}}});
  expect_part(verdicts[0].emission[0], job, 0, 0b11_workers, {11});
  expect_held(verdicts[2]);
}

// ---- the fallback's messages

TEST_F(PolicyTest, OnlyTheHomeSpeaksForTheFallback) {
  start(16);
  const JobIndex sharded = add_job(3);
  const JobIndex dedicated = add_job(3, {}, 255, Home::kDedicated);
  const uint32_t server = value(kFallbackRank);
  for (const Type type : {Type::kResult, Type::kRemind, Type::kPoll}) {
    grad(sharded, 0, 1, 1);
    grad(dedicated, 0, 1, 1);
    const Values values = type == Type::kResult ? Values{7} : Values{};
    const auto from = [&](JobIndex job, uint32_t rank) {
      return say({.type = type, .job = job, .rank = rank, .seq = 1, .values = values});
    };
    for (const uint32_t rank : {0u, 2u, server})
      expect_drop(from(sharded, rank), DropReason::kNotHome);
    for (const uint32_t rank : {0u, 1u, 2u})
      expect_drop(from(dedicated, rank), DropReason::kNotHome);
  }
  EXPECT_EQ(counters().slots_used, 2u) << "nothing was flushed or freed";
  for (const Type type : {Type::kPoll, Type::kRemind, Type::kResult}) {
    const Values values = type == Type::kResult ? Values{7} : Values{};
    EXPECT_EQ(say({.type = type, .job = sharded, .rank = 1, .seq = 1, .values = values}).fate,
              Fate::kForwarded);
    EXPECT_EQ(
        say({.type = type, .job = dedicated, .rank = server, .seq = 1, .values = values}).fate,
        Fate::kForwarded);
  }
  EXPECT_EQ(counters().slots_used, 0u);
}

TEST_F(PolicyTest, ServerContributesNothing) {
  start(16);
  const JobIndex job = add_job(3, {}, 255, Home::kDedicated);
  for (const Type type : {Type::kGrad, Type::kQuery, Type::kSent, Type::kDefer})
    expect_drop(say({.type = type, .job = job, .rank = value(kFallbackRank), .values = {1}}),
                DropReason::kBadRank);
}

TEST_F(PolicyTest, AnswersGoToTheFallbackUnderTheBindingsRank) {
  start(16);
  const JobIndex job = add_job(3);
  for (const Type type : {Type::kQuery, Type::kSent, Type::kNotYet, Type::kHave, Type::kDefer}) {
    const Values values = type == Type::kHave ? Values{7} : Values{};
    const Verdict verdict =
        say({.type = type, .job = job, .rank = 2, .seq = 1, .values = values, .epoch = 1});
    EXPECT_EQ(verdict.fate, Fate::kForwarded);
    ASSERT_EQ(verdict.emissions, 1);
    const Emission& emission = verdict.emission[0];
    EXPECT_EQ(emission.to, To::kFallback);
    EXPECT_EQ(emission.job, job);
    EXPECT_EQ(emission.message.type, type);
    EXPECT_EQ(emission.message.rank, Rank{2});
    EXPECT_EQ(emission.message.bitmap, 0b100_workers);
    EXPECT_EQ(emission.message.instance, kInstance);
    EXPECT_EQ(values_of(emission), values);
    expect_drop(say({.type = type, .job = job, .rank = 3, .seq = 1}), DropReason::kBadRank);
    expect_drop(say({.type = type, .job = job, .rank = 0, .seq = kWindow}),
                DropReason::kOutsideWindow);
  }
  for (const Type type : {Type::kPart, Type::kPark, Type::kParked, Type::kStale})
    expect_drop(say({.type = type, .job = job, .rank = 2, .values = {1}}), DropReason::kBadType);
}

TEST_F(PolicyTest, ResultOfTheFallbackEndsTheFragment) {
  start(16);
  const JobIndex job = add_job(3);
  grad(job, 0, 0, 1);
  const Verdict verdict = say({.type = Type::kResult, .job = job, .rank = 0, .values = {111}});
  EXPECT_EQ(verdict.fate, Fate::kForwarded);
  ASSERT_EQ(verdict.emissions, 1);
  expect_result(verdict.emission[0], 0, {111}, wire::Origin::kFallback);
  EXPECT_EQ(verdict.emission[0].message.instance, kInstance);
  EXPECT_EQ(verdict.emission[0].payload, reinterpret_cast<std::byte*>(jobs_[job].results.data()))
      << "a copy: the home's memory may change";
  EXPECT_EQ(counters().fallback_results, 1u);
  EXPECT_EQ(counters().contributions_discarded, 1u);
  EXPECT_EQ(counters().slots_used, 0u);
  for (uint32_t rank = 0; rank < 3; ++rank)
    expect_drop(grad(job, rank, 0, 1), DropReason::kDuplicate);
  EXPECT_EQ(grad(job, 0, kWindow, 1).fate, Fate::kAbsorbed) << "the window has moved on";
  expect_drop(grad(job, 0, kWindow + 1, 1), DropReason::kOutsideWindow);
}

TEST_F(PolicyTest, ResultOfTheFallbackErasesTheResidual) {
  start(1);
  const JobIndex victim = add_job(2);
  const JobIndex single = add_job(1);
  grad(victim, 0, 0, 1);
  grad(single, 0, 0, 7, 11);
  say({.type = Type::kResult, .job = victim, .rank = 0, .values = {11}});
  // Only in an empty residual can these be remembered.
  const JobIndex holder = add_job(2);
  grad(holder, 0, 0, 1, 100);
  expect_bypass(grad(victim, 0, 1, 1));
  grad(holder, 1, 0, 1, 100);
  expect_part(grad(victim, 1, 1, 10).emission[0], victim, 1, 0b10_workers, {10});
}

TEST_F(PolicyTest, EarlierLifeOfTheFallbackIsDropped) {
  start(16);
  const JobIndex job = add_job(2, {}, 255, Home::kDedicated);
  grad(job, 0, 0, 1);
  for (const Type type : {Type::kResult, Type::kRemind, Type::kPoll}) {
    const Values values = type == Type::kResult ? Values{7} : Values{};
    expect_drop(say({.type = type,
                     .job = job,
                     .rank = value(kFallbackRank),
                     .values = values,
                     .instance = kInstance - 1}),
                DropReason::kOldInstance);
  }
  EXPECT_EQ(counters().slots_used, 1u);
}

TEST_F(PolicyTest, PollGoesToAll) {
  start(16);
  const JobIndex job = add_job(2);
  const Verdict verdict = say({.type = Type::kPoll, .job = job, .rank = 1, .seq = 1});
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_EQ(verdict.emission[0].to, To::kAll);
  EXPECT_EQ(verdict.emission[0].message.type, Type::kPoll);
  EXPECT_EQ(verdict.emission[0].message.rank, Rank{1});
}

TEST_F(PolicyTest, RemindFlushesOnceAndIsRemembered) {
  start(16);
  const JobIndex job = add_job(3);
  grad(job, 0, 0, 1);
  grad(job, 1, 0, 10);
  const Verdict flushed = say({.type = Type::kRemind, .job = job, .rank = 0});
  EXPECT_EQ(flushed.fate, Fate::kForwarded);
  ASSERT_EQ(flushed.emissions, 1);
  expect_part(flushed.emission[0], job, 0, 0b11_workers, {11});
  const Verdict again = say({.type = Type::kRemind, .job = job, .rank = 0});
  EXPECT_EQ(again.fate, Fate::kForwarded);
  EXPECT_EQ(again.emissions, 0);
  EXPECT_EQ(counters().reminders, 1u);
  expect_part(grad(job, 2, 0, 100).emission[0], job, 0, 0b100_workers, {100});
}

TEST_F(PolicyTest, RemindRemembersTheBaseToo) {
  start(1);
  const JobIndex job = add_job(4);
  const JobIndex single = add_job(1);
  grad(job, 0, 0, 1);
  grad(single, 0, 0, 7, 11);
  grad(job, 1, 0, 10);  // base: rank 0
  expect_part(say({.type = Type::kRemind, .job = job, .rank = 0}).emission[0], job, 0, 0b10_workers,
              {10});
  expect_held(grad(job, 2, 0, 100));
  expect_part(grad(job, 3, 0, 1000).emission[0], job, 0, 0b1100_workers, {1100});
}

TEST_F(PolicyTest, FallbackKeepsToTheWindowAndTheLane) {
  start(16);
  const JobIndex job = add_job(2);
  for (const Type type : {Type::kRemind, Type::kPoll, Type::kResult}) {
    const Values values = type == Type::kResult ? Values{7} : Values{};
    expect_drop(say({.type = type, .job = job, .rank = 0, .seq = kWindow, .values = values}),
                DropReason::kOutsideWindow);
  }
  shape_.lanes = 2;
  shape_.lane = 1;
  aggregator_ = std::make_unique<Aggregator>(shape_, std::as_writable_bytes(std::span(rows_)));
  next_ = 0;
  jobs_.clear();
  add_job(2);
  for (const Type type : {Type::kRemind, Type::kPoll, Type::kResult}) {
    const Values values = type == Type::kResult ? Values{7} : Values{};
    expect_drop(say({.type = type, .job = job, .rank = 0, .seq = 2, .values = values}),
                DropReason::kWrongLane);
    EXPECT_EQ(say({.type = type, .job = job, .rank = 1, .seq = 3, .values = values}).fate,
              Fate::kForwarded);
  }
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
