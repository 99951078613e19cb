// Collectives in the engine of one worker: marks in runs, results for others, and the fragment that
// closes an operation. Whole jobs: tests/sim/scenarios_collectives_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "fragments/engine.h"

namespace ina::client {
namespace {

using scheduler::Block;
using wire::Origin;
using wire::Type;

constexpr uint32_t kWorkers = 3;
constexpr uint32_t kRank = 1;
constexpr uint8_t kMe = 1 + kRank;
constexpr uint32_t kEpoch = 9;
constexpr uint32_t kPerFragment = 16;  // int32
constexpr Nanos kRto = 1'000'000;

struct PlainCopier {
  void copy(std::span<const CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

/// A fragment for each, one after the other in both buffers.
std::vector<Block> blocks_of(std::initializer_list<std::pair<uint8_t, uint8_t>> roles) {
  std::vector<Block> blocks;
  for (const auto& [source, receiver] : roles) {
    const uint64_t at = blocks.size() * kPerFragment;
    blocks.push_back({kPerFragment, at, at, source, receiver});
  }
  return blocks;
}

class CollectivesTest : public testing::Test {
 protected:
  CollectivesTest() { start(16); }

  void start(uint32_t window, uint32_t lanes = 1) {
    EngineConfig config;
    config.rank = Rank{kRank};
    config.workers = kWorkers;
    config.epoch = kEpoch;
    config.window = window;
    config.slot_bytes = kPerFragment * 4;
    config.lanes = lanes;
    config.rules.policy = scheduler::PolicyKind::kFcfs;
    config.rules.home = Home::kDedicated;
    config.rules.rto_min_ns = kRto;
    engine_.emplace(config);
  }

  Operation* submit(Collective collective, const std::vector<Block>& blocks) {
    OperationSpec spec;
    spec.blocks = std::make_shared<scheduler::BlockTable>(blocks, kPerFragment, 7);
    spec.elements = spec.blocks->elements();
    spec.collective = collective;
    spec.dtype = DType::kInt32;
    send_.resize(spec.elements);
    for (size_t e = 0; e < send_.size(); ++e) send_[e] = static_cast<int32_t>(e / kPerFragment);
    recv_.assign(spec.elements, -1);
    spec.send = reinterpret_cast<const std::byte*>(send_.data());
    spec.recv = reinterpret_cast<std::byte*>(recv_.data());
    table_ = spec.blocks;
    return engine_->submit(spec, 0);
  }

  std::vector<TxPacket> send(Nanos now = 0) {
    TxPacket packets[Engine::kBurst];
    const size_t count = engine_->prepare(packets, now);
    engine_->sent(count, now);
    return {packets, packets + count};
  }

  /// A result for the latest operation, whose first fragment is number 0.
  RxPacket result_of(uint64_t seq, Origin origin = Origin::kSwitch) const {
    RxPacket packet;
    packet.message.type = Type::kResult;
    packet.message.origin = origin;
    packet.message.seq = static_cast<uint32_t>(seq);
    packet.message.epoch = kEpoch;
    packet.message.bitmap = WorkerSet::first(kWorkers);
    packet.message.operation_elements =
        table_->elements() | wire::blocks_bits(table_->elements(), table_->fingerprint());
    packet.message.dtype = DType::kInt32;
    packet.message.op = Op::kSum;
    packet.message.collective = collective_;
    return packet;
  }
  void receive(const RxPacket& packet) {
    PlainCopier copier;
    engine_->on_packets({&packet, 1}, 0, copier);
  }
  /// With a payload of this value.
  void result(uint64_t seq, int32_t value) {
    RxPacket packet = result_of(seq);
    std::vector<int32_t> payload;
    if (seq < table_->fragments()) {
      payload.assign(kPerFragment, value);
      packet.message.elements = kPerFragment;
      packet.message.receiver = table_->place_of(seq).block->receiver;
    }
    packet.payload = reinterpret_cast<const std::byte*>(payload.data());
    packet.payload_bytes = static_cast<uint32_t>(4 * payload.size());
    receive(packet);
  }
  void bare_result(uint64_t seq, uint16_t fragments = 1, Origin origin = Origin::kSwitch) {
    RxPacket packet = result_of(seq, origin);
    packet.message.flags = wire::kFlagBare;
    packet.message.elements = fragments;
    receive(packet);
  }
  std::vector<TxPacket> poll(uint64_t seq, wire::Phase phase) {
    RxPacket packet;
    packet.message.type = Type::kPoll;
    packet.message.phase = phase;
    packet.message.seq = static_cast<uint32_t>(seq);
    packet.message.bitmap = WorkerSet::first(kWorkers);
    receive(packet);
    return send();
  }

  std::optional<Engine> engine_;
  std::vector<int32_t> send_, recv_;
  std::shared_ptr<const scheduler::BlockTable> table_;
  Collective collective_ = Collective::kReduce;
};

TEST_F(CollectivesTest, WhoGetsNothingClosesAtOnce) {
  submit(Collective::kReduce, blocks_of({{0, 1}, {0, 1}}));
  const auto packets = send();
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[1].message.receiver, 1);
  EXPECT_EQ(packets[1].message.elements, kPerFragment);
  EXPECT_EQ(packets[2].message.elements, 0);
  EXPECT_EQ(packets[2].message.receiver, 0) << "all get the closing fragment's result";
  EXPECT_EQ(packets[2].message.operation_elements, packets[1].message.operation_elements);
  EXPECT_FALSE(packets[2].message.bare()) << "it is no mark";
}

TEST_F(CollectivesTest, WhoGetsSomethingClosesWhenItHasAll) {
  Operation* operation = submit(Collective::kReduce, blocks_of({{0, kMe}, {0, kMe}}));
  EXPECT_EQ(send().size(), 2u);
  result(1, 11);
  EXPECT_TRUE(send().empty());
  result(0, 10);
  const auto closing = send();
  ASSERT_EQ(closing.size(), 1u);
  EXPECT_EQ(closing[0].message.seq, 2u);
  EXPECT_EQ(closing[0].message.elements, 0);
  EXPECT_FALSE(operation->done) << "others may still miss theirs";
  result(2, 0);
  EXPECT_TRUE(operation->done);
  EXPECT_EQ(recv_.front(), 10);
  EXPECT_EQ(recv_.back(), 11);
}

/// The events of a listener, in order.
class Heard final : public OperationListener {
 public:
  void received(Operation&) override { all += 'r'; }
  void completed(Operation&) override { all += 'c'; }
  std::string all;
};

TEST_F(CollectivesTest, AListenerHearsOfReceiptBeforeTheEnd) {
  Heard heard;
  Operation* operation = submit(Collective::kReduce, blocks_of({{0, kMe}, {0, kMe}}));
  operation->spec.listener = &heard;
  send();
  result(1, 11);
  EXPECT_EQ(heard.all, "");
  result(0, 10);
  EXPECT_EQ(heard.all, "r");
  EXPECT_EQ(recv_.front(), 10);
  EXPECT_EQ(recv_.back(), 11);
  send();
  result(2, 0);
  EXPECT_EQ(heard.all, "rc");
}

TEST_F(CollectivesTest, WhoGetsNothingHearsOfTheEndAlone) {
  Heard heard;
  Operation* operation = submit(Collective::kReduce, blocks_of({{0, 1}, {0, 1}}));
  operation->spec.listener = &heard;
  send();
  result(2, 0);
  EXPECT_TRUE(operation->done);
  EXPECT_EQ(heard.all, "c");
}

TEST_F(CollectivesTest, LaterOperationsNeedNotWaitForTheClosingFragment) {
  submit(Collective::kReduce, blocks_of({{0, kMe}}));
  EXPECT_EQ(send().size(), 1u);
  std::vector<int32_t> data(2 * kPerFragment, 1);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  Operation* later = engine_->submit(
      {bytes, bytes, data.size(), DType::kInt32, Op::kSum, Collective::kAllReduce}, 0);
  const auto overtaking = send();
  ASSERT_EQ(overtaking.size(), 2u);
  EXPECT_EQ(overtaking[0].message.seq, 2u);
  EXPECT_EQ(overtaking[1].message.seq, 3u);
  for (const TxPacket& sent : overtaking) {
    RxPacket packet{sent.message, sent.payload, sent.payload_bytes};
    packet.message.type = Type::kResult;
    receive(packet);
  }
  EXPECT_TRUE(later->done);
  EXPECT_EQ(engine_->standing().low, Seq{0});
  result(0, 5);
  const auto closing = send();
  ASSERT_EQ(closing.size(), 1u);
  EXPECT_EQ(closing[0].message.seq, 1u);
  result(1, 0);
  EXPECT_EQ(engine_->standing().low, Seq{4});
  EXPECT_EQ(engine_->running(), 0u);
}

/// A full transport takes the first of the prepared packets, and a postponed closing fragment takes
/// no packet.
TEST_F(CollectivesTest, WhatWasNotTakenIsSentNext) {
  submit(Collective::kReduce, blocks_of({{0, kMe}, {0, kMe}, {0, kMe}}));
  std::vector<int32_t> data(2 * kPerFragment, 1);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  engine_->submit({bytes, bytes, data.size(), DType::kInt32, Op::kSum, Collective::kAllReduce}, 0);
  std::vector<uint32_t> sent;
  for (size_t rounds = 0; rounds < 10; ++rounds) {
    TxPacket packets[Engine::kBurst];
    const size_t taken = std::min<size_t>(rounds % 3, engine_->prepare(packets, 0));
    engine_->sent(taken, 0);
    for (size_t i = 0; i < taken; ++i) sent.push_back(packets[i].message.seq);
  }
  EXPECT_EQ(sent, (std::vector<uint32_t>{0, 1, 2, 4, 5}));
}

TEST_F(CollectivesTest, AnOperationWithoutElementsHasOneFragmentForAll) {
  Operation* operation = submit(Collective::kReduce, {});
  const auto packets = send();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.operation_elements, 0u);
  result(0, 0);
  EXPECT_TRUE(operation->done);
}

TEST_F(CollectivesTest, MarksComeInRuns) {
  submit(Collective::kAllGather, blocks_of({{1, 0}, {1, 0}, {kMe, 0}, {3, 0}, {3, 0}, {1, 0}}));
  const auto packets = send();
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_TRUE(packets[0].message.bare());
  EXPECT_EQ(packets[0].message.seq, 0u);
  EXPECT_EQ(packets[0].message.elements, 2);
  EXPECT_EQ(packets[0].payload_bytes, 0u);
  EXPECT_FALSE(packets[1].message.bare());
  EXPECT_EQ(packets[1].message.seq, 2u);
  EXPECT_TRUE(packets[2].message.bare());
  EXPECT_EQ(packets[2].message.seq, 3u);
  EXPECT_EQ(packets[2].message.elements, 3) << "of two sources";
  EXPECT_EQ(engine_->counters().bytes_sent, kPerFragment * 4u);
}

TEST_F(CollectivesTest, ARunEndsWithTheWindow) {
  start(4);
  collective_ = Collective::kBroadcast;
  submit(collective_, blocks_of({{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}));
  const auto first = send();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].message.elements, 4);
  EXPECT_TRUE(send().empty()) << "C1";
  result(0, 1);
  const auto next = send();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].message.seq, 4u);
  EXPECT_EQ(next[0].message.elements, 1);
}

