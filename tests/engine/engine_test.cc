// The protocol engine of one worker, without transport or clock.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace ina::client {
namespace {

constexpr Nanos kRto = 1'000'000;

struct PlainCopier {
  void copy(std::span<const CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

class EngineTest : public testing::Test {
 protected:
  static EngineConfig config() {
    EngineConfig config;
    config.rank = Rank{3};
    config.workers = 4;
    config.epoch = 9;
    config.window = 4;
    config.slot_bytes = 256;  // 64 float32 a fragment
    config.lanes = 2;
    config.rto_min_ns = kRto;
    config.rto_max_ns = 8 * kRto;
    return config;
  }

  Operation* submit(size_t elements) {
    data_.assign(elements, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data_.data());
    return engine_.submit(
        {bytes, bytes, elements, DType::kFloat32, Op::kSum, Collective::kAllReduce}, 0);
  }

  /// The packets that the engine sends at `now`; all are taken.
  std::vector<TxPacket> send(Nanos now) {
    TxPacket packets[Engine::kBurst];
    const size_t count = engine_.prepare(packets, now);
    engine_.sent(count, now);
    return {packets, packets + count};
  }

  /// A result for a sent packet, each element `value`.
  void result(const TxPacket& sent, float value, Nanos now,
              std::function<void(wire::Message&)> change = {}) {
    std::vector<float> payload(sent.message.elements, value);
    RxPacket packet{sent.message, reinterpret_cast<std::byte*>(payload.data()),
                    static_cast<uint32_t>(payload.size() * 4)};
    packet.message.type = wire::Type::kResult;
    if (change) change(packet.message);
    PlainCopier copier;
    engine_.on_packets({&packet, 1}, now, copier);
  }

  /// Shares the array's slots with others, and has a fallback elsewhere.
  static EngineConfig wide_config() {
    EngineConfig wide = config();
    wide.window = 256;
    wide.fixed_slots = false;
    wide.home = Home::kDedicated;
    return wide;
  }

  /// 256 fragments, sent at 0.
  std::vector<TxPacket> send_a_wide_window() {
    engine_ = Engine(wide_config());
    submit(64 * 256);
    std::vector<TxPacket> packets;
    while (packets.size() < 256) std::ranges::copy(send(0), std::back_inserter(packets));
    return packets;
  }

  Engine engine_{config()};
  std::vector<float> data_;
};

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
    EXPECT_EQ(m.bitmap, 8u);
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

TEST_F(EngineTest, WhatTheTransportDidNotTakeIsOfferedAgain) {
  submit(64 * 4);
  TxPacket packets[8];
  ASSERT_EQ(engine_.prepare(packets, 0), 4u);
  engine_.sent(1, 0);
  ASSERT_EQ(engine_.prepare(packets, 0), 3u);
  EXPECT_EQ(packets[0].message.seq, 1u);
}

TEST_F(EngineTest, OverdueFragmentIsSentAgainWithGrowingPatience) {
  submit(64);
  send(0);
  EXPECT_EQ(engine_.next_deadline(), kRto);
  EXPECT_TRUE(send(kRto - 1).empty());
  EXPECT_EQ(send(kRto).size(), 1u);
  EXPECT_EQ(engine_.next_deadline(), 2 * kRto) << "no more patience at first";
  EXPECT_EQ(send(2 * kRto).size(), 1u);
  EXPECT_EQ(send(3 * kRto).size(), 1u);
  EXPECT_EQ(engine_.next_deadline(), 5 * kRto) << "then twice as much";
  Nanos now = 5 * kRto;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(send(now).size(), 1u);
    EXPECT_LE(engine_.next_deadline(), now + 8 * kRto) << "capped";
    now = engine_.next_deadline();
  }
  EXPECT_EQ(engine_.counters().fragments_resent, 7u);
  EXPECT_EQ(engine_.counters().queries, 2u) << "each fourth time the fallback is asked";
}

TEST_F(EngineTest, RecoversWhatIsLostAsFastAsTheFallbackCan) {
  send_a_wide_window();
  const auto oldest = send(kRto);
  ASSERT_EQ(oldest.size(), 64u) << "no more at once, though all 256 are overdue";
  const auto recover = [&](size_t first, size_t count, Nanos now) {
    PlainCopier copier;
    for (size_t i = first; i < first + count; ++i) {
      RxPacket poll{oldest[i].message, nullptr, 0};
      poll.message.type = wire::Type::kPoll;
      poll.message.phase = wire::Phase::kBind;
      poll.message.bitmap = 1u << 3;
      engine_.on_packets({&poll, 1}, now, copier);
      const auto raw = send(now);
      ASSERT_EQ(raw.size(), 1u);
      EXPECT_EQ(raw[0].message.type, wire::Type::kDefer);
      result(raw[0], 1, now, [](wire::Message& m) { m.origin = wire::Origin::kFallback; });
    }
  };
  recover(0, 31, kRto + 2);
  EXPECT_TRUE(send(kRto + 3).empty());
  recover(31, 1, kRto + 4);
  EXPECT_EQ(engine_.next_deadline(), kRto + 4) << "half of them are there";
  const auto more = send(kRto + 4);
  ASSERT_EQ(more.size(), 64u);
  EXPECT_EQ(more[0].message.seq, 64u);
}

TEST_F(EngineTest, WhatWasOnlyLateIsNotAskedFor) {
  const auto packets = send_a_wide_window();
  ASSERT_EQ(send(kRto).size(), 64u);
  for (size_t i = 0; i < 64; ++i) result(packets[i], 1, kRto + 2);
  EXPECT_TRUE(send(kRto + 3).empty()) << "who was waited for has come";
}

TEST_F(EngineTest, DoublesItsFirstWindowWhileTheArrayHasRoom) {
  EngineConfig full = wide_config();
  full.first_window = 8;
  engine_ = Engine(full);
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

TEST_F(EngineTest, ResultOfAnOverdueFragmentStopsItsResending) {
  submit(64 * 2);
  const auto packets = send(0);
  TxPacket overdue[8];
  ASSERT_EQ(engine_.prepare(overdue, kRto), 2u);
  engine_.sent(0, kRto);  // no room in the transport
  result(packets[0], 5, kRto + 1);
  ASSERT_EQ(engine_.prepare(overdue, kRto + 2), 1u);
  EXPECT_EQ(overdue[0].message.seq, 1u);
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
  EXPECT_EQ(engine_.counters().results_ignored, 1u);
  EXPECT_EQ(engine_.next_deadline(), Engine::kNever);
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
  EXPECT_EQ(engine_.counters().results_ignored, 4u);
}

TEST_F(EngineTest, SlowRoundTripsStretchTheTimeout) {
  submit(64);
  const auto first = send(0);
  result(first[0], 1, 50 * kRto);
  submit(64);
  send(60 * kRto);
  EXPECT_GT(engine_.next_deadline(), 60 * kRto + 50 * kRto);
}

TEST_F(EngineTest, WhatACrowdHasLostIsNotRecoveredAtTheCrowdsPace) {
  constexpr Nanos kCrowded = 1000 * kRto;
  constexpr uint32_t kFragments = 1000;
  EngineConfig shared = config();
  shared.window = 1024;
  shared.fixed_slots = false;
  shared.home = Home::kDedicated;
  engine_ = Engine(shared);
  const Operation* operation = submit(64 * kFragments);
  std::vector<TxPacket> sent;
  while (sent.size() < kFragments) {
    const auto some = send(0);
    sent.insert(sent.end(), some.begin(), some.end());
  }
  Nanos now = kCrowded;
  result(sent[0], 1, now);
  // All the others are lost, and decided when they are asked for a second time.
  std::vector<int> asked(kFragments);
  for (; !operation->done && now < 100 * kCrowded; now = std::max(now, engine_.next_deadline())) {
    for (auto some = send(now); !some.empty(); some = send(now))
      for (const TxPacket& packet : some)
        if (packet.message.type == wire::Type::kQuery && ++asked[packet.message.seq] == 2)
          result(sent[packet.message.seq], 1, now + 1000,
                 [](auto& m) { m.origin = wire::Origin::kFallback; });
    if (operation->done) break;
  }
  EXPECT_TRUE(operation->done);
  EXPECT_LT(now, 8 * kCrowded) << "two long time-outs, and then short ones";
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
  engine_.submit({bytes, bytes, other.size(), DType::kFloat32, Op::kMax, Collective::kAllReduce},
                 0);
  const auto packets = send(0);
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[0].message.operation, 0u);
  EXPECT_EQ(packets[1].message.operation, 1u);
  EXPECT_EQ(packets[1].message.seq, 1u);
}

/// Priority of a worker that has trained for a while: five iterations of 10 ms, 4 ms of which is
/// communication, with hints that count down to `hints`.
uint8_t priority_with(const scheduler::Hints& hints, uint8_t priority_max = 255) {
  EngineConfig config;
  config.window = 4;
  config.slot_bytes = 256;
  config.priority_max = priority_max;
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

// ---- lossy links

class LossyLinkTest : public EngineTest {
 protected:
  LossyLinkTest() {
    EngineConfig lossy = config();
    lossy.window = 256;
    lossy.lossy_link = true;
    engine_ = Engine(lossy);
  }
  /// All that the window lets out, each at its time.
  std::vector<TxPacket> send_all(Nanos& now) {
    std::vector<TxPacket> all;
    for (;;) {
      const auto some = send(now);
      all.insert(all.end(), some.begin(), some.end());
      if (!some.empty()) continue;
      if (!engine_.paced()) return all;
      now = engine_.next_deadline();
    }
  }
};

TEST_F(LossyLinkTest, WhatIsInFlightIsCappedUnlessStragglersGetHelp) {
  /// The window after a hundred results, the last of which was split.
  const auto window_of = [this](uint32_t in_switch, bool window_cap) {
    EngineConfig shared = config();
    shared.window = 256;
    shared.lossy_link = true;
    shared.fixed_slots = false;
    shared.in_switch = in_switch;
    shared.window_cap = window_cap;
    engine_ = Engine(shared);
    submit(64 * 1000);
    std::vector<TxPacket> sent;
    Nanos now = 0;
    for (size_t i = 0; i < 100; ++i) {
      const auto more = i == sent.size() ? send_all(now) : send(now);
      sent.insert(sent.end(), more.begin(), more.end());
      result(sent[i], 1, now += 1'000,
             [&](wire::Message& m) { m.flags = i == 99 ? wire::kFlagSplit : 0; });
    }
    return engine_.window_now();
  };
  EXPECT_EQ(window_of(0, true), 16u);
  EXPECT_GT(window_of(0, false), 24u);
  EXPECT_GT(window_of(256, true), 24u);
}

TEST_F(LossyLinkTest, BeginsSlowlyAndDoublesARoundTripUntilSomethingIsLost) {
  submit(64 * 1000);
  Nanos now = 0;
  const auto first = send_all(now);
  EXPECT_EQ(first.size(), 32u);
  for (const TxPacket& packet : first) result(packet, 1, now += 1'000);
  const auto second = send_all(now);
  EXPECT_EQ(second.size(), 64u);
  // All but the first arrive: it is taken for lost once what was sent later has come.
  for (const TxPacket& packet : std::span(second).subspan(1)) result(packet, 1, now += 1'000);
  const auto third = send_all(now += 1'000'000 / 4);
  EXPECT_GT(third.size(), 32u);
  result(third.back(), 1, ++now);
  const auto again = send_all(now);
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.front().message.seq, second.front().message.seq) << "long before its deadline";
  EXPECT_EQ(engine_.window_now(), (64u + 63u + 1u) / 2);
}

TEST_F(LossyLinkTest, AMissingFragmentHoldsBackOnlyItsOwnPlace) {
  submit(64 * 1000);
  Nanos now = 0;
  const auto first = send_all(now);
  for (const TxPacket& packet : std::span(first).subspan(1)) result(packet, 1, 10);
  EXPECT_EQ(send_all(now = 20).size(), 31u + 31u) << "one for each result, and one more each";
}

TEST_F(LossyLinkTest, WhatWasSentTogetherMayArriveInAnyOrder) {
  submit(64 * 8);
  Nanos now = 0;
  const auto packets = send_all(now);
  for (size_t i = packets.size() - 1; i != 0; --i) result(packets[i], 1, 10);
  EXPECT_TRUE(send_all(now = 20).empty());
}

TEST_F(LossyLinkTest, SpreadsWhatTheWindowLetsOutOverTheRoundTrip) {
  submit(64 * 32);
  Nanos now = 0;
  for (const TxPacket& packet : send_all(now)) result(packet, 1, 1'000'000);
  now = 5'000'000;
  submit(64 * 1000);
  // Half a round trip, because the window still doubles, in eight parts; one that was missed.
  EXPECT_EQ(send(now).size(), 8u);
  EXPECT_EQ(send(now).size(), 8u);
  for (int part = 1; part <= 6; ++part) {
    EXPECT_TRUE(send(now + part * 62'500 - 1).empty());
    EXPECT_TRUE(engine_.paced());
    EXPECT_EQ(engine_.next_deadline(), now + part * 62'500);
    EXPECT_EQ(send(now + part * 62'500).size(), 8u);
  }
  EXPECT_TRUE(send(now + 500'000).empty());
  EXPECT_FALSE(engine_.paced()) << "it waits for results";
  EXPECT_GT(engine_.next_deadline(), now + kRto / 2);
}

TEST_F(LossyLinkTest, WaitingForOtherWorkersDoesNotSlowItDown) {
  submit(64 * 64);
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
  patient.rto_min_ns = patient.rto_max_ns = 60'000'000'000;
  engine_ = Engine(patient);
  submit(64 * 100'000);
  Nanos now = 0;
  // Of each round the last one is lost, and then sent again, as the next round overtakes it.
  const auto round = [&](Nanos rtt) {
    auto packets = send_all(now);
    std::ranges::sort(packets, {}, [](const TxPacket& packet) { return packet.message.seq; });
    now += rtt;
    for (size_t i = 0; i + 1 < packets.size(); ++i) result(packets[i], 1, now);
  };
  for (int i = 0; i < 40; ++i) round(1'000'000);
  EXPECT_GE(engine_.window_now(), 32u) << "links lose frames for other reasons, too";
  for (int i = 0; i < 80; ++i) round(20'000'000);
  EXPECT_LT(engine_.window_now(), 16u);
}

class LossRecoveryTest : public LossyLinkTest {
 protected:
  LossRecoveryTest() { start(0); }
  void start(uint32_t in_switch) {
    EngineConfig shared = config();
    shared.in_switch = in_switch;
    shared.window = 256;
    shared.lossy_link = true;
    shared.fixed_slots = false;
    shared.home = Home::kDedicated;
    shared.rto_min_ns = 100'000'000;
    shared.rto_max_ns = 200'000'000;
    engine_ = Engine(shared);
  }
  size_t questions_for(const TxPacket& fragment, Nanos now) {
    return static_cast<size_t>(std::ranges::count_if(send_all(now), [&](const TxPacket& packet) {
      return packet.message.type == wire::Type::kQuery &&
             packet.message.seq == fragment.message.seq;
    }));
  }
  Nanos wait_for_the_last_one(wire::Origin origin, int operations_between = 0);
  Nanos wait_after_late_results(Nanos late, uint16_t flags);
  /// How long each of the next questions has to wait, when nobody answers.
  std::vector<Nanos> gaps_between_questions(const TxPacket& fragment, Nanos now, size_t count) {
    std::vector<Nanos> gaps;
    for (Nanos asked = now; gaps.size() < count;) {
      if (questions_for(fragment, now = engine_.next_deadline()) == 0) continue;
      gaps.push_back(now - asked);
      asked = now;
    }
    return gaps;
  }
};

TEST_F(LossRecoveryTest, WhatWasOvertakenIsAskedForOftenAndThenWithPatience) {
  submit(64 * 40);
  Nanos now = 0;
  const auto first = send_all(now);
  for (const TxPacket& packet : std::span(first).subspan(1)) result(packet, 1, now += 10'000);
  result(send_all(now).back(), 1, now += 10'000);
  EXPECT_EQ(questions_for(first.front(), now), 1u);
  const std::vector<Nanos> gaps = gaps_between_questions(first.front(), now, 20);
  EXPECT_LE(gaps.front(), 2'000'000) << "the answer to the first is only POLL status";
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(gaps[i], gaps.front()) << "steps may be lost, too";
  EXPECT_GE(gaps[10], 4 * gaps.front()) << "a straggler is not asked for ever";
  EXPECT_LE(gaps.back(), 200'000'000);
}

/// Answers are as large as results, and each is one that a slow link has still to bring.
TEST_F(LossRecoveryTest, NothingIsAskedForAgainBeforeTheLinkCanHaveBroughtTheAnswers) {
  constexpr Nanos kBetweenResults = 225'000;  // 1,408 bytes at 50 Mbit/s
  Nanos now = 0;
  for (int i = 0; i < 10; ++i) {
    submit(64 * 4);
    for (const TxPacket& packet : send_all(now)) result(packet, 1, now += kBetweenResults);
  }
  submit(64 * 40);
  const auto packets = send_all(now);
  ASSERT_GE(packets.size(), 20u) << "many more than were under way when round trips were measured";
  result(packets[1], 1, now += kBetweenResults);
  const Nanos answers = kBetweenResults * static_cast<Nanos>(packets.size());
  for (const Nanos gap : gaps_between_questions(packets.front(), now, 4))
    EXPECT_GE(gap, answers * 9 / 10);
}

TEST_F(LossRecoveryTest, NothingIsLateWhileTheResultsBeforeItCome) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  // Its time-out is 100 ms.
  for (const TxPacket& packet : std::span(packets).first(packets.size() - 1)) {
    result(packet, 1, now += 50'000'000);
    EXPECT_EQ(questions_for(packets.back(), now), 0u);
  }
  EXPECT_LE(gaps_between_questions(packets.back(), now, 1).front(), 200'000'000);
}

TEST_F(LossRecoveryTest, ResultsThatCameAfterTheTimeOutDoNotMakeItLonger) {
  submit(64 * 20);
  Nanos now = 0;
  for (const TxPacket& packet : send_all(now)) {
    result(packet, 1, now += 50'000'000);
    send_all(now);
  }
  submit(64 * 4);
  EXPECT_LE(gaps_between_questions(send_all(now).front(), now, 1).front(), 300'000'000);
}

/// All results of an operation come late, and each has been asked for once. Until when the next
/// operation's first fragment is asked for; `flags`: of the answers to these questions.
Nanos LossRecoveryTest::wait_after_late_results(Nanos late, uint16_t flags) {
  submit(64 * 4);
  Nanos now = 0;
  const auto packets = send_all(now);
  EXPECT_EQ(questions_for(packets.front(), now += 100'000'000), 1u);
  now = late;
  for (const TxPacket& packet : packets) result(packet, 1, now);
  for (const TxPacket& packet : packets)
    result(packet, 1, now, [flags](wire::Message& message) { message.flags |= flags; });
  submit(64 * 4);
  return gaps_between_questions(send_all(now).front(), now, 1).front();
}

TEST_F(LossRecoveryTest, AnAnswerToANeedlessQuestionSaysHowLongRoundTripsAre) {
  constexpr Nanos kLate = 150'000'000;
  EXPECT_GE(wait_after_late_results(kLate, wire::kFlagAgain), kLate);
}

/// What comes twice by itself says nothing: the question may have been what made it come.
TEST_F(LossRecoveryTest, AResultThatWasAskedForSaysNothingOfRoundTrips) {
  EXPECT_EQ(wait_after_late_results(150'000'000, 0), 100'000'000);
}

TEST_F(LossRecoveryTest, WhatMayGoRoundByTheFallbackIsAskedForWithPatience) {
  submit(64 * 40);
  Nanos now = 0;
  const auto first = send_all(now);
  const auto split = [](wire::Message& message) { message.flags |= wire::kFlagSplit; };
  for (const TxPacket& packet : std::span(first).subspan(1))
    result(packet, 1, now += 10'000, split);
  result(send_all(now += 50'000'000).back(), 1, now += 10'000);
  EXPECT_EQ(questions_for(first.front(), now), 1u);
  EXPECT_GE(gaps_between_questions(first.front(), now, 1).front(), 90'000'000);
}

/// One fragment is overtaken, asked for and then given out by `origin`. Some time later the last
/// one has no result, and nothing overtakes it: how long until it is asked for.
/// `operations_between`: without a loss, of 12 fragments each.
Nanos LossRecoveryTest::wait_for_the_last_one(wire::Origin origin, int operations_between) {
  submit(64 * 12);
  Nanos now = 0;
  auto packets = send_all(now);
  for (const TxPacket& packet : std::span(packets).subspan(1)) result(packet, 1, now += 10'000);
  submit(64 * 12);
  for (const TxPacket& packet : send_all(now))
    if (packet.message.type == wire::Type::kGrad) result(packet, 1, now += 1'000'000);
  EXPECT_EQ(questions_for(packets.front(), now), 1u);
  result(packets.front(), 1, now, [&](wire::Message& message) { message.origin = origin; });
  for (int i = 0; i < operations_between; ++i) {
    submit(64 * 12);
    for (const TxPacket& packet : send_all(now)) result(packet, 1, now += 10'000);
  }
  submit(64 * 12);
  packets = send_all(now);
  for (const TxPacket& packet : std::span(packets).first(packets.size() - 1))
    result(packet, 1, now += 10'000);
  return gaps_between_questions(packets.back(), now, 1).front();
}

TEST_F(LossRecoveryTest, TheLastOneIsAskedForWhereTheLinkLoses) {
  EXPECT_LE(wait_for_the_last_one(wire::Origin::kSwitch), 10'000'000)
      << "the switch gave a result again";
}

TEST_F(LossRecoveryTest, ALinkLosesForAFewTimesWhatIsInTheSwitch) {
  EXPECT_LE(wait_for_the_last_one(wire::Origin::kSwitch, 4), 10'000'000);
  start(12);  // of a window of 256
  EXPECT_GE(wait_for_the_last_one(wire::Origin::kSwitch, 4), 90'000'000);
}

TEST_F(LossRecoveryTest, WhatGoesRoundByTheFallbackWasNotLost) {
  EXPECT_GE(wait_for_the_last_one(wire::Origin::kFallback), 90'000'000);
}

TEST_F(LossRecoveryTest, WhereSlotsAreShortWhatIsOvertakenMayBeOnItsWay) {
  submit(64 * 40);
  Nanos now = 0;
  const auto first = send_all(now);
  const auto split = [](wire::Message& message) { message.flags |= wire::kFlagSplit; };
  for (const TxPacket& packet : std::span(first).subspan(1))
    result(packet, 1, now += 1'000'000, split);
  result(send_all(now).back(), 1, now += 10'000, split);
  EXPECT_EQ(questions_for(first.front(), now), 0u);
}

TEST_F(LossRecoveryTest, WhereNothingWasLostSomebodyIsSlow) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  for (const TxPacket& packet : std::span(packets).first(packets.size() - 1))
    result(packet, 1, now += 10'000);
  EXPECT_GE(gaps_between_questions(packets.back(), now, 1).front(), 90'000'000);
}

/// Nothing that is sent later overtakes it for longer than reordering may take.
TEST_F(LossRecoveryTest, WhatIsMissedAmongTheLastOnesIsAskedForSoon) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  for (size_t i = 0; i < packets.size(); ++i)
    if (i != 10) result(packets[i], 1, now += 1'000);
  EXPECT_EQ(questions_for(packets[10], now += 400'000), 0u) << "it may come yet";
  EXPECT_LE(gaps_between_questions(packets[10], now, 1).front(), 200'000);
}

TEST_F(LossRecoveryTest, WhatIsMissedWhereFragmentsAreSplitIsNot) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  const auto split = [](wire::Message& message) { message.flags |= wire::kFlagSplit; };
  for (size_t i = 0; i < packets.size(); ++i)
    if (i != 10) result(packets[i], 1, now += 1'000, split);
  EXPECT_GE(gaps_between_questions(packets[10], now, 1).front(), 90'000'000);
}

/// The switch says that it lacks a contribution.
class SentAgainTest : public LossRecoveryTest {
 protected:
  std::vector<TxPacket> lose_one() {
    submit(64 * 40);
    auto packets = send_all(now_);
    for (const TxPacket& packet : std::span(packets).subspan(1)) result(packet, 1, now_ += 10'000);
    return packets;
  }
  void ask_for(const TxPacket& fragment) {
    RxPacket poll{fragment.message, nullptr, 0};
    poll.message.type = wire::Type::kPoll;
    poll.message.phase = wire::Phase::kAgain;
    PlainCopier copier;
    engine_.on_packets({&poll, 1}, now_, copier);
  }
  size_t sent_again(const TxPacket& fragment) {
    return static_cast<size_t>(std::ranges::count_if(send(now_), [&](const TxPacket& packet) {
      return packet.message.type == wire::Type::kGrad && packet.message.seq == fragment.message.seq;
    }));
  }
  Nanos now_ = 0;
};

TEST_F(SentAgainTest, ItsContributionOnceForAllThatAsk) {
  const auto packets = lose_one();
  now_ += 1'000'000;
  ask_for(packets[0]);
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 1u);
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 0u) << "it is still on its way";
  now_ += 1'000'000;
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 1u) << "lost once more";
}

/// A later result says that nobody is waited for any more.
TEST_F(SentAgainTest, PatienceEndsWhenAllHaveSentIt) {
  const auto packets = lose_one();
  ask_for(packets[0]);
  send_all(now_);
  result(packets[0], 1, now_ += 10'000);
  submit(64 * 2);
  const auto late = send_all(now_);
  ASSERT_EQ(late.size(), 2u);
  EXPECT_GE(gaps_between_questions(late[0], now_, 16).back(), 50'000'000);
  now_ += 200'000'000;
  send_all(now_);
  result(late[1], 1, now_);
  EXPECT_LE(gaps_between_questions(late[0], now_, 1).front(), 2'000'000);
}

TEST_F(SentAgainTest, NothingThatHasItsResultOrWasNotSent) {
  const auto packets = lose_one();
  now_ += 1'000'000;
  ask_for(packets[1]);
  TxPacket later = packets[0];
  later.message.seq = 1000;
  ask_for(later);
  for (const TxPacket& packet : send_all(now_))
    EXPECT_NE(packet.message.seq, packets[1].message.seq);
}

/// The switch's part of it went with the epoch: the fallback must collect the contributions.
TEST_F(SentAgainTest, NothingOfAnOlderEpoch) {
  const auto packets = lose_one();
  engine_.set_epoch(config().epoch + 1, now_ += 1'000'000);
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 0u);
}

TEST_F(SentAgainTest, EachFourthQuestionIsForTheFallback) {
  const auto packets = lose_one();
  std::vector<bool> quick;
  while (quick.size() < 8) {
    now_ = std::max(now_ + 1, engine_.next_deadline());
    for (const TxPacket& packet : send_all(now_))
      if (packet.message.type == wire::Type::kQuery && packet.message.seq == packets[0].message.seq)
        quick.push_back((packet.message.flags & wire::kFlagQuick) != 0);
  }
  EXPECT_EQ(quick, (std::vector{true, true, true, false, true, true, true, false}));
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
    return engine_.submit({reinterpret_cast<const std::byte*>(data_.data()),
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
    engine_.on_packets({&packet, 1}, 1, copier);
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
  EXPECT_EQ(engine_.counters().bytes_copied, 0u);
}

TEST_F(ResultBufferTest, ResultsThatLieElsewhereAreNotTaken) {
  Operation* operation = submit_aimed();
  const auto packets = send(0);
  const std::byte elsewhere[256] = {};
  result_at(packets[0], elsewhere);
  EXPECT_EQ(operation->complete, 0u);
  EXPECT_EQ(engine_.counters().results_ignored, 1u);
}

TEST_F(ResultBufferTest, AfterARestartResultsAreCopied) {
  Operation* operation = submit_aimed();
  const auto before = send(0);
  engine_.rejoin(10, 1);
  TxPacket again = before[0];
  again.message.target = 0;
  std::byte elsewhere[256] = {};
  result_at(again, elsewhere);
  EXPECT_EQ(operation->complete, 1u);
  EXPECT_EQ(engine_.counters().bytes_copied, 256u);
}

}  // namespace
}  // namespace ina::client
