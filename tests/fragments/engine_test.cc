// The protocol engine of one worker, without transport or clock.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fragments/engine_fixture.h"

namespace ina::client {
namespace {

TEST_F(EngineTest, CutsAnOperationIntoFragmentsWithAWholeSignature) {
  submit(100);
  const auto packets = send(0);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].message.elements, 64);
  EXPECT_EQ(packets[1].message.elements, 36);
  EXPECT_EQ(packets[1].payload, reinterpret_cast<std::byte*>(data_.data() + 64));
  for (uint32_t i = 0; i < 2; ++i) {
    const wire::Message& m = packets[i].message;
    EXPECT_EQ(m.type, wire::Type::kGrad);
    EXPECT_EQ(m.seq, i);
    EXPECT_EQ(m.epoch, 9u);
    EXPECT_EQ(m.rank, Rank{3});
    EXPECT_EQ(m.bitmap, WorkerSet::of(Rank{3}));
    EXPECT_EQ(m.lane, i % 2);
    EXPECT_EQ(m.operation_elements, 100u);
  }
}

TEST_F(EngineTest, SendsNoFurtherThanTheWindowFromTheOldestWithoutResult) {
  submit(64 * 10);
  const auto first = send(0);
  ASSERT_EQ(first.size(), 4u);
  result(first[1], 2, 10);  // not the oldest: the window does not move
  EXPECT_TRUE(send(20).empty());
  result(first[0], 2, 30);
  const auto next = send(40);
  ASSERT_EQ(next.size(), 2u) << "the oldest two have results now";
  EXPECT_EQ(next[0].message.seq, 4u);
}

TEST_F(EngineTest, NoMoreThatIsCopiedIsUnderWayThanItIsTold) {
  EngineConfig few = wide_config();
  few.most_in_flight = 3;
  engine_.emplace(few);
  submit(64 * 10);
  const auto first = send(0);
  ASSERT_EQ(first.size(), 3u);
  result(first[1], 2, 10);
  EXPECT_EQ(send(20).size(), 1u) << "results in any order make room";
  // Results that appear in the user's memory are copied by nobody.
  engine_.emplace(few);
  submit(64 * 10, 1);
  EXPECT_EQ(send(0).size(), 10u);
  // Help for stragglers has a limit of its own.
  few.in_switch = 5;
  engine_.emplace(few);
  submit(64 * 10);
  EXPECT_EQ(send(0).size(), 5u);
}

TEST_F(EngineTest, WhatTheTransportDidNotTakeIsOfferedAgain) {
  submit(64 * 4);
  TxPacket packets[8];
  ASSERT_EQ(engine_->prepare(packets, 0), 4u);
  engine_->sent(1, 0);
  ASSERT_EQ(engine_->prepare(packets, 0), 3u);
  EXPECT_EQ(packets[0].message.seq, 1u);
}

TEST_F(EngineTest, DoublesItsFirstWindowWhileTheArrayHasRoom) {
  EngineConfig full = wide_config();
  full.first_window = 8;
  engine_.emplace(full);
  submit(64 * 10'000);
  auto packets = send(0);
  ASSERT_EQ(packets.size(), 8u);
  for (const TxPacket& packet : packets) result(packet, 1, 10);
  packets = send(20);
  ASSERT_EQ(packets.size(), 16u);
  const auto by_fallback = [](wire::Message& message) { message.origin = wire::Origin::kFallback; };
  for (const TxPacket& packet : packets) result(packet, 1, 30, by_fallback);
  packets = send(40);
  EXPECT_EQ(packets.size(), 18u) << "an eighth more";
  for (const TxPacket& packet : packets) result(packet, 1, 50);
  EXPECT_EQ(send(60).size(), 20u);
}

TEST_F(EngineTest, CompletesWhenEveryFragmentHasItsResultOnce) {
  Operation* operation = submit(128);
  const auto packets = send(0);
  result(packets[1], 7, 10);
  result(packets[1], 8, 11);  // a duplicate must not overwrite what the user may have by now
  EXPECT_FALSE(operation->done);
  result(packets[0], 6, 12);
  EXPECT_TRUE(operation->done);
  EXPECT_EQ(data_[0], 6);
  EXPECT_EQ(data_[64], 7);
  EXPECT_EQ(engine_->counters().results_ignored, 1u);
  EXPECT_EQ(engine_->next_deadline(), Engine::kNever);
}

TEST_F(EngineTest, ForeignResultsAreIgnored) {
  submit(64);
  const auto packets = send(0);
  result(packets[0], 9, 1, [](auto& m) { m.seq = 1; });
  result(packets[0], 9, 1, [](auto& m) { m.seq = 0xffffffff; });
  result(packets[0], 9, 1, [](auto& m) { m.operation = 1; });
  result(packets[0], 9, 1, [](auto& m) { m.operation_elements = 65; });
  result(packets[0], 9, 1, [](auto& m) { m.type = wire::Type::kGrad; });
  EXPECT_EQ(data_[0], 1.0f);
  EXPECT_EQ(engine_->counters().results_ignored, 4u);
}

TEST_F(EngineTest, EmptyOperationSendsOneFragment) {
  Operation* operation = submit(0);
  const auto packets = send(0);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].payload_bytes, 0u);
  result(packets[0], 0, 1);
  EXPECT_TRUE(operation->done);
}

