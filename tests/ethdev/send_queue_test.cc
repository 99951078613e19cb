// The fate of queued frames: sent, passed to another lane, or lost; each is counted once.
#include "io/ethdev/send_queue.h"

#include <gtest/gtest.h>

#include "tests/ethdev/buffers.h"
#include "tests/ethdev/eal_fixture.h"

namespace ina::io {
namespace {

using Kind = SendQueue::Kind;

/// Takes `room` frames, at most two in a call.
struct Device {
  uint16_t tx(rte_mbuf** frames, uint16_t count, uint16_t queue_pair) {
    const auto taken = std::min<uint16_t>({count, 2, room});
    rte_pktmbuf_free_bulk(frames, taken);
    room = static_cast<uint16_t>(room - taken);
    last_queue_pair = queue_pair;
    return taken;
  }
  uint16_t room = UINT16_MAX;
  uint16_t last_queue_pair = UINT16_MAX;
};

class SendQueueTest : public ::testing::Test {
 protected:
  void add(Kind kind, size_t bytes) {
    queue_.add(buffers_.holding(Bytes(wire::kFrameHeaderBytes + bytes)), kind, bytes);
  }

  Buffers buffers_;
  LaneCounters counters_;
  SendQueue queue_{counters_};
  Device device_;
};

TEST_F(SendQueueTest, CountsMessagesAndTransitApart) {
  add(Kind::kMessage, 100);
  add(Kind::kAnswer, 42);
  add(Kind::kTransit, 60);
  add(Kind::kMessage, 0);
  add(Kind::kTransit, 61);
  queue_.send(device_, 3);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(device_.last_queue_pair, 3);
  EXPECT_EQ(counters_.port.tx_packets, 2u);
  EXPECT_EQ(counters_.port.tx_bytes, 100u);
  EXPECT_EQ(counters_.ethdev.bridged_sent, 2u);
  EXPECT_EQ(counters_.ethdev.bridged_sent_bytes, 121u);
  EXPECT_EQ(counters_.port.drops[DropReason::kTxFull], 0u);
}

TEST_F(SendQueueTest, WhatTheDeviceDoesNotTakeIsLost) {
  for (int i = 0; i < 5; ++i) add(Kind::kMessage, 10);
  add(Kind::kTransit, 60);
  device_.room = 3;
  queue_.send(device_, 0);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(buffers_.in_use(), 0u);
  EXPECT_EQ(counters_.port.tx_packets, 3u);
  EXPECT_EQ(counters_.port.tx_bytes, 30u);
  EXPECT_EQ(counters_.port.drops[DropReason::kTxFull], 3u);
  EXPECT_EQ(counters_.ethdev.bridged_lost, 1u);
}

TEST_F(SendQueueTest, HasRoomForABurst) {
  for (uint32_t i = 0; i < kBurstFrames; ++i) {
    EXPECT_FALSE(queue_.full());
    add(Kind::kMessage, 1);
  }
  EXPECT_TRUE(queue_.full());
  queue_.send(device_, 0);
  EXPECT_EQ(counters_.port.tx_packets, kBurstFrames);
}

TEST_F(SendQueueTest, AnotherLaneSendsAndCounts) {
  LaneCounters sender_counters;
  SendQueue sender(sender_counters);
  FrameRing ring;
  EXPECT_FALSE(sender.take_from(ring, wire::kFrameHeaderBytes));
  add(Kind::kMessage, 100);
  add(Kind::kMessage, 7);
  queue_.pass_to(ring);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(counters_.ethdev.tx_handed_over, 2u);
  EXPECT_EQ(counters_.port.tx_packets, 0u);
  ASSERT_TRUE(sender.take_from(ring, wire::kFrameHeaderBytes));
  sender.send(device_, 0);
  EXPECT_EQ(sender_counters.port.tx_packets, 2u);
  EXPECT_EQ(sender_counters.port.tx_bytes, 107u);
}

TEST_F(SendQueueTest, WhatTheRingHasNoRoomForIsLost) {
  FrameRing ring;
  for (uint32_t i = 0; i < FrameRing::kFrames + 3; ++i) {
    add(Kind::kMessage, 1);
    queue_.pass_to(ring);
  }
  EXPECT_EQ(counters_.ethdev.tx_handed_over, FrameRing::kFrames);
  EXPECT_EQ(counters_.port.drops[DropReason::kTxFull], 3u);
}

TEST_F(SendQueueTest, WhatIsLeftIsGivenBack) {
  {
    SendQueue queue(counters_);
    queue.add(buffers_.holding(Bytes(60)), Kind::kTransit, 60);
    EXPECT_EQ(buffers_.in_use(), 1u);
  }
  EXPECT_EQ(buffers_.in_use(), 0u);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
