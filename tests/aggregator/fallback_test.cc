// The fallback aggregator: the effect of each message on a fragment, and the answer.
#include <cstring>
#include <limits>
#include "tests/aggregator/fallback_fixture.h"

namespace ina::aggregator {
namespace {

// ---- PART

TEST_F(FallbackTest, PartsAreAddedAndTheFullSumDecided) {
  part(0, 0b001_workers, {1, 2});
  part(0, 0b110_workers, {10, 20});
  expect_result(0, {11, 22}, wire::kFlagSplit);
  EXPECT_EQ(counters().parts, 2u);
  EXPECT_EQ(counters().decided, 1u);
  EXPECT_EQ(counters().results, 1u);
}

TEST_F(FallbackTest, OnePartOfAllIsNotSplit) {
  part(0, 0b111_workers, {5});
  expect_result(0, {5});
}

TEST_F(FallbackTest, CongestionThatAPartMetIsToldWithTheResult) {
  Message message = with_values(Type::kPart, 0, 0, 1);
  message.bitmap = 0b001_workers;
  message.flags = wire::kFlagEcn;
  const Values values{1};
  hear(message, values.data());
  part(0, 0b110_workers, {10});
  expect_result(0, {11}, wire::kFlagSplit | wire::kFlagEcn);
}

TEST_F(FallbackTest, OverlappingPartIsDropped) {
  part(0, 0b011_workers, {1});
  part(0, 0b010_workers, {100});
  part(0, 0b110_workers, {100});
  EXPECT_EQ(counters().dropped, 2u);
  part(0, 0b100_workers, {10});
  expect_result(0, {11}, wire::kFlagSplit);
}

TEST_F(FallbackTest, PartAfterTheDecisionChangesNothing) {
  part(0, 0b111_workers, {5});
  expect_result(0, {5});
  part(0, 0b111_workers, {9});
  expect_silent();
  query(0);
  expect_result(0, {5});
}

TEST_F(FallbackTest, PartOfAnOlderEpochMayHaveBeenCountedByAPredecessor) {
  part(0, 0b111_workers, {5}, kEpoch - 1);
  expect_silent();
  EXPECT_EQ(counters().dropped, 1u);
  part(0, 0b111_workers, {6}, kEpoch + 1);
  expect_result(0, {6});
}

TEST_F(FallbackTest, PartOfStrangersIsDropped) {
  part(0, 0b1001_workers, {5});
  EXPECT_EQ(counters().dropped, 1u);
  EXPECT_EQ(counters().parts, 0u);
}

TEST_F(FallbackTest, PartsAreAccumulatorsUnlessRaw) {
  for (const bool raw_first : {false, true}) {
    start();
    Message message = with_values(Type::kPart, 0, 0, 1);
    message.dtype = DType::kBFloat16;
    for (const bool raw : {raw_first, !raw_first}) {
      const float sum = 1.5f;
      const uint16_t contribution = 0x4020;  // 2.5
      message.bitmap = raw ? 0b100_workers : 0b011_workers;
      message.flags = raw ? wire::kFlagRaw : 0;
      if (raw)
        hear(message, &contribution);
      else
        hear(message, &sum);
    }
    const std::vector<Said> said = output();
    ASSERT_EQ(said.size(), 1u);
    ASSERT_EQ(said[0].payload.size(), 2u) << "a result has the operation's own type";
    uint16_t result;
    std::memcpy(&result, said[0].payload.data(), 2);
    EXPECT_EQ(result, 0x4080) << "4.0";
  }
}

TEST_F(FallbackTest, RawPartMayBeTheFirst) {
  Message message = with_values(Type::kPart, 0, 0, 1);
  message.dtype = DType::kInt8;
  message.flags = wire::kFlagRaw;
  const int8_t hundred = 100;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    message.bitmap = WorkerSet::of(Rank{static_cast<uint8_t>(rank)});
    hear(message, &hundred);
  }
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(static_cast<int8_t>(said[0].payload[0]), 127) << "added in 32 bits, saturated once";
  EXPECT_EQ(said[0].message.flags, wire::kFlagOverflow | wire::kFlagSplit);
}

// A partial sum that left the range before it came, and one that does so here.
TEST_F(FallbackTest, SumsOfBFloat16OverflowInTheirParts) {
  const float large = 2e38f, infinite = std::numeric_limits<float>::infinity();
  for (const Op op : {Op::kSum, Op::kAvg})
    for (const float part : {large, infinite}) {
      start();
      Message message = with_values(Type::kPart, 0, 0, 1);
      message.dtype = DType::kBFloat16;
      message.op = op;
      message.bitmap = 0b110_workers;
      hear(message, &part);
      message.bitmap = 0b001_workers;
      hear(message, &large);
      const std::vector<Said> said = output();
      ASSERT_EQ(said.size(), 1u);
      uint16_t result;
      std::memcpy(&result, said[0].payload.data(), 2);
      EXPECT_EQ(result, 0x7f80) << int(op) << " " << part;
      EXPECT_EQ(said[0].message.flags, wire::kFlagOverflow | wire::kFlagSplit)
          << int(op) << " " << part;
    }
}

TEST_F(FallbackTest, MeanIsDividedByTheWorkers) {
  Message message = with_values(Type::kPart, 0, 0, 1);
  message.dtype = DType::kFloat32;
  message.op = Op::kAvg;
  message.bitmap = 0b111_workers;
  const float sum = 9;
  hear(message, &sum);
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  float mean;
  std::memcpy(&mean, said[0].payload.data(), 4);
  EXPECT_EQ(mean, 3.0f);
}

TEST_F(FallbackTest, EmptyFragmentIsDecidedToo) {
  part(0, 0b011_workers, {});
  part(0, 0b100_workers, {});
  expect_result(0, {}, wire::kFlagSplit);
}

TEST_F(FallbackTest, DisagreementIsReportedOnceAndNotAdded) {
  part(0, 0b001_workers, {1});
  part(0, 0b010_workers, {1, 2});
  ASSERT_TRUE(fallback_->mismatch());
  EXPECT_EQ(fallback_->mismatch()->first, 0b001_workers);
  EXPECT_EQ(fallback_->mismatch()->other, 0b010_workers);
  EXPECT_EQ(fallback_->mismatch()->first_signature.elements, 1u);
  EXPECT_EQ(fallback_->mismatch()->other_signature.elements, 2u);
  part(0, 0b100_workers, {1, 2, 3});
  EXPECT_EQ(fallback_->mismatch()->other, 0b010_workers) << "the first one is kept";
  EXPECT_EQ(counters().dropped, 2u);
  part(0, 0b110_workers, {10});
  expect_result(0, {11}, wire::kFlagSplit);
}

// ---- QUERY, SENT, NOTYET

TEST_F(FallbackTest, QueryAsksHowAllStand) {
  query(2, 1);
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.type, Type::kPoll);
  EXPECT_EQ(said[0].message.phase, Phase::kStatus);
  EXPECT_EQ(said[0].message.seq, 2u);
  EXPECT_EQ(said[0].message.epoch, kEpoch);
  EXPECT_EQ(counters().queries, 1u);
  EXPECT_EQ(counters().polls, 1u);
}