TEST_F(CollectivesTest, EachLaneHasARunOfItsOwn) {
  start(16, 2);
  collective_ = Collective::kBroadcast;
  submit(collective_, blocks_of({{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}));
  const auto packets = send();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].message.seq, 0u);
  EXPECT_EQ(packets[0].message.lane, 0u);
  EXPECT_EQ(packets[0].message.elements, 3);
  EXPECT_EQ(packets[1].message.seq, 1u);
  EXPECT_EQ(packets[1].message.lane, 1u);
  EXPECT_EQ(packets[1].message.elements, 2);
}

TEST_F(CollectivesTest, BareResultsComeInRunsAndFromAnywhere) {
  submit(Collective::kReduce, blocks_of({{0, 1}, {0, 1}, {0, 1}}));
  send();
  bare_result(1, 2, Origin::kFallback);
  EXPECT_EQ(engine_->counters().results, 2u);
  bare_result(0, 4);
  EXPECT_EQ(engine_->counters().results, 3u) << "the closing fragment's result is never bare";
  EXPECT_EQ(engine_->counters().bytes_received, 0u);
}

TEST_F(CollectivesTest, ARunOfBareResultsGoesOnOverItsOwnFragments) {
  collective_ = Collective::kReduceScatter;
  submit(collective_, blocks_of({{0, 1}, {0, kMe}, {0, 3}}));
  send();
  bare_result(0, 3);
  EXPECT_EQ(engine_->counters().results, 2u);
  EXPECT_EQ(engine_->counters().results_ignored, 0u);
  EXPECT_TRUE(engine_->awaits(Seq{1})) << "its bytes are not here yet";
  bare_result(2);
  EXPECT_EQ(engine_->counters().results_ignored, 1u) << "it came before";
  result(1, 5);
  EXPECT_EQ(engine_->counters().results, 3u);
}

