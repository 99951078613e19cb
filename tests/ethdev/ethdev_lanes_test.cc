// A port that several lanes share, on the pcap driver with one or more queue pairs.
#define ALLOW_INTERNAL_API  // rte_mempool_event_callback_register
#include <gtest/gtest.h>
#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "io/ethdev/ethdev_port.h"
#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/frames.h"
#include "tests/support/temp_dir.h"

namespace ina::io {
namespace {

constexpr uint16_t kLanes = 4;

wire::Address lane_address(uint16_t lane, const wire::Address& base = kSwitch) {
  wire::Address address = base;
  address.udp_port = static_cast<uint16_t>(base.udp_port + lane);
  return address;
}

std::vector<int32_t> values(uint32_t seq) {
  return std::vector<int32_t>(8, static_cast<int32_t>(seq));
}

/// From worker 0 to the lane to which the fragment belongs.
Bytes grad(uint32_t seq) {
  wire::Message m = message(wire::Type::kGrad, seq, 8);
  m.lane = static_cast<uint8_t>(seq % kLanes);
  m.bitmap = WorkerSet::of(Rank{0});
  const std::vector<int32_t> payload = values(seq);
  return encode(envelope(kWorkers[0], lane_address(m.lane)), m, std::as_bytes(std::span(payload)));
}

wire::Message result(uint32_t seq) {
  wire::Message m = message(wire::Type::kResult, seq, 8);
  m.origin = wire::Origin::kSwitch;
  return m;
}

class EthdevLanesTest : public ::testing::Test {
 protected:
  /// A device with as many queue pairs as captures are given.
  void open(const std::vector<std::vector<Bytes>>& in, EthdevPortConfig config = {}) {
    static int devices = 0;
    config.name = "test";
    config.device = "net_pcap_lanes" + std::to_string(devices++);
    for (size_t queue = 0; queue < in.size(); ++queue) {
      const std::string number = std::to_string(queue);
      Capture::write(folder_ / ("in" + number), in[queue]);
      config.device +=
          ",rx_pcap=" + (folder_ / ("in" + number)) + ",tx_pcap=" + (folder_ / ("out" + number));
      frames_ += in[queue].size();
    }
    config.ip = kSwitch.ip;
    config.lanes = kLanes;
    config.ecn = false;
    config.rx_descriptors = 128;
    config.tx_descriptors = 128;
    auto port = EthdevPort::open(config);
    ASSERT_TRUE(port) << port.error().text;
    lanes_ = std::move(*port);
    ASSERT_EQ(lanes_.size(), kLanes);
    EXPECT_EQ(lanes_[0]->queues(), in.size());
    EXPECT_FALSE(lanes_[0]->steered());
    for (const auto& lane : lanes_) {
      EXPECT_EQ(lane->address(), lanes_[0]->address());
      const auto bound = lane->bind(kWorkers[0], kJob, kJobKey, 0, Rank{0});
      ASSERT_TRUE(bound);
      worker_ = *bound;
    }
  }

  /// One turn of a lane; every message is answered.
  size_t turn(uint16_t number) {
    EthdevPort& lane = *lanes_[number];
    std::array<RxPacket, 32> burst;
    const size_t count = lane.rx_burst(burst);
    for (const RxPacket& packet : std::span(burst).first(count)) {
      EXPECT_EQ(packet.message.seq % kLanes, number);
      EXPECT_EQ(std::memcmp(packet.payload, values(packet.message.seq).data(), 32), 0);
      lane.tx(worker_, result(packet.message.seq),
              std::as_bytes(std::span(rows_[packet.message.seq % rows_.size()])));
    }
    lane.rx_release();
    lane.tx_flush();
    return count;
  }

  /// Until nothing moves any more.
  void run() {
    for (bool more = true; more;) {
      more = false;
      for (uint16_t lane = 0; lane < kLanes; ++lane) {
        const uint64_t before = lanes_[lane]->counters().rx_packets;
        more |= turn(lane) != 0;
        more |= lanes_[lane]->take_moved();
        more |= lanes_[lane]->counters().rx_packets != before;
      }
    }
  }