TEST_F(FallbackTest, AllSentFlushesOnceAndOnlyTheNextQueryBinds) {
  part(0, 0b010_workers, {10});
  query(0);
  expect_poll(Phase::kStatus);
  sent(0, 0);
  sent(0, 1);
  expect_silent();
  query(0);
  expect_poll(Phase::kStatus);  // a straggler: nothing is flushed, nobody bound
  sent(0, 2);
  std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.type, Type::kRemind);
  EXPECT_EQ(said[0].message.seq, 0u);
  sent(0, 2);
  expect_silent();
  query(0);
  said = output();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].message.type, Type::kRemind);
  EXPECT_EQ(said[1].message.type, Type::kPoll);
  EXPECT_EQ(said[1].message.phase, Phase::kBind);
  EXPECT_EQ(said[1].message.bitmap, 0b101_workers) << "who is to contribute again";
  EXPECT_EQ(counters().reminds, 2u);
}

TEST_F(FallbackTest, StaticPolicyBindsAtOnceAndRemindsNobody) {
  config_.bind_at_once = true;
  start();
  query(0);
  expect_poll(Phase::kStatus);
  all_sent(0);
  expect_poll(Phase::kBind);
  query(0);
  expect_poll(Phase::kBind);
  EXPECT_EQ(counters().reminds, 0u);
}

TEST_F(FallbackTest, NotYetChangesNothing) {
  query(0);
  output();
  sent(0, 0);
  sent(0, 1);
  hear(message_of(Type::kNotYet, 2, 0));
  expect_silent();
  EXPECT_EQ(counters().dropped, 0u);
}

TEST_F(FallbackTest, OnlyPartAndQueryMakeAnEntry) {
  all_sent(0);
  defer(0, 0, 1);
  have(0, 0, 1);
  expect_silent();
  EXPECT_EQ(counters().dropped, 5u);
  query(0);
  expect_poll(Phase::kStatus);  // as if nothing had been said
}

TEST_F(FallbackTest, AnswersToAnotherLifeAreDropped) {
  query(0);
  output();
  for (uint32_t rank = 0; rank < 3; ++rank) sent(0, rank, kInstance - 1);
  for (uint32_t rank = 0; rank < 3; ++rank) defer(0, rank, 1, kInstance - 1);
  expect_silent();
  EXPECT_EQ(counters().dropped, 6u);
  EXPECT_EQ(counters().raws, 0u);
}

TEST_F(FallbackTest, WhatIsNotForAFallbackIsDropped) {
  query(0);
  output();
  Message grad = with_values(Type::kGrad, 0, 0, 1);
  const int32_t one = 1;
  hear(grad, &one);
  hear(message_of(Type::kPoll, 0, 0));
  hear(message_of(Type::kRemind, 0, 0));
  hear(message_of(Type::kStale, 0, 0));
  EXPECT_EQ(counters().dropped, 4u);
  expect_silent();
}