/// The switch keeps bare results of a quarter of W: no longer those of a worker of which less than
/// half of W is under way at most, once half of that is.
TEST_F(CollectivesTest, ASmallWindowWantsItsResultsAtOnceWhenHalfOfItIsUsed) {
  EngineConfig config = engine_->config();
  config.rules.ecn = true;
  config.window = 64;
  engine_.emplace(config);
  std::vector<Block> blocks;
  for (size_t i = 0; i < 100; ++i)
    blocks.push_back({kPerFragment, i * kPerFragment, i * kPerFragment, 0, 1});
  submit(Collective::kReduce, blocks);
  const auto is_prompt = [](const TxPacket& packet) {
    return (packet.message.flags & wire::kFlagPrompt) != 0;
  };
  std::vector<TxPacket> packets;
  for (auto more = send(); !more.empty(); more = send())
    packets.insert(packets.end(), more.begin(), more.end());
  ASSERT_EQ(packets.size(), 64u);
  EXPECT_TRUE(std::ranges::none_of(packets, is_prompt));
  RxPacket marked = result_of(0);
  marked.message.flags = wire::kFlagBare | wire::kFlagEcn;
  marked.message.elements = 40;
  receive(marked);
  EXPECT_EQ(engine_->window_now(), 32u);
  packets = send();
  ASSERT_FALSE(packets.empty());
  EXPECT_TRUE(std::ranges::none_of(packets, is_prompt)) << "half is enough";
  marked = result_of(40);
  marked.message.flags = wire::kFlagBare | wire::kFlagEcn;
  marked.message.elements = 30;
  receive(marked);
  const uint32_t window = engine_->window_now();
  EXPECT_LT(window, 32u);
  packets = send();
  ASSERT_GT(packets.size(), window / 2);
  const size_t before = window - packets.size();
  for (size_t i = 0; i < packets.size(); ++i)
    EXPECT_EQ(is_prompt(packets[i]), 2 * (before + i + 2) > window) << i;
}

