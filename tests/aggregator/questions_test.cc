// Questions for lost results that the switch answers itself (docs/protocol.md, "Quick answers").
#include <gtest/gtest.h>

#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

class QuestionsTest : public PolicyTest {
 protected:
  void start_with_job(uint32_t workers) {
    start(16, PolicyKind::kEsa);
    add_job(workers, {}, 255, Home::kWorkers, {}, given_.data());
  }
  Verdict ask(uint32_t rank, uint64_t seq, uint16_t flags = wire::kFlagQuick) {
    return say({.type = Type::kQuery, .rank = rank, .seq = seq, .flags = flags});
  }
  static void expect_forwarded_to_fallback(const Verdict& verdict) {
    EXPECT_EQ(verdict.fate, Fate::kForwarded);
    ASSERT_EQ(verdict.emissions, 1);
    EXPECT_EQ(verdict.emission[0].to, To::kFallback);
    EXPECT_EQ(verdict.emission[0].message.type, Type::kQuery);
  }
  /// `lost`: ranks of which something sent later has come. `missing`: the others.
  static void expect_asked_again(const Verdict& verdict, uint64_t seq, WorkerSet lost,
                                 WorkerSet missing = {}) {
    EXPECT_EQ(verdict.fate, Fate::kForwarded);
    ASSERT_EQ(verdict.emissions, missing.empty() ? 1 : 2);
    for (const Emission& poll : verdict.to_send()) {
      EXPECT_EQ(poll.to, To::kHolders);
      EXPECT_EQ(poll.message.type, Type::kPoll);
      EXPECT_EQ(poll.message.seq, static_cast<uint32_t>(seq));
      EXPECT_EQ(poll.message.epoch, kEpoch);
      EXPECT_FALSE(wire::validate(poll.message, poll.payload_bytes, kSlotBytes));
    }
    EXPECT_EQ(verdict.emission[0].message.phase, wire::Phase::kLost);
    EXPECT_EQ(verdict.emission[0].message.bitmap, lost);
    if (missing.empty()) return;
    EXPECT_EQ(verdict.emission[1].message.phase, wire::Phase::kAgain);
    EXPECT_EQ(verdict.emission[1].message.bitmap, missing);
  }
  static void expect_given(const Verdict& verdict, uint64_t seq, const Values& values) {
    EXPECT_EQ(verdict.fate, Fate::kForwarded);
    ASSERT_EQ(verdict.emissions, 1);
    const Emission& result = verdict.emission[0];
    EXPECT_EQ(result.to, To::kSender);
    EXPECT_EQ(result.message.type, Type::kResult);
    EXPECT_EQ(result.message.seq, static_cast<uint32_t>(seq));
    EXPECT_NE(result.message.flags & wire::kFlagAgain, 0) << "it is an answer";
    EXPECT_EQ(values_of(result), values);
    EXPECT_FALSE(wire::validate(result.message, result.payload_bytes, kSlotBytes));
  }

  std::vector<GivenResult> given_ = std::vector<GivenResult>(JobSpec::seen_words(kWindow, 1));
};

TEST_F(QuestionsTest, ALostResultIsGivenAgainToWhoAsks) {
  start_with_job(2);
  grad(0, 0, 0, 3);
  grad(0, 1, 0, 4);
  expect_given(ask(1, 0), 0, {7});
  EXPECT_EQ(counters().results_again, 1u);
}

TEST_F(QuestionsTest, ALostContributionIsAskedForOfTheWorkersWhoseItIs) {
  start_with_job(3);
  grad(0, 1, 0, 3);
  grad(0, 0, 1, 3);
  grad(0, 2, 2, 3);
  expect_asked_again(ask(2, 0), 0, 0b101_workers);
  grad(0, 0, 0, 3);
  expect_asked_again(ask(2, 0), 0, 0b100_workers);
  EXPECT_EQ(counters().asked_again, 2u);
  // It comes, and comes once more.
  EXPECT_EQ(grad(0, 2, 0, 5).emissions, 1);
  expect_drop(grad(0, 2, 0, 5), DropReason::kDuplicate);
}