  PortCounters total() const {
    PortCounters sum;
    for (const auto& lane : lanes_) {
      sum.rx_packets += lane->counters().rx_packets;
      sum.tx_packets += lane->counters().tx_packets;
      sum.tx_bytes += lane->counters().tx_bytes;
      for (size_t i = 0; i < kDropReasons; ++i)
        sum.drops.count[i] += lane->counters().drops.count[i];
    }
    return sum;
  }
  EthdevCounters ethdev_total() const {
    EthdevCounters sum;
    for (const auto& lane : lanes_) add(sum, lane->ethdev_counters());
    return sum;
  }

  void expect_balance() const {
    const EthdevCounters own = ethdev_total();
    EXPECT_EQ(total().rx_packets, frames_);
    EXPECT_EQ(total().rx_packets, own.delivered + own.answered + own.forwarded + own.flooded +
                                      dropped_on_receipt(total().drops));
  }

  /// The frames that left by a queue; closes the port.
  std::vector<Bytes> out(size_t queue) {
    lanes_.clear();
    return Capture::read(folder_ / ("out" + std::to_string(queue)));
  }

  /// The result as the worker gets it: from its lane's UDP port.
  static Bytes answer_to(uint32_t seq, const wire::Address& own) {
    const auto row = values(seq % 8);
    return encode(envelope(lane_address(seq % kLanes, own), kWorkers[0]), result(seq),
                  std::as_bytes(std::span(row)));
  }