TEST_F(EngineTest, OperationsShareTheWindowInOrder) {
  submit(64);
  std::vector<float> other(64 * 8);
  auto* bytes = reinterpret_cast<std::byte*>(other.data());
  engine_->submit({bytes, bytes, other.size(), DType::kFloat32, Op::kMax, Collective::kAllReduce},
                  0);
  const auto packets = send(0);
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[0].message.operation, 0u);
  EXPECT_EQ(packets[1].message.operation, 1u);
  EXPECT_EQ(packets[1].message.seq, 1u);
}

// ---- lossy links

TEST_F(LossyLinkTest, WhatIsInFlightIsCappedUnlessStragglersGetHelp) {
  /// The window after a hundred results, the last of which was split.
  const auto window_of = [this](uint32_t in_switch, bool window_cap) {
    EngineConfig shared = config();
    shared.window = 256;
    shared.lossy_link = true;
    shared.rules.policy = scheduler::PolicyKind::kFcfs;
    shared.in_switch = in_switch;
    shared.window_cap = window_cap;
    engine_.emplace(shared);
    submit(64 * 1000);
    std::vector<TxPacket> sent;
    Nanos now = 0;
    for (size_t i = 0; i < 100; ++i) {
      const auto more = i == sent.size() ? send_all(now) : send(now);
      sent.insert(sent.end(), more.begin(), more.end());
      result(sent[i], 1, now += 1'000,
             [&](wire::Message& m) { m.flags = i == 99 ? wire::kFlagSplit : 0; });
    }
    return engine_->window_now();
  };
  EXPECT_EQ(window_of(0, true), 16u);
  EXPECT_GT(window_of(0, false), 24u);
  EXPECT_GT(window_of(256, true), 24u);
}

