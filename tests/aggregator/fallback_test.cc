// The fallback aggregator: the effect of each message on a fragment, and the answer.
#include "aggregator/fallback.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "tests/support/worker_literal.h"

namespace ina::aggregator {
namespace {

using wire::Message;
using wire::Outgoing;
using wire::Phase;
using wire::Type;
using Values = std::vector<int32_t>;

constexpr uint32_t kWindow = 4;
constexpr uint32_t kSlotBytes = 64;
constexpr uint32_t kInstance = 7;
constexpr uint32_t kEpoch = 3;

/// A message of the fallback, with a copy of its payload.
struct Said {
  Message message;
  std::vector<std::byte> payload;
  Values values() const {
    Values values(payload.size() / 4);
    if (!payload.empty()) std::memcpy(values.data(), payload.data(), payload.size());
    return values;
  }
};

class FallbackTest : public testing::Test {
 protected:
  FallbackTest() {
    config_.workers = 3;
    config_.window = kWindow;
    config_.slot_bytes = kSlotBytes;
    config_.instance = kInstance;
    config_.epoch = kEpoch;
    config_.min_epoch = kEpoch;
    start();
  }
  void start() { fallback_.emplace(config_); }

  static Message message_of(Type type, uint32_t rank, uint64_t seq) {
    Message message;
    message.type = type;
    message.rank = Rank{static_cast<uint8_t>(rank)};
    message.bitmap = WorkerSet::of(message.rank);
    message.seq = static_cast<uint32_t>(seq);
    message.epoch = kEpoch;
    message.instance = kInstance;
    return message;
  }
  static Message with_values(Type type, uint32_t rank, uint64_t seq, size_t count) {
    Message message = message_of(type, rank, seq);
    message.elements = static_cast<uint16_t>(count);
    message.operation_elements = count;
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    return message;
  }
  void hear(const Message& message, const void* payload = nullptr) {
    ASSERT_FALSE(wire::validate(message, wire::payload_bytes(message), kSlotBytes));
    fallback_->on_message(message, static_cast<const std::byte*>(payload));
  }
  void part(uint64_t seq, WorkerSet bits, const Values& values, uint32_t epoch = kEpoch) {
    Message message = with_values(Type::kPart, 0, seq, values.size());
    message.bitmap = bits;
    message.epoch = epoch;
    hear(message, values.data());
  }
  void query(uint64_t seq, uint32_t rank = 0) { hear(message_of(Type::kQuery, rank, seq)); }
  void sent(uint64_t seq, uint32_t rank, uint32_t instance = kInstance) {
    Message message = message_of(Type::kSent, rank, seq);
    message.instance = instance;
    hear(message);
  }
  void all_sent(uint64_t seq) {
    for (uint32_t rank = 0; rank < config_.workers; ++rank) sent(seq, rank);
  }
  void defer(uint64_t seq, uint32_t rank, std::optional<int32_t> raw,
             uint32_t instance = kInstance) {
    Message message =
        raw ? with_values(Type::kDefer, rank, seq, 1) : message_of(Type::kDefer, rank, seq);
    message.instance = instance;
    if (raw) message.flags = wire::kFlagRaw;
    hear(message, raw ? &*raw : nullptr);
  }
  void have(uint64_t seq, uint32_t rank, int32_t value, uint16_t flags = 0,
            uint32_t instance = kInstance) {
    Message message = with_values(Type::kHave, rank, seq, 1);
    message.flags = flags;
    message.instance = instance;
    hear(message, &value);
  }

  /// All that it wants to say now.
  std::vector<Said> output() {
    std::vector<Said> said;
    Outgoing packets[4];
    while (const size_t count = fallback_->prepare(packets)) {
      for (size_t i = 0; i < count; ++i) {
        const Outgoing& packet = packets[i];
        EXPECT_FALSE(wire::validate(packet.message, packet.payload_bytes, kSlotBytes));
        EXPECT_EQ(packet.message.rank, kFallbackRank);
        EXPECT_EQ(packet.message.instance, config_.instance);
        said.push_back({packet.message, {}});
        if (packet.payload_bytes != 0)
          said.back().payload.assign(packet.payload, packet.payload + packet.payload_bytes);
      }
      fallback_->sent(count);
    }
    EXPECT_FALSE(fallback_->has_output());
    return said;
  }
  void expect_silent() {
    EXPECT_FALSE(fallback_->has_output());
    Outgoing packet;
    EXPECT_EQ(fallback_->prepare(std::span(&packet, 1)), 0u);
  }
  /// Exactly one RESULT.
  void expect_result(uint64_t seq, const Values& values, uint16_t flags = 0) {
    const std::vector<Said> said = output();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].message.type, Type::kResult);
    EXPECT_EQ(said[0].message.origin, wire::Origin::kFallback);
    EXPECT_EQ(said[0].message.seq, static_cast<uint32_t>(seq));
    EXPECT_EQ(said[0].message.epoch, kEpoch);
    EXPECT_EQ(said[0].message.bitmap, 0b111_workers);
    EXPECT_EQ(said[0].message.flags, flags);
    EXPECT_EQ(said[0].values(), values);
  }
  /// Exactly one POLL of this phase.
  void expect_poll(Phase phase) {
    const std::vector<Said> said = output();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].message.type, Type::kPoll);
    EXPECT_EQ(said[0].message.phase, phase);
  }
  const FallbackCounters& counters() const { return fallback_->counters(); }

  FallbackConfig config_;
  std::optional<Fallback> fallback_;
};

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

