// Straggler help in the engine of one worker: parked fragments take no place in the window, and
// sums that it keeps for the switch are completed, or given to the fallback.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "fragments/engine.h"
#include "tests/support/worker_literal.h"

namespace ina::client {
namespace {

using wire::Origin;
using wire::Type;

constexpr uint32_t kWorkers = 3;
constexpr uint32_t kEpoch = 9;
constexpr uint32_t kPerFragment = 16;  // int32
constexpr uint32_t kRoom = 2;

struct PlainCopier {
  void copy(std::span<const CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

class ParkingTest : public testing::Test {
 protected:
  ParkingTest() { start({}); }

  static EngineConfig config() {
    EngineConfig config;
    config.rank = Rank{1};
    config.workers = kWorkers;
    config.epoch = kEpoch;
    config.window = 16;
    config.in_switch = 4;
    config.slot_bytes = kPerFragment * 4;
    config.rules.policy = scheduler::PolicyKind::kFcfs;
    config.rules.home = Home::kDedicated;
    config.park_room = kRoom;
    return config;
  }
  void start(EngineConfig more) {
    EngineConfig all = config();
    all.results_stay = more.results_stay;
    all.lossy_link = more.lossy_link;
    if (more.rules.home == Home::kSpill) all.rules.home = Home::kSpill;
    if (more.in_switch != 0) all.in_switch = more.in_switch;
    engine_.emplace(all);
    data_.assign(40 * kPerFragment, 1);
    auto* bytes = reinterpret_cast<std::byte*>(data_.data());
    engine_->submit({bytes, bytes, data_.size(), DType::kInt32, Op::kSum, Collective::kAllReduce},
                    0);
  }

  std::vector<TxPacket> send(Nanos now = 0) {
    TxPacket packets[Engine::kBurst];
    const size_t count = engine_->prepare(packets, now);
    std::vector<TxPacket> all(packets, packets + count);
    for (TxPacket& packet : all) {  // as a transport: out of the engine's memory
      payloads_.emplace_back(packet.payload, packet.payload + packet.payload_bytes);
      packet.payload = payloads_.back().data();
    }
    engine_->sent(count, now);
    return all;
  }
  void receive(Type type, uint64_t seq, WorkerSet bitmap, std::vector<int32_t> values = {},
               Origin origin = Origin::kNone, uint16_t flags = 0, uint32_t epoch = kEpoch) {
    RxPacket packet;
    packet.message.type = type;
    packet.message.seq = static_cast<uint32_t>(seq);
    packet.message.bitmap = bitmap;
    packet.message.epoch = epoch;
    packet.message.origin = origin;
    packet.message.flags = flags;
    packet.message.phase = type == Type::kPoll ? wire::Phase::kBind : wire::Phase::kNone;
    if (!values.empty()) {
      packet.message.operation_elements = data_.size();
      packet.message.dtype = DType::kInt32;
      packet.message.op = Op::kSum;
      packet.message.collective = Collective::kAllReduce;
      values.resize(kPerFragment, values.front());
      packet.message.elements = kPerFragment;
    }
    packet.payload = reinterpret_cast<const std::byte*>(values.data());
    packet.payload_bytes = static_cast<uint32_t>(values.size() * 4);
    PlainCopier copier;
    engine_->on_packets({&packet, 1}, now_, copier);
  }
  void late_part(uint64_t seq, uint32_t rank, int32_t value, uint32_t epoch = kEpoch) {
    receive(Type::kPart, seq, WorkerSet::of(Rank{static_cast<uint8_t>(rank)}), {value},
            Origin::kParker, wire::kFlagRaw, epoch);
  }
  static int32_t first_value(const TxPacket& packet) {
    int32_t value;
    std::memcpy(&value, packet.payload, 4);
    return value;
  }
  const EngineCounters& counters() const { return engine_->counters(); }

  Nanos now_ = 0;  ///< of what is received
  std::optional<Engine> engine_;
  std::vector<int32_t> data_;
  std::vector<std::vector<std::byte>> payloads_;
};

TEST_F(ParkingTest, NoMoreIsInTheSwitchThanMayBe) {
  EXPECT_EQ(send().size(), 4u);
  EXPECT_TRUE(send().empty());
}

TEST_F(ParkingTest, WhileSomethingIsParkedAQuarterMayBeInTheSwitch) {
  start({.in_switch = 16});
  send();
  EXPECT_EQ(engine_->window_now(), 16u);
  receive(Type::kParked, 0, 0b011_workers);
  receive(Type::kParked, 1, 0b011_workers);
  EXPECT_EQ(engine_->window_now(), 4u);
  receive(Type::kResult, 0, 0b111_workers, {5}, Origin::kFallback);
  EXPECT_EQ(engine_->window_now(), 4u);
  receive(Type::kResult, 1, 0b111_workers, {5}, Origin::kFallback);
  EXPECT_EQ(engine_->window_now(), 16u);
}

TEST_F(ParkingTest, WhileItCatchesUpAQuarterMayBeInTheSwitch) {
  start({.in_switch = 16});
  send();
  receive(Type::kResult, 0, 0b111_workers, {5}, Origin::kParker);
  EXPECT_EQ(engine_->window_now(), 4u) << "others had it parked";
  receive(Type::kResult, 1, 0b111_workers, {5}, Origin::kSwitch);
  EXPECT_EQ(engine_->window_now(), 16u);
  receive(Type::kResult, 2, 0b111_workers, {5}, Origin::kFallback, wire::kFlagParked);
  EXPECT_EQ(engine_->window_now(), 4u);
}

TEST_F(ParkingTest, WhatIsParkedGivesItsPlaceBackOnce) {
  send();
  for (const uint64_t seq : {0, 0, 1, 2}) receive(Type::kParked, seq, 0b011_workers);
  receive(Type::kParked, 3, 0b011_workers, {}, Origin::kNone, 0, kEpoch - 1);
  EXPECT_TRUE(send().empty()) << "fragment 3 is in the switch";
  receive(Type::kParked, 3, 0b011_workers);
  const auto more = send();
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].message.seq, 4u);
  receive(Type::kResult, 0, 0b111_workers, {5}, Origin::kFallback);
  EXPECT_TRUE(send().empty()) << "its place was given back already";
  EXPECT_EQ(data_[0], 5);
  receive(Type::kResult, 4, 0b111_workers, {5}, Origin::kSwitch);
  EXPECT_EQ(send().size(), 1u);
}

TEST_F(ParkingTest, ItNeverRunsFurtherAheadThanTheWindow) {
  send();
  uint64_t parked = 0;
  for (; parked < 3; ++parked) receive(Type::kParked, parked, 0b011_workers);
  for (uint64_t sent = 4; sent < 16; ++sent) {
    receive(Type::kParked, parked++, 0b011_workers);
    ASSERT_EQ(send().size(), 1u);
  }
  receive(Type::kParked, parked, 0b011_workers);
  EXPECT_TRUE(send().empty()) << "C1";
}

TEST_F(ParkingTest, ItIsAskedForLateUntilALaterResultSaysThatAllHaveSentIt) {
  const EngineConfig timing;
  const auto queries = [&](Nanos now) {
    return std::ranges::count_if(
        send(now), [](const TxPacket& packet) { return packet.message.type == Type::kQuery; });
  };
  send();
  for (uint64_t seq = 0; seq < 3; ++seq) receive(Type::kParked, seq, 0b011_workers);
  receive(Type::kResult, 3, 0b111_workers, {5}, Origin::kSwitch);
  EXPECT_EQ(queries(timing.rules.rto_min_ns / 2), 0);
  EXPECT_EQ(queries(timing.rules.rto_min_ns / 5 * 6), 3) << "they are lost, or must come soon";

  start({});
  send();
  receive(Type::kResult, 0, 0b111_workers, {5}, Origin::kSwitch);
  for (uint64_t seq = 1; seq < 4; ++seq) receive(Type::kParked, seq, 0b011_workers);
  EXPECT_EQ(queries(2 * timing.rules.rto_min_ns), 0) << "who knows whether all have sent them";
}

/// Else all that many workers have parked would come to the switch again, while one of them is
/// late.
TEST_F(ParkingTest, TheOldestOnesAndTheLastAreAskedForWhileAWorkerIsLate) {
  const EngineConfig timing;
  const Nanos longest = timing.rules.rto_max_ns;
  constexpr uint64_t kParked = 16;
  start({.in_switch = kParked});
  send();
  for (uint64_t seq = 0; seq < kParked; ++seq) receive(Type::kParked, seq, 0b011_workers);
  const auto asked = [&](Nanos from) {
    std::vector<bool> all(kParked, false);
    for (Nanos now = from; now < from + 2 * longest; now += timing.rules.rto_min_ns)
      for (const TxPacket& packet : send(now)) {
        const uint32_t seq = packet.message.seq;
        if (packet.message.type == Type::kQuery && seq < kParked) all[seq] = true;
      }
    return all;
  };
  const auto each = [](int begin, int end, bool last) {
    std::vector<bool> all(kParked, false);
    std::fill(all.begin() + begin, all.begin() + end, true);
    all.back() = last;
    return all;
  };
  EXPECT_EQ(asked(2 * longest), each(0, 8, true));
  for (uint64_t seq = 0; seq < 4; ++seq)
    receive(Type::kResult, seq, 0b111_workers, {5}, Origin::kFallback);
  EXPECT_EQ(asked(4 * longest), each(4, 12, true));
  EXPECT_EQ(asked(20 * longest), each(4, 16, true)) << "the others as well, but seldom";
  now_ = 22 * longest;
  receive(Type::kResult, 15, 0b111_workers, {5}, Origin::kFallback);
  EXPECT_EQ(asked(22 * longest), each(4, 15, false)) << "all have sent them";
}

TEST_F(ParkingTest, WhereLinksLoseTheSwitchIsAskedForIt) {
  EngineConfig lossy;
  lossy.lossy_link = true;
  start(lossy);
  while (!send().empty()) continue;  // paced
  receive(Type::kParked, 0, 0b011_workers);
  receive(Type::kResult, 3, 0b111_workers, {5}, Origin::kSwitch);
  std::vector<TxPacket> questions;
  for (const TxPacket& packet : send(2 * lossy.rules.rto_min_ns))
    if (packet.message.type == Type::kQuery && packet.message.seq == 0) questions.push_back(packet);
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_NE(questions[0].message.flags & wire::kFlagQuick, 0);
}

/// All have sent it, as a later result says. So its own is late or lost.
TEST_F(ParkingTest, WhereLinksMayLoseNobodyWaitsForATimeOutOnceAllHaveSentIt) {
  for (const bool parked_first : {true, false}) {
    SCOPED_TRACE(parked_first);
    EngineConfig lossy;
    lossy.lossy_link = true;
    start(lossy);
    now_ = 0;
    while (!send().empty()) continue;  // paced
    now_ = 10'000;
    if (parked_first) receive(Type::kParked, 0, 0b011_workers);
    receive(Type::kResult, 3, 0b111_workers, {5}, Origin::kSwitch);
    if (!parked_first) receive(Type::kParked, 0, 0b011_workers);
    EXPECT_TRUE(std::ranges::any_of(send(lossy.rules.rto_min_ns / 2), [](const TxPacket& packet) {
      return packet.message.type == Type::kQuery && packet.message.seq == 0;
    }));
  }
}

TEST_F(ParkingTest, ItSaysThatItsWindowIsFull) {
  const auto full = [](const TxPacket& packet) {
    return (packet.message.flags & wire::kFlagFull) != 0;
  };
  TxPacket packets[Engine::kBurst];
  ASSERT_EQ(engine_->prepare(std::span(packets).first(3), 0), 3u);
  EXPECT_EQ(std::ranges::count_if(std::span(packets).first(3), full), 0) << "one more may be sent";
  ASSERT_EQ(engine_->prepare(std::span(packets).first(4), 0), 4u);
  EXPECT_EQ(std::ranges::count_if(std::span(packets).first(4), full), 4);
  engine_->sent(4, 0);
  for (uint64_t seq = 0; seq < 36; ++seq) {
    receive(Type::kResult, seq, 0b111_workers, {5}, Origin::kSwitch);
    const auto more = send();
    ASSERT_EQ(more.size(), 1u);
    EXPECT_EQ((more[0].message.flags & wire::kFlagFull) != 0, seq != 35) << "fragment " << seq + 4;
  }
}

TEST_F(ParkingTest, MarksOnWhatTheSwitchKeptSlowOnlyWhoSentLast) {
  EngineConfig spill;
  spill.rules.home = Home::kSpill;
  spill.in_switch = 16;
  start(spill);
  send();
  receive(Type::kParked, 0, 0b011_workers);
  receive(Type::kResult, 0, 0b111_workers, {5}, Origin::kFallback, wire::kFlagEcn);
  EXPECT_EQ(engine_->window_now(), 16u);
  receive(Type::kResult, 1, 0b111_workers, {5}, Origin::kFallback, wire::kFlagEcn);
  EXPECT_EQ(engine_->window_now(), 8u);
  EXPECT_EQ(counters().ecn_marks, 2u);
  // A sum kept by a worker met the links of both.
  start({.in_switch = 16});
  send();
  receive(Type::kParked, 0, 0b011_workers);
  receive(Type::kResult, 0, 0b111_workers, {5}, Origin::kFallback, wire::kFlagEcn);
  EXPECT_EQ(engine_->window_now(), 8u);
}

TEST_F(ParkingTest, TheSumIsCompletedAndGivenOut) {
  send();
  receive(Type::kPark, 0, 0b011_workers, {3});
  EXPECT_EQ(counters().parked, 1u) << "it has contributed itself";
  late_part(0, 2, 100);
  EXPECT_EQ(data_[0], 103);
  const auto packets = send();
  ASSERT_GE(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.type, Type::kResult);
  EXPECT_EQ(packets[0].message.origin, Origin::kParker);
  EXPECT_EQ(packets[0].message.bitmap, 0b111_workers);
  EXPECT_EQ(packets[0].message.elements, kPerFragment);
  EXPECT_EQ(first_value(packets[0]), 103);
  EXPECT_EQ(counters().park_results, 1u);
  receive(Type::kPark, 0, 0b011_workers, {3});
  EXPECT_EQ(counters().parks_lost, 1u) << "done: a duplicate";
}

TEST_F(ParkingTest, WhatComesLateMayComeFirst) {
  send();
  late_part(0, 2, 100);
  receive(Type::kPark, 0, 0b011_workers, {3});
  EXPECT_EQ(data_[0], 103);
}

TEST_F(ParkingTest, NobodyCountsTwice) {
  send();
  receive(Type::kPark, 0, 0b011_workers, {3});
  receive(Type::kPark, 0, 0b011_workers, {3});
  late_part(0, 1, 100);
  EXPECT_EQ(counters().parks_lost, 2u);
  EXPECT_EQ(data_[0], 1) << "not complete";
}

TEST_F(ParkingTest, BoundItGivesWhatItHasToTheFallbackAndTakesNoMore) {
  send();
  receive(Type::kPark, 0, 0b011_workers, {3});
  receive(Type::kPoll, 0, 0b100_workers);
  std::vector<TxPacket> all = send();
  for (const TxPacket& packet : send()) all.push_back(packet);
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all[0].message.type, Type::kDefer);
  const auto part = std::ranges::find_if(
      all, [](const TxPacket& packet) { return packet.message.type == Type::kPart; });
  ASSERT_NE(part, all.end());
  EXPECT_EQ(part->message.origin, Origin::kParker);
  EXPECT_EQ(part->message.bitmap, 0b011_workers);
  EXPECT_EQ(part->message.epoch, kEpoch);
  EXPECT_EQ(first_value(*part), 3);
  late_part(0, 2, 100);
  EXPECT_EQ(counters().parks_lost, 1u);
  EXPECT_EQ(data_[0], 1);
}

TEST_F(ParkingTest, WithoutRoomItIsLost) {
  send();
  for (uint64_t seq = 0; seq < kRoom + 1; ++seq) receive(Type::kPark, seq, 0b011_workers, {3});
  EXPECT_EQ(counters().parks, kRoom);
  EXPECT_EQ(counters().parks_lost, 1u);
  late_part(0, 2, 1);
  send();
  receive(Type::kPark, kRoom, 0b011_workers, {3});
  EXPECT_EQ(counters().parks, kRoom + 2) << "room again";
}

TEST_F(ParkingTest, OfAnotherEpochItIsTheFallbacks) {
  send();
  receive(Type::kPark, 0, 0b011_workers, {3});
  engine_->set_epoch(kEpoch + 1, 0);
  late_part(0, 2, 100, kEpoch + 1);
  EXPECT_EQ(counters().parks_lost, 1u);
  bool surrendered = false;
  for (const TxPacket& packet : send(1))
    surrendered |= packet.message.type == Type::kPart && packet.message.epoch == kEpoch;
  EXPECT_TRUE(surrendered);
  late_part(0, 2, 100, kEpoch + 1);
  EXPECT_EQ(counters().parks_lost, 2u);
}

/// Where results lie in the transport's memory, one that was completed here lies here, until it has
/// come back.
TEST_F(ParkingTest, ItsResultCanBeAskedForUntilItHasComeBack) {
  EngineConfig stay;
  stay.results_stay = true;
  start(stay);
  send();
  receive(Type::kPark, 0, 0b011_workers, {3});
  late_part(0, 2, 100);
  send();
  receive(Type::kPoll, 0, 0b100_workers);
  auto packets = send();
  ASSERT_GE(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.type, Type::kHave);
  EXPECT_EQ(first_value(packets[0]), 103);
}

/// HAVE would take the place of the same payload on the link.
TEST_F(ParkingTest, WhatIsAboutToBeGivenOutIsNotGivenAsAnAnswerToo) {
  send();
  receive(Type::kPark, 0, 0b011_workers, {3});
  late_part(0, 2, 100);
  receive(Type::kPoll, 0, 0b100_workers);
  const auto count_of = [](const std::vector<TxPacket>& packets, Type type) {
    return std::ranges::count_if(
        packets, [type](const TxPacket& packet) { return packet.message.type == type; });
  };
  auto packets = send();
  EXPECT_EQ(count_of(packets, Type::kHave), 0);
  EXPECT_EQ(count_of(packets, Type::kResult), 1);
  receive(Type::kPoll, 0, 0b100_workers);
  packets = send();
  EXPECT_EQ(count_of(packets, Type::kHave), 1) << "it may have been lost";
}

}  // namespace
}  // namespace ina::client