/// They take no place in the window: what is under way would look small beside it.
TEST_F(CollectivesTest, FragmentsThatAWorkerAddsNothingToMakeNoWindowLarger) {
  EngineConfig config = engine_->config();
  config.rules.ecn = config.lossy_link = true;
  config.window = 64;
  engine_.emplace(config);
  std::vector<Block> blocks;
  for (size_t i = 0; i < 80; ++i)
    blocks.push_back(
        {kPerFragment, i * kPerFragment, i * kPerFragment, i < 20 ? uint8_t{1} : kMe, 3});
  submit(Collective::kAllToAll, blocks);
  while (!send().empty()) {
  }
  const uint32_t first = engine_->window_now();
  ASSERT_LT(first, 64u);
  const auto bare = [this](uint64_t seq, uint16_t fragments) {
    RxPacket packet = result_of(seq);
    packet.message.collective = Collective::kAllToAll;
    packet.message.flags = wire::kFlagBare;
    packet.message.elements = fragments;
    receive(packet);
  };
  bare(0, 20);
  EXPECT_EQ(engine_->counters().results, 20u);
  EXPECT_EQ(engine_->window_now(), first);
  bare(20, 2);
  EXPECT_EQ(engine_->window_now(), first + 2);
}

TEST_F(CollectivesTest, AResultForSomebodyElseIsNoResult) {
  submit(Collective::kReduce, blocks_of({{0, 1}, {0, kMe}}));
  send();
  result(0, 99);
  bare_result(1);
  EXPECT_EQ(engine_->counters().results, 0u);
  EXPECT_EQ(recv_[0], -1);
}