// ---- what is to be sent

TEST_F(FallbackTest, SaysEachThingOnceHoweverOftenItIsAsked) {
  for (int i = 0; i < 100; ++i) query(0, static_cast<uint32_t>(i % 2));
  expect_poll(Phase::kStatus);
  query(0);
  expect_poll(Phase::kStatus);
  EXPECT_EQ(counters().polls, 2u);
}

TEST_F(FallbackTest, WhatAllAskItAsksOnceUntilOneAsksAgain) {
  query(0, 0);
  expect_poll(Phase::kStatus);
  query(0, 1);
  expect_silent();
  query(0, 1);
  expect_poll(Phase::kStatus);
  query(0, 0);
  expect_silent();
  query(1, 1);
  EXPECT_EQ(output().size(), 1u) << "another fragment";
}

TEST_F(FallbackTest, WhoAsksHasSent) {
  for (uint32_t rank = 0; rank < 3; ++rank) query(0, rank);
  const auto said = output();  // the poll of the first has been overtaken, and goes all the same
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[1].message.type, Type::kRemind) << "all have sent, though nobody has said so";
  query(0, 2);
  const auto bound = output();
  ASSERT_EQ(bound.size(), 2u);
  EXPECT_EQ(bound[0].message.type, Type::kRemind);
  EXPECT_EQ(bound[1].message.phase, Phase::kBind);
}

TEST_F(FallbackTest, OnlyWhatWasSentLeavesTheQueue) {
  query(0);
  query(1);
  query(2);
  Outgoing packets[4];
  ASSERT_EQ(fallback_->prepare(packets), 3u);
  fallback_->sent(1);
  ASSERT_EQ(fallback_->prepare(std::span(packets, 1)), 1u);
  EXPECT_EQ(packets[0].message.seq, 1u);
  fallback_->sent(0);
  ASSERT_EQ(fallback_->prepare(packets), 2u);
  EXPECT_EQ(packets[0].message.seq, 1u);
  EXPECT_EQ(packets[1].message.seq, 2u);
  fallback_->sent(2);
  expect_silent();
}

TEST_F(FallbackTest, QuestionsOfADecidedFragmentAreNotAsked) {
  query(0);
  query(1);
  have(0, 1, 5);
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].message.type, Type::kPoll);
  EXPECT_EQ(said[0].message.seq, 1u);
  EXPECT_EQ(said[1].message.type, Type::kResult);
  EXPECT_EQ(said[1].message.seq, 0u);
}

TEST_F(FallbackTest, NewerFragmentsTakeOverEntriesWithUnsentOutput) {
  part(0, 0b111_workers, {5});
  query(2 * kWindow);  // in the entry of fragment 0
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.type, Type::kPoll);
  EXPECT_EQ(said[0].message.seq, 2 * kWindow);
}

TEST_F(FallbackTest, QueueHoldsWhenNothingIsEverSent) {
  for (uint64_t seq = 0; seq < 20 * kWindow; ++seq) query(seq);
  const std::vector<Said> said = output();
  EXPECT_LE(said.size(), 2 * kWindow);
  query(20 * kWindow - 1);
  expect_poll(Phase::kStatus);
}

TEST_F(FallbackTest, SpeaksInTheEpochThatTheJobHasNow) {
  fallback_->set_epoch(kEpoch + 1);
  query(0);
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.epoch, kEpoch + 1);
  part(1, 0b111_workers, {5}, kEpoch);  // of this fallback's own life still
  EXPECT_EQ(output().size(), 1u);
}

TEST_F(FallbackTest, NamesTheLaneOfTheFragment) {
  config_.lanes = 4;
  start();
  query(6);
  EXPECT_EQ(output()[0].message.lane, 2);
}

// ---- result buffers

TEST_F(FallbackTest, AResultGoesWhereTheContributionsAimed) {
  const Values values = {1, 2};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Message message = with_values(Type::kPart, rank, 0, values.size());
    message.target = 17;
    hear(message, values.data());
  }
  const auto said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.type, Type::kResult);
  EXPECT_EQ(said[0].message.target, 17u);
}

// After a restart of the switch: contributions that came before must not quarrel with those that
// come after.
TEST_F(FallbackTest, ForgetsTargetsOfASwitchThatHasGone) {
  const Values values = {1, 2};
  Message before = with_values(Type::kPart, 0, 0, values.size());
  before.target = 17;
  hear(before, values.data());
  fallback_->forget_targets();
  part(0, 0b110_workers, values);
  EXPECT_FALSE(fallback_->mismatch());
  const auto said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.target, 0u);
}

}  // namespace
}  // namespace ina::aggregator