/// Its question came after it, its next contributions would have: packets of a worker keep their
/// order. Of other workers it may be in a queue.
TEST_F(QuestionsTest, AContributionIsLostIfItsWorkerHasSentSomethingSince) {
  start_with_job(4);
  grad(0, 0, 0, 3);
  grad(0, 1, 1, 3);
  expect_asked_again(ask(3, 0), 0, 0b1010_workers, 0b0100_workers);
  Verdict verdict = ask(0, 0);
  expect_asked_again(verdict, 0, 0b0010_workers, 0b1100_workers);
}

TEST_F(QuestionsTest, AResultSaysThatAContributionWasLost) {
  start_with_job(2);
  grad(0, 0, 0, 3);
  const Verdict verdict = say({.rank = 1, .seq = 0, .values = {4}, .flags = wire::kFlagAgain});
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_NE(verdict.emission[0].message.flags & wire::kFlagAgain, 0);
  grad(0, 0, 1, 3);
  EXPECT_EQ(grad(0, 1, 1, 4).emission[0].message.flags & wire::kFlagAgain, 0);
}

TEST_F(QuestionsTest, WhoAsksFirstHasLostItsOwnContribution) {
  start_with_job(2);
  expect_asked_again(ask(1, 2), 2, 0b10_workers);
}

TEST_F(QuestionsTest, ARowThatHoldsAnotherResultIsNotGiven) {
  start_with_job(2);
  for (uint64_t seq = 0; seq <= 2 * kWindow; ++seq)
    for (uint32_t rank = 0; rank < 2; ++rank) grad(0, rank, seq, static_cast<int32_t>(seq));
  expect_given(ask(0, 2 * kWindow), 2 * kWindow, {4 * kWindow});
  expect_given(ask(0, 1), 1, {2});
  // Its row has the result of the fragment a lap before.
  expect_asked_again(ask(0, 2 * kWindow + 1), 2 * kWindow + 1, 0b01_workers);
}

TEST_F(QuestionsTest, WhatTheFallbackDecidedIsGivenAgainAsSuch) {
  start_with_job(2);
  grad(0, 0, 0, 1);
  say({.type = Type::kResult,
       .rank = 0,
       .seq = 0,
       .values = {9},
       .origin = wire::Origin::kFallback,
       .bitmap = 0b11_workers});
  const Verdict verdict = ask(1, 0);
  expect_given(verdict, 0, {9});
  EXPECT_EQ(verdict.emission[0].message.origin, wire::Origin::kFallback);
  EXPECT_EQ(verdict.emission[0].message.instance, kInstance);
}

TEST_F(QuestionsTest, WhereAllHasComeTheFallbackKnowsWhatBecameOfIt) {
  start(1, PolicyKind::kEsa);
  add_job(2, {}, 255, Home::kWorkers, {}, given_.data());
  grad(0, 0, 0, 1);
  grad(0, 0, 1, 1, 20);  // takes the slot of fragment 0, whose parts meet at the fallback
  grad(0, 1, 0, 1);
  expect_forwarded_to_fallback(ask(0, 0));
}

TEST_F(QuestionsTest, OnlyWhoSaysSoIsAnsweredByTheSwitch) {
  start_with_job(2);
  grad(0, 0, 0, 3);
  grad(0, 1, 0, 4);
  expect_forwarded_to_fallback(ask(1, 0, 0));
}

TEST_F(QuestionsTest, NoWorkerAsksForOthersContributions) {
  start_with_job(2);
  wire::Message poll;
  poll.type = Type::kPoll;
  poll.instance = kInstance;
  for (const wire::Phase phase : {wire::Phase::kAgain, wire::Phase::kLost}) {
    poll.phase = phase;
    const RxPacket packet{poll, nullptr, 0, 0, Rank{0}};  // the home of fragment 0
    Verdict verdict;
    aggregator_->on_burst({&packet, 1}, 0, {&verdict, 1});
    expect_drop(verdict, DropReason::kBadType);
  }
}

}  // namespace
}  // namespace ina::aggregator