TEST_F(CollectivesTest, TheClosingResultStandsForBareOnes) {
  Operation* operation = submit(Collective::kReduce, blocks_of({{0, 1}, {0, 1}}));
  send();
  bare_result(1);
  EXPECT_FALSE(operation->done);
  result(2, 0);
  EXPECT_TRUE(operation->done);
  EXPECT_EQ(engine_->counters().results, 3u);
}

TEST_F(CollectivesTest, WhoGotNothingSaysSentAndSendsItAgainUntilAllHaveAll) {
  collective_ = Collective::kReduceScatter;
  Operation* operation = submit(collective_, blocks_of({{0, 1}, {0, kMe}}));
  send();
  bare_result(0);
  result(1, 5);
  send();
  auto answers = poll(0, wire::Phase::kStatus);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].message.type, Type::kSent);
  answers = poll(0, wire::Phase::kBind);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].message.type, Type::kDefer);
  EXPECT_TRUE(answers[0].message.flags & wire::kFlagRaw);
  EXPECT_EQ(answers[0].payload, reinterpret_cast<const std::byte*>(send_.data()));
  for (const auto phase : {wire::Phase::kStatus, wire::Phase::kBind}) {
    answers = poll(1, phase);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].message.type, Type::kHave) << "it got the bytes itself";
  }
  result(2, 0);
  ASSERT_TRUE(operation->done);
  EXPECT_TRUE(poll(0, wire::Phase::kBind).empty()) << "the buffer is its user's again";
}

TEST_F(CollectivesTest, AMarkIsDeferredWithoutBytes) {
  collective_ = Collective::kAllGather;
  submit(collective_, blocks_of({{1, 0}, {kMe, 0}}));
  send();
  auto answers = poll(0, wire::Phase::kBind);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].message.type, Type::kDefer);
  EXPECT_TRUE(answers[0].message.bare());
  EXPECT_EQ(answers[0].payload_bytes, 0u);
  answers = poll(1, wire::Phase::kBind);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].message.bare());
  EXPECT_EQ(answers[0].payload_bytes, kPerFragment * 4u);
}

/// Moved elements are not added: bytes fill a fragment, not accumulators.
TEST_F(CollectivesTest, MovedElementsFillAFragment) {
  EXPECT_EQ(elements_per_fragment(Collective::kAllGather, DType::kInt8, 64), 64u);
  EXPECT_EQ(elements_per_fragment(Collective::kReduceScatter, DType::kInt8, 64), 16u);
}

}  // namespace
}  // namespace ina::client
