// The bridge's packet path between any port and any transport: nothing is lost, doubled or put out
// of order while one side is full, and nothing passes that would break the rings.
#include "programs/memif/relay.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace ina::memif {
namespace {

constexpr uint32_t kSlotBytes = 256;
constexpr uint32_t kLanes = 2;
constexpr io::EndpointIndex kEndpoint = 3;

/// A message of `elements` int32 and its payload.
struct Packet {
  wire::Message message;
  std::vector<std::byte> payload;
};

Packet packet(uint32_t seq, uint16_t elements = 8) {
  Packet packet;
  wire::Message& m = packet.message;
  m.type = wire::Type::kGrad;
  m.dtype = DType::kInt32;
  m.op = Op::kSum;
  m.collective = Collective::kAllReduce;
  m.seq = seq;
  m.lane = static_cast<uint8_t>(seq % kLanes);
  m.elements = elements;
  m.operation_elements = 1'000'000;
  packet.payload.assign(elements * sizeof(int32_t), static_cast<std::byte>(seq));
  return packet;
}

/// Received packets stay readable until rx_release(), not longer: then they are overwritten.
template <class Received>
class Source {
 public:
  std::deque<Packet> waiting;

  size_t rx_burst(std::span<Received> burst) {
    rx_release();
    while (handed_out_.size() < burst.size() && !waiting.empty()) {
      handed_out_.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    for (size_t i = 0; i < handed_out_.size(); ++i) {
      burst[i].message = handed_out_[i].message;
      burst[i].payload = handed_out_[i].payload.data();
      burst[i].payload_bytes = static_cast<uint32_t>(handed_out_[i].payload.size());
    }
    return handed_out_.size();
  }
  void rx_release() {
    for (Packet& old : handed_out_) old.payload.assign(old.payload.size(), std::byte{0xee});
    handed_out_.clear();
  }

 private:
  std::vector<Packet> handed_out_;
};

Packet copy_of(const wire::Message& message, const std::byte* payload, size_t bytes) {
  return {message, {payload, payload + bytes}};
}

struct FakePort : Source<io::RxPacket> {
  bool tx(io::EndpointIndex endpoint, const wire::Message& message,
          std::span<const std::byte> payload) {
    EXPECT_EQ(endpoint, kEndpoint);
    queued.emplace_back(message, payload);
    return true;
  }
  /// As a device that copies: until here the payload is only referred to.
  void tx_flush() {
    for (const auto& [message, payload] : queued)
      sent.push_back(copy_of(message, payload.data(), payload.size()));
    queued.clear();
  }
  const io::PortCounters& counters() const { return counters_; }

  std::vector<std::pair<wire::Message, std::span<const std::byte>>> queued;
  std::vector<Packet> sent;
  io::PortCounters counters_;
};

struct FakeTransport final : client::Transport {
  size_t tx_burst(std::span<const client::TxPacket> packets) override {
    const size_t count = std::min(packets.size(), room);
    for (const auto& p : packets.first(count))
      sent.push_back(copy_of(p.message, p.payload, p.payload_bytes));
    return count;
  }
  size_t rx_burst(std::span<client::RxPacket> packets) override { return source.rx_burst(packets); }
  void rx_release() override { source.rx_release(); }
  void wait(Nanos) override {}
  void wake() override {}
  client::TransportCounters counters() const override { return {}; }

  size_t room = 1000;  ///< packets that it takes at once
  std::vector<Packet> sent;
  Source<client::RxPacket> source;
};

class RelayTest : public testing::Test {
 protected:
  RelayTest() { relay_.attach(kEndpoint, transport_, kLanes, kSlotBytes); }

  static void expect_in_order(const std::vector<Packet>& packets, uint32_t count) {
    ASSERT_EQ(packets.size(), count);
    for (uint32_t seq = 0; seq < count; ++seq) {
      EXPECT_EQ(packets[seq].message.seq, seq);
      EXPECT_EQ(packets[seq].payload, packet(seq).payload) << seq;
    }
  }

  FakePort port_;
  FakeTransport transport_;
  Relay<FakePort> relay_{port_};
};

TEST_F(RelayTest, PassesPacketsBothWays) {
  for (uint32_t seq = 0; seq < 200; ++seq) {
    port_.waiting.push_back(packet(seq));
    transport_.source.waiting.push_back(packet(seq));
  }
  while (relay_.poll()) {
  }
  expect_in_order(transport_.sent, 200);
  expect_in_order(port_.sent, 200);
  EXPECT_EQ(relay_.counters().to_switch, 200u);
  EXPECT_EQ(relay_.counters().to_worker, 200u);
  EXPECT_EQ(relay_.counters().send_ring_full, 0u);
}

TEST_F(RelayTest, AFullSendRingMakesTheWorkerWaitAndLosesNothing) {
  constexpr uint32_t kPackets = 300;
  for (uint32_t seq = 0; seq < kPackets; ++seq) port_.waiting.push_back(packet(seq));
  transport_.room = 0;
  EXPECT_FALSE(relay_.poll());
  const size_t left = port_.waiting.size();
  EXPECT_GT(left, 0u);
  EXPECT_FALSE(relay_.poll());
  EXPECT_EQ(port_.waiting.size(), left) << "no more is taken meanwhile";
  EXPECT_EQ(relay_.counters().send_ring_full, 2u);
  // Results pass all the same, or the ring would never have room again.
  transport_.source.waiting.push_back(packet(0));
  EXPECT_TRUE(relay_.poll());
  expect_in_order(port_.sent, 1);
  transport_.room = 7;
  while (relay_.poll()) {
  }
  expect_in_order(transport_.sent, kPackets);
}

TEST_F(RelayTest, WhatWouldBreakTheRingsIsDroppedAndCounted) {
  Packet lane = packet(0);
  lane.message.lane = kLanes;
  Packet large = packet(1, kSlotBytes / 4 + 1);  // the port's own limit is a larger slot
  Packet type = packet(2);
  type.message.type = static_cast<wire::Type>(77);
  for (const Packet& bad : {lane, large, type}) port_.waiting.push_back(bad);
  EXPECT_FALSE(relay_.poll());
  port_.waiting = {lane, packet(0), large, packet(1), type};
  EXPECT_TRUE(relay_.poll());
  expect_in_order(transport_.sent, 2);
  const DropCounters& drops = relay_.counters().drops;
  EXPECT_EQ(drops[DropReason::kWrongLane], 2u);
  EXPECT_EQ(drops[DropReason::kBadLength], 2u);
  EXPECT_EQ(drops[DropReason::kBadType], 2u);
}

TEST_F(RelayTest, TheNextWorkerGetsNothingOfTheLast) {
  for (uint32_t seq = 100; seq < 110; ++seq) port_.waiting.push_back(packet(seq));
  transport_.room = 4;
  EXPECT_TRUE(relay_.poll());
  relay_.detach();
  EXPECT_FALSE(relay_.attached());
  FakeTransport next;
  port_.waiting = {packet(0), packet(1)};
  relay_.attach(kEndpoint, next, kLanes, kSlotBytes);
  while (relay_.poll()) {
  }
  expect_in_order(next.sent, 2);
}

}  // namespace
}  // namespace ina::memif