// ---- DEFER, HAVE

TEST_F(FallbackTest, RawsOfThoseThatAreMissingCompleteTheSum) {
  part(0, 0b010_workers, {10});
  defer(0, 0, 1);
  defer(0, 1, 99);            // in the sum already
  defer(0, 2, std::nullopt);  // bound, but not asked for its contribution
  expect_silent();
  defer(0, 2, 100);
  expect_result(0, {111});
  EXPECT_EQ(counters().raws, 2u);
  defer(0, 2, 100);
  expect_silent();
}

TEST_F(FallbackTest, RawTwiceIsAddedOnce) {
  query(0);
  output();
  defer(0, 0, 1);
  defer(0, 0, 1);
  defer(0, 1, 10);
  defer(0, 2, 100);
  expect_result(0, {111});
}

TEST_F(FallbackTest, LatePartAfterItsRawIsDropped) {
  query(0);
  output();
  defer(0, 0, 1);
  part(0, 0b011_workers, {11});
  part(0, 0b110_workers, {110});
  expect_result(0, {111});
}

TEST_F(FallbackTest, HaveDecidesWhateverWasSummed) {
  part(0, 0b001_workers, {1});
  query(0);
  output();
  have(0, 2, 111, wire::kFlagOverflow | wire::kFlagEcn, kInstance - 1);
  expect_result(0, {111}, wire::kFlagOverflow);
  EXPECT_EQ(counters().decided_by_have, 1u);
  have(0, 1, 222);
  part(0, 0b110_workers, {5});
  expect_silent();
  query(0);
  expect_result(0, {111}, wire::kFlagOverflow);
  EXPECT_EQ(counters().decided, 1u);
  EXPECT_EQ(counters().results, 2u);
}

// ---- what is kept, and how long

TEST_F(FallbackTest, ShardTakesItsOwnFragmentsOnly) {
  config_.shards = 3;
  config_.shard = 1;
  start();
  part(0, 0b111_workers, {5});
  part(2, 0b111_workers, {5});
  query(3);
  EXPECT_EQ(counters().dropped, 3u);
  expect_silent();
  part(1, 0b111_workers, {6});
  expect_result(1, {6});
  part(4, 0b111_workers, {7});
  expect_result(4, {7});
}

TEST_F(FallbackTest, EveryShardRemembersTwoWindows) {
  config_.shards = 3;
  for (uint32_t shard = 0; shard < 3; ++shard) {
    config_.shard = shard;
    start();
    uint64_t last = 0;
    for (uint64_t seq = shard; seq < 2 * kWindow; seq += 3) {
      part(last = seq, 0b111_workers, {static_cast<int32_t>(seq)});
      output();
    }
    for (uint64_t seq = shard; seq <= last; seq += 3) {
      query(seq);
      expect_result(seq, {static_cast<int32_t>(seq)});
    }
  }
}

TEST_F(FallbackTest, DecisionIsKeptForExactlyTwoWindows) {
  part(0, 0b111_workers, {5});
  output();
  part(2 * kWindow - 1, 0b001_workers, {1});
  query(0);
  expect_result(0, {5});
  query(2 * kWindow);  // proves that everyone has result 0
  output();
  query(0);
  EXPECT_EQ(counters().dropped, 1u);
  expect_silent();
}

TEST_F(FallbackTest, OnlyPartQueryAndDeferProveProgress) {
  part(0, 0b111_workers, {5});
  output();
  for (const Type type : {Type::kSent, Type::kNotYet}) hear(message_of(type, 0, 2 * kWindow + 3));
  have(2 * kWindow + 3, 0, 1);
  query(0);
  expect_result(0, {5});
  defer(2 * kWindow, 0, std::nullopt);
  query(0);
  expect_silent();
}

TEST_F(FallbackTest, HomeWorkerLearnsTheFloorFromItsOwnResults) {
  part(0, 0b111_workers, {5});
  part(1, 0b111_workers, {6});
  output();
  fallback_->raise_floor(Seq{0});
  query(0);
  expect_silent();
  query(1);
  expect_result(1, {6});
  fallback_->raise_floor(Seq{0});
  query(1);
  expect_result(1, {6});
}

TEST_F(FallbackTest, RestartedFallbackRefusesWhatWasCompleteLongBefore) {
  config_.start = Seq{100};
  start();
  query(100 - 2 * kWindow - 1);
  EXPECT_EQ(counters().dropped, 1u);
  query(100 - 2 * kWindow);
  expect_poll(Phase::kStatus);
}

TEST_F(FallbackTest, SequenceNumbersGoOnAcross32Bits) {
  const uint64_t first = (uint64_t{1} << 32) - 3;
  config_.start = Seq{first};
  start();
  for (uint64_t seq = first; seq < first + 3 * kWindow; ++seq) {
    part(seq, 0b111_workers, {static_cast<int32_t>(seq - first)});
    expect_result(seq, {static_cast<int32_t>(seq - first)});
  }
  query(first);
  expect_silent();
}

}  // namespace
}  // namespace ina::aggregator
