// The rings between the lanes of a port: three lanes, of which the first two have a queue pair.
#include "io/ethdev/lane_rings.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/ethdev/buffers.h"
#include "tests/ethdev/eal_fixture.h"

namespace ina::io {
namespace {

constexpr uint16_t kLanes = 3;
constexpr uint16_t kQueues = 2;
constexpr uint16_t kRoom = 32;

Bytes frame_for(uint16_t lane) {
  wire::Address to = kSwitch;
  to.udp_port = static_cast<uint16_t>(to.udp_port + lane);
  return encode(envelope(kWorkers[0], to), message(wire::Type::kQuery, 0, 0), {});
}

class LaneRingsTest : public ::testing::Test {
 protected:
  /// Received by `lane`; returns how many it kept, which are given back.
  uint16_t sort(uint16_t lane, std::initializer_list<uint16_t> for_lanes) {
    std::vector<rte_mbuf*> received;
    for (const uint16_t to : for_lanes) received.push_back(buffers_.holding(frame_for(to)));
    std::array<rte_mbuf*, kBurstFrames> kept{};
    const uint16_t count = lanes_[lane].sort(received, kept.data(), kSteering);
    rte_pktmbuf_free_bulk(kept.data(), count);
    return count;
  }
  /// From rings and an own queue that holds `own` frames; gives them back. Returns how many.
  uint16_t receive(uint16_t lane, uint16_t room, uint16_t own = 0) {
    std::array<rte_mbuf*, kBurstFrames> frames{};
    full_ = false;
    const uint16_t count = lanes_[lane].receive(frames.data(), room, full_,
                                                [&](rte_mbuf** to, uint16_t own_room, bool& full) {
                                                  const uint16_t taken = std::min(own, own_room);
                                                  for (uint16_t i = 0; i < taken; ++i)
                                                    to[i] = buffers_.holding(frame_for(lane));
                                                  own_taken_ += taken;
                                                  full = taken == own_room;
                                                  return taken;
                                                });
    rte_pktmbuf_free_bulk(frames.data(), count);
    return count;
  }

  static constexpr Steering kSteering = {
      .ip = kSwitch.ip, .udp_port = kSwitch.udp_port, .lanes = kLanes};
  Buffers buffers_;
  std::array<LaneCounters, kLanes> counters_;
  std::array<LaneRings, kLanes> lanes_{{{0, counters_[0]}, {1, counters_[1]}, {2, counters_[2]}}};
  std::array<LaneRings*, kLanes> all_{&lanes_[0], &lanes_[1], &lanes_[2]};
  LaneRings::Rings rings_ = LaneRings::connect(all_, kQueues);
  bool full_ = false;
  uint32_t own_taken_ = 0;
};

TEST_F(LaneRingsTest, ALaneWithoutAQueuePairHasOneThatSendsForIt) {
  EXPECT_EQ(lanes_[0].carrier(), nullptr);
  EXPECT_EQ(lanes_[1].carrier(), nullptr);
  ASSERT_NE(lanes_[2].carrier(), nullptr);
  ASSERT_EQ(lanes_[0].carried().size(), 1u);
  EXPECT_EQ(lanes_[0].carried()[0], lanes_[2].carrier());
  EXPECT_TRUE(lanes_[1].carried().empty());
}

TEST_F(LaneRingsTest, FramesGoToTheLaneThatTheyAreFor) {
  EXPECT_EQ(sort(0, {0, 1, 2, 2, 0}), 2);
  EXPECT_EQ(counters_[0].ethdev.handed_over, 3u);
  EXPECT_TRUE(lanes_[0].take_moved());
  EXPECT_FALSE(lanes_[0].take_moved());
  EXPECT_EQ(sort(0, {0}), 1);
  EXPECT_FALSE(lanes_[0].take_moved()) << "it was for this lane";
  EXPECT_EQ(sort(1, {0}), 0);
  EXPECT_EQ(receive(0, kRoom), 1);
  EXPECT_EQ(receive(1, kRoom), 1);
  EXPECT_EQ(receive(2, kRoom), 2);
  EXPECT_EQ(own_taken_, 0u) << "the queues were empty, and lane 2 has none";
}

TEST_F(LaneRingsTest, WhatARingHasNoRoomForIsDropped) {
  for (unsigned i = 0; i < FrameRing::kFrames; ++i) sort(0, {1});
  sort(0, {1, 1, 2});
  EXPECT_EQ(counters_[0].port.drops[DropReason::kHandOverFull], 2u);
  EXPECT_EQ(counters_[0].ethdev.handed_over, FrameRing::kFrames + 1);
}

TEST_F(LaneRingsTest, EachSourceIsFirstInTurn) {
  for (int i = 0; i < 20; ++i) sort(1, {0, 0});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(receive(0, 4, 100), 4);
  EXPECT_EQ(own_taken_, 20u) << "as many as from the ring";
}

TEST_F(LaneRingsTest, AFullBurstMayHaveLeftSome) {
  sort(1, {0, 0, 0});
  EXPECT_EQ(receive(0, 4, 1), 4);
  EXPECT_TRUE(full_);
  EXPECT_EQ(receive(0, 4, 1), 1);
  EXPECT_FALSE(full_);
}

TEST_F(LaneRingsTest, LanesAreFoundBehindTags) {
  Steering steering = kSteering;
  steering.vlan = 42;
  const auto lane_of_frame = [&](const Bytes& frame, uint16_t stripped) {
    rte_mbuf* const buffer = buffers_.holding(frame);
    if (stripped != 0) buffer->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
    buffer->vlan_tci = stripped;
    const uint16_t lane = lane_of(buffer, steering);
    rte_pktmbuf_free(buffer);
    return lane;
  };
  EXPECT_EQ(lane_of_frame(tagged(frame_for(2), 42), 0), 2);
  EXPECT_EQ(lane_of_frame(tagged(frame_for(2), 43), 0), 0);
  EXPECT_EQ(lane_of_frame(frame_for(2), 0), 0);
  EXPECT_EQ(lane_of_frame(frame_for(2), 42), 2);
  EXPECT_EQ(lane_of_frame(frame_for(2), 43), 0);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