  test::TempDir folder_;
  std::vector<std::unique_ptr<EthdevPort>> lanes_;
  EndpointIndex worker_ = 0;
  uint64_t frames_ = 0;
  /// The payload of fragment s: rows_[s % 8].
  const std::array<std::vector<int32_t>, 8> rows_ = {values(0), values(1), values(2), values(3),
                                                     values(4), values(5), values(6), values(7)};
};

TEST_F(EthdevLanesTest, EveryLaneGetsItsOwnWhicheverQueueItComesTo) {
  constexpr uint32_t kFrames = 400;
  for (const size_t queues : {1, 2, 4}) {
    std::vector<std::vector<Bytes>> in(queues);
    frames_ = 0;
    for (uint32_t seq = 0; seq < kFrames; ++seq) in[seq / 3 % queues].push_back(grad(seq));
    open(in);
    const wire::Address own = lanes_[0]->address();
    run();
    expect_balance();
    for (const auto& lane : lanes_) {
      EXPECT_EQ(lane->ethdev_counters().delivered, kFrames / kLanes);
      const uint16_t number = static_cast<uint16_t>(&lane - lanes_.data());
      EXPECT_EQ(lane->counters().rx_packets != 0, number < queues);
      EXPECT_EQ(lane->counters().tx_packets != 0, number < queues);
      EXPECT_EQ(lane->ethdev_counters().handed_over != 0, number < queues);
      EXPECT_EQ(lane->ethdev_counters().tx_handed_over, number < queues ? 0 : kFrames / kLanes);
    }
    EXPECT_EQ(total().tx_packets, kFrames);
    EXPECT_EQ(total().tx_bytes, kFrames * 8 * sizeof(int32_t));
    EXPECT_EQ(total().drops.count, DropCounters{}.count);
    // A lane without a queue pair sends by the one that its number gives.
    std::vector<std::vector<uint32_t>> sent(queues);
    std::vector<Bytes> frames;
    for (size_t queue = 0; queue < queues; ++queue)
      for (const Bytes& bytes : out(queue)) {
        const auto frame = wire::parse_frame(bytes, 0, 0);
        ASSERT_TRUE(frame);
        EXPECT_EQ(frame->message.seq % kLanes % queues, queue);
        EXPECT_TRUE(bytes == answer_to(frame->message.seq, own)) << frame->message.seq;
        sent[queue].push_back(frame->message.seq);
      }
    if (queues != 1) continue;
    // Frames of one queue stay in order on their way to a lane and back.
    std::ranges::stable_sort(sent[0], {}, [](uint32_t seq) { return seq % kLanes; });
    for (uint32_t i = 0; i < kFrames; ++i)
      EXPECT_EQ(sent[0][i], i % (kFrames / kLanes) * kLanes + i / (kFrames / kLanes));
  }
}

TEST_F(EthdevLanesTest, WhatIsNoMessageIsForLane0) {
  EthdevPortConfig config;
  config.bridged = true;
  config.switch_addresses = {{kSwitch.ip}};
  Bytes to_others = grad(1);
  store(to_others, 30, kWorkers[2].ip, 4);
  fix_ip_checksum(to_others);
  Bytes no_lane = grad(3);
  store(no_lane, 36, kSwitch.udp_port + kLanes, 2);
  Bytes damaged = grad(2);
  damaged.back() ^= std::byte{1};
  // They arrive at the queue of lane 1.
  open({{},
        {arp_request(kWorkers[1], kSwitch.ip), echo(kWorkers[1], kSwitch, 8, 7), to_others, no_lane,
         damaged, grad(5), Bytes(20)}},
       config);
  const wire::Address own = lanes_[0]->address();
  turn(1);
  EXPECT_EQ(lanes_[1]->ethdev_counters().handed_over, 6u);
  EXPECT_EQ(lanes_[1]->ethdev_counters().delivered, 1u);
  EXPECT_TRUE(lanes_[1]->take_moved());
  EXPECT_FALSE(lanes_[1]->take_moved());
  std::array<RxPacket, 32> burst;
  EXPECT_EQ(lanes_[0]->rx_burst(burst), 0u);
  ASSERT_EQ(lanes_[0]->transit().size(), 4u);  // two of them answered, to be learned
  EXPECT_EQ(lanes_[0]->transit()[2].addresses.source, kWorkers[0].mac);
  for (const size_t i : {2, 3})
    lanes_[0]->drop_transit(lanes_[0]->transit()[i], DropReason::kNoPort);
  lanes_[0]->rx_release();
  turn(2);
  EXPECT_EQ(lanes_[0]->ethdev_counters().answered, 2u);
  EXPECT_EQ(lanes_[0]->counters().drops[DropReason::kNotIna], 1u);
  EXPECT_EQ(lanes_[2]->counters().drops[DropReason::kCrc], 1u) << "its own lane finds that out";
  expect_balance();
  lanes_[1]->tx_flush();
  EXPECT_EQ(out(0),
            (std::vector<Bytes>{arp_reply(own, kWorkers[1]), echo(own, kWorkers[1], 0, 7)}));
}

TEST_F(EthdevLanesTest, ALaneThatDoesNotRunLosesItsOwnFramesOnly) {
  constexpr uint32_t kFrames = 4000;
  std::vector<Bytes> in;
  for (uint32_t seq = 0; seq < kFrames; ++seq) in.push_back(grad(seq));
  open({in});
  for (uint64_t before = UINT64_MAX; before != total().rx_packets;) {
    before = total().rx_packets;
    for (const uint16_t lane : {0, 1, 2}) turn(lane);
  }
  EXPECT_EQ(total().drops[DropReason::kHandOverFull], kFrames / kLanes - FrameRing::kFrames);
  EXPECT_EQ(lanes_[0]->counters().drops[DropReason::kHandOverFull],
            kFrames / kLanes - FrameRing::kFrames);
  for (const uint16_t lane : {0, 1, 2})
    EXPECT_EQ(lanes_[lane]->ethdev_counters().delivered, kFrames / kLanes);
  run();
  EXPECT_EQ(lanes_[3]->ethdev_counters().delivered, FrameRing::kFrames);
  expect_balance();
}

TEST_F(EthdevLanesTest, NeitherTheOwnQueueNorThatOfAnotherLaneStarves) {
  std::vector<Bytes> in;
  for (uint32_t i = 0; i < 300; ++i) in.push_back(grad(i * kLanes));
  open({in, in});  // all for lane 0
  for (int i = 0; i < 10; ++i) turn(1);
  ASSERT_EQ(lanes_[1]->ethdev_counters().handed_over, 300u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(turn(0), 32u);
  EXPECT_EQ(lanes_[0]->counters().rx_packets, 64u);
}

TEST_F(EthdevLanesTest, ResultsThatNobodySendsAreLost) {
  open({{}});
  constexpr uint32_t kResults = FrameRing::kFrames + 100;
  for (uint32_t i = 0; i < kResults; ++i)
    lanes_[1]->tx(worker_, result(1), std::as_bytes(std::span(rows_[1])));
  lanes_[1]->tx_flush();
  EXPECT_EQ(total().drops[DropReason::kTxFull], 100u);
  EXPECT_EQ(total().tx_packets, 0u) << "handed over is not sent";
  for (int i = 0; i < 20; ++i) lanes_[0]->tx_flush();
  EXPECT_TRUE(lanes_[0]->take_moved());
  EXPECT_EQ(total().tx_packets, FrameRing::kFrames);
  EXPECT_EQ(lanes_[1]->ethdev_counters().tx_handed_over, FrameRing::kFrames);
  EXPECT_EQ(out(0).size(), FrameRing::kFrames);
}

TEST(DeviceOfLanes, PayloadsAreCopiedWhereAnotherLaneSendsThem) {
  // memif takes payloads where they lie, and has one queue pair as far as anybody can tell.
  const test::TempDir folder;
  for (const uint16_t lanes : {1, 2}) {
    const auto device = Device::open(
        {.device = "net_memif8,role=server,id=0,socket-abstract=no,socket=" + (folder / "m.sock"),
         .rx_descriptors = 128,
         .tx_descriptors = 128,
         .lanes = lanes});
    ASSERT_TRUE(device) << device.error().text;
    EXPECT_EQ((*device)->queues(), 1);
    EXPECT_EQ((*device)->sends_from_outside(), lanes == 1);
  }
}

TEST_F(EthdevLanesTest, LanesRunAtTheSameTime) {
  constexpr uint32_t kFrames = 20'000;
  std::vector<std::vector<Bytes>> in(2);
  for (uint32_t seq = 0; seq < kFrames; ++seq) in[seq / 7 % 2].push_back(grad(seq));
  open(in);
  std::atomic<uint32_t> reading = 2;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (uint16_t number = 0; number < kLanes; ++number)
    threads.emplace_back([&, number] {
      bool counted = number >= 2;
      while (!stop) {
        const uint64_t before = lanes_[number]->counters().rx_packets;
        turn(number);
        if (!counted && lanes_[number]->counters().rx_packets == before) {
          counted = true;
          --reading;
        }
        if (lanes_[number]->counters().rx_packets == before) std::this_thread::yield();
      }
    });
  while (reading != 0) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  run();  // what was left in the rings
  expect_balance();
  const uint64_t lost = total().drops[DropReason::kHandOverFull];
  EXPECT_EQ(ethdev_total().delivered, kFrames - lost);
  EXPECT_EQ(total().tx_packets + total().drops[DropReason::kTxFull], kFrames - lost);
}

/// Buffers that were missing from pools when these went; how many pools that were.
struct GonePools {
  static void note(rte_mempool_event event, rte_mempool* pool, void* self) {
    if (event != RTE_MEMPOOL_EVENT_DESTROY) return;
    ++static_cast<GonePools*>(self)->count;
    static_cast<GonePools*>(self)->missing += rte_mempool_in_use_count(pool);
  }
  GonePools() { EXPECT_EQ(rte_mempool_event_callback_register(note, this), 0); }
  ~GonePools() { rte_mempool_event_callback_unregister(note, this); }
  size_t count = 0;
  size_t missing = 0;
};

TEST_F(EthdevLanesTest, FramesLeftInRingsAreFreedWithThePort) {
  for (int round = 0; round < 2; ++round) {
    std::vector<Bytes> in;
    for (uint32_t seq = 0; seq < 100; ++seq) in.push_back(grad(seq));
    open({in});
    for (int i = 0; i < 4; ++i) turn(0);
    for (uint32_t i = 0; i < 10; ++i)
      lanes_[1]->tx(worker_, result(1), std::as_bytes(std::span(rows_[1])));
    lanes_[1]->tx_flush();
    EXPECT_GT(ethdev_total().handed_over, 0u) << "lane 0 received for the others";
    EXPECT_EQ(lanes_[1]->ethdev_counters().delivered, 0u) << "which took nothing";
    EXPECT_EQ(lanes_[1]->ethdev_counters().tx_handed_over, 10u);
    EXPECT_EQ(lanes_[1]->counters().tx_packets, 0u);
    if (round == 1) std::ranges::reverse(lanes_);
    GonePools gone;
    while (!lanes_.empty()) lanes_.pop_back();
    EXPECT_GT(gone.count, 0u);
    EXPECT_EQ(gone.missing, 0u);
  }
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
