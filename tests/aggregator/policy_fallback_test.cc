// The aggregator shard under `fcfs`, and the messages of the fallback under policies that share
// slots: receive this, expect that.
#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

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

}  // namespace
}  // namespace ina::aggregator