TEST_F(LossyLinkTest, SplitsCountUnlessTheyMeetInTheSwitch) {
  for (const Home home : {Home::kDedicated, Home::kSpill}) {
    EngineConfig split = config();
    split.window = 256;
    split.lossy_link = true;
    split.rules.policy = scheduler::PolicyKind::kFcfs;
    split.rules.home = home;
    engine_.emplace(split);
    submit(64 * 1000);
    Nanos now = 0;
    const auto first = send_all(now);
    EXPECT_EQ(first.size(), 16u);
    result(first[0], 1, 1'000, [](wire::Message& m) { m.flags = wire::kFlagSplit; });
    if (home == Home::kSpill)
      EXPECT_EQ(engine_->window_now(), 17u) << "the congestion window's";
    else
      EXPECT_EQ(engine_->window_now(), 12u);
  }
}

TEST_F(LossyLinkTest, BeginsSlowlyAndDoublesARoundTripUntilSomethingIsLost) {
  submit(64 * 1000);
  Nanos now = 0;
  const auto first = send_all(now);
  EXPECT_EQ(first.size(), 16u);
  for (const TxPacket& packet : first) result(packet, 1, now += 1'000);
  const auto second = send_all(now);
  EXPECT_EQ(second.size(), 32u);
  // All but the first arrive: it is taken for lost once what was sent later has come.
  for (const TxPacket& packet : std::span(second).subspan(1)) result(packet, 1, now += 1'000);
  const auto third = send_all(now += 1'000'000 / 4);
  EXPECT_GT(third.size(), 16u);
  result(third.back(), 1, ++now);
  const auto again = send_all(now);
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.front().message.seq, second.front().message.seq) << "long before its deadline";
  EXPECT_EQ(engine_->window_now(), 32u) << "no queue: not half of 64";
}

TEST_F(LossyLinkTest, AMissingFragmentHoldsBackOnlyItsOwnPlace) {
  submit(64 * 1000);
  Nanos now = 0;
  const auto first = send_all(now);
  for (const TxPacket& packet : std::span(first).subspan(1)) result(packet, 1, 10);
  EXPECT_EQ(send_all(now = 20).size(), 15u + 15u) << "one for each result, and one more each";
}

TEST_F(LossyLinkTest, WhatWasSentTogetherMayArriveInAnyOrder) {
  submit(64 * 8);
  Nanos now = 0;
  const auto packets = send_all(now);
  for (size_t i = packets.size() - 1; i != 0; --i) result(packets[i], 1, 10);
  EXPECT_TRUE(send_all(now = 20).empty());
}

TEST_F(LossyLinkTest, SpreadsWhatTheWindowLetsOutOverTheRoundTrip) {
  submit(64 * 16);
  Nanos now = 0;
  for (const TxPacket& packet : send_all(now)) result(packet, 1, 1'000'000);
  now = 5'000'000;
  submit(64 * 1000);
  // Half a round trip, because the window still doubles, in eight parts; one that was missed.
  EXPECT_EQ(send(now).size(), 4u);
  EXPECT_EQ(send(now).size(), 4u);
  for (int part = 1; part <= 6; ++part) {
    EXPECT_TRUE(send(now + part * 62'500 - 1).empty());
    EXPECT_TRUE(engine_->paced());
    EXPECT_EQ(engine_->next_deadline(), now + part * 62'500);
    EXPECT_EQ(send(now + part * 62'500).size(), 4u);
  }
  EXPECT_TRUE(send(now + 500'000).empty());
  EXPECT_FALSE(engine_->paced()) << "it waits for results";
  EXPECT_GT(engine_->next_deadline(), now + kRto / 2);
}

TEST_F(LossyLinkTest, WaitingForOtherWorkersDoesNotSlowItDown) {
  submit(64 * 96);
  Nanos now = 0;
  auto packets = send_all(now);
  for (const TxPacket& packet : packets) result(packet, 1, now = 1'000'000);
  packets = send_all(now);
  for (const TxPacket& packet : packets) result(packet, 1, now + 100'000'000);
  submit(64 * 1000);
  const Nanos begun = now += 200'000'000;
  EXPECT_GE(send_all(now).size(), 64u);
  EXPECT_LE(now - begun, 4'000'000) << "of round trips of up to 100 ms";
}

TEST_F(LossyLinkTest, ALossShrinksTheWindowFurtherWhenRoundTripsTellOfQueues) {
  EngineConfig patient = config();
  patient.window = 256;
  patient.lossy_link = true;
  patient.rules.rto_min_ns = patient.rules.rto_max_ns = 60'000'000'000;
  engine_.emplace(patient);
  submit(64 * 100'000);
  Nanos now = 0;
  // Each round loses its last packet, which is sent again as the next round overtakes it.
  const auto round = [&](Nanos rtt) {
    auto packets = send_all(now);
    std::ranges::sort(packets, {}, [](const TxPacket& packet) { return packet.message.seq; });
    now += rtt;
    for (size_t i = 0; i + 1 < packets.size(); ++i) result(packets[i], 1, now);
  };
  for (int i = 0; i < 40; ++i) round(1'000'000);
  EXPECT_GE(engine_->window_now(), 32u) << "links lose frames for other reasons, too";
  for (int i = 0; i < 80; ++i) round(20'000'000);
  EXPECT_LT(engine_->window_now(), 16u);
}

// ---- priorities

/// Priority of a worker that has trained for a while: five iterations of 10 ms, 4 ms of which is
/// communication, with hints that count down to `hints`.
uint8_t priority_with(const scheduler::Hints& hints, uint8_t priority_max = 255) {
  EngineConfig config;
  config.window = 4;
  config.slot_bytes = 256;
  config.rules.priority_max = priority_max;
  Engine engine(config);
  std::vector<float> data(64);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  constexpr Nanos kIteration = 10'000'000;
  constexpr uint64_t kIterations = 5;
  TxPacket packet;
  for (uint64_t i = 0; i <= kIterations; ++i) {
    const Nanos start = static_cast<Nanos>(i) * kIteration;
    scheduler::Hints now = hints;
    if (hints.remaining_iterations != 0) now.remaining_iterations += kIterations - i;
    engine.set_hints(now, start);
    Operation* operation = engine.submit(
        {bytes, bytes, data.size(), DType::kFloat32, Op::kSum, Collective::kAllReduce}, start);
    EXPECT_EQ(engine.prepare({&packet, 1}, start), 1u);
    engine.sent(1, start);
    RxPacket result{packet.message, bytes, 256};
    result.message.type = wire::Type::kResult;
    PlainCopier copier;
    engine.on_packets({&result, 1}, start + 4 * kIteration / 10, copier);
    EXPECT_TRUE(operation->done);
    engine.release(operation);
  }
  return packet.message.priority;
}

TEST(EnginePriority, GrowsAsTheJobComesToItsEnd) {
  EXPECT_GT(priority_with({0, 0, 10}), priority_with({0, 0, 100}));
  EXPECT_GT(priority_with({0, 0, 100}), priority_with({0, 0, 100'000}));
  EXPECT_LT(priority_with({}), priority_with({0, 0, 5}))
      << "expected to go on for a second at least";
}

TEST(EnginePriority, GrowsTowardsTheFrontLayer) {
  EXPECT_GT(priority_with({1, 8, 100}), priority_with({4, 8, 100}));
  EXPECT_GT(priority_with({4, 8, 100}), priority_with({8, 8, 100}));
  EXPECT_EQ(priority_with({8, 8, 100}), priority_with({0, 0, 100}));
}

TEST(EnginePriority, StaysWithinOneAndTheJobsHighest) {
  EXPECT_EQ(priority_with({1, 8, 1}, 7), 7);
  EXPECT_EQ(priority_with({0, 0, UINT64_MAX / 2}), 1) << "0 is reserved";
}

// ---- result buffers

class ResultBufferTest : public EngineTest {
 protected:
  /// An operation of 100 floats whose results the switch writes to `buffer_`, at unit 40.
  Operation* submit_aimed() {
    data_.assign(100, 1.0f);
    return engine_->submit({reinterpret_cast<const std::byte*>(data_.data()),
                            buffer_,
                            100,
                            DType::kFloat32,
                            Op::kSum,
                            Collective::kAllReduce,
                            {},
                            41},
                           0);
  }
  void result_at(const TxPacket& sent, const std::byte* payload) {
    RxPacket packet{sent.message, payload, sent.payload_bytes};
    packet.message.type = wire::Type::kResult;
    struct {
      void copy(std::span<const CopyJob> jobs) { copied += jobs.size(); }
      size_t copied = 0;
    } copier;
    engine_->on_packets({&packet, 1}, 1, copier);
    copies_ += copier.copied;
  }
  alignas(64) std::byte buffer_[400] = {};
  size_t copies_ = 0;
};

TEST_F(ResultBufferTest, EachFragmentNamesItsPlace) {
  submit_aimed();
  const auto packets = send(0);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].message.target, 41u);
  EXPECT_EQ(packets[1].message.target, 42u);
}

TEST_F(ResultBufferTest, ResultsThatLieThereAreNotCopied) {
  Operation* operation = submit_aimed();
  const auto packets = send(0);
  result_at(packets[0], buffer_);
  result_at(packets[1], buffer_ + 256);
  EXPECT_TRUE(operation->done);
  EXPECT_EQ(copies_, 0u);
  EXPECT_EQ(engine_->counters().bytes_copied, 0u);
}

TEST_F(ResultBufferTest, ResultsThatLieElsewhereAreNotTaken) {
  Operation* operation = submit_aimed();
  const auto packets = send(0);
  const std::byte elsewhere[256] = {};
  result_at(packets[0], elsewhere);
  EXPECT_EQ(operation->complete, 0u);
  EXPECT_EQ(engine_->counters().results_ignored, 1u);
}

TEST_F(ResultBufferTest, AfterARestartResultsAreCopied) {
  Operation* operation = submit_aimed();
  const auto before = send(0);
  engine_->rejoin(10, 1);
  TxPacket again = before[0];
  again.message.target = 0;
  std::byte elsewhere[256] = {};
  result_at(again, elsewhere);
  EXPECT_EQ(operation->complete, 1u);
  EXPECT_EQ(engine_->counters().bytes_copied, 256u);
}

}  // namespace
}  // namespace ina::client
