// Frames for others: one buffer however many ports send it, and each has one fate.
#include "io/ethdev/transit_frames.h"

#include <gtest/gtest.h>

#include "tests/ethdev/buffers.h"
#include "tests/ethdev/eal_fixture.h"

namespace ina::io {
namespace {

TEST(TransitFrames, SayWhereTheyComeFromAndGoTo) {
  const Buffers buffers;
  LaneCounters counters;
  TransitFrames transit(counters);
  rte_mbuf* const buffer = buffers.holding(tagged(arp_reply(kWorkers[0], kWorkers[1]), 42));
  buffer->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_BAD;
  transit.add(buffer);
  transit.add_asker({.destination = kSwitch.mac, .source = kWorkers[2].mac, .vlan = 7});
  ASSERT_EQ(transit.all().size(), 2u);
  const TransitFrame& frame = transit.all()[0];
  EXPECT_EQ(frame.buffer, buffer);
  EXPECT_EQ(frame.addresses.source, kWorkers[0].mac);
  EXPECT_EQ(frame.addresses.destination, kWorkers[1].mac);
  EXPECT_EQ(frame.addresses.vlan, 42);
  EXPECT_EQ(buffer->ol_flags, 0u) << "what the device noted is no order to the next one";
  EXPECT_EQ(transit.all()[1].buffer, nullptr);
  EXPECT_EQ(transit.all()[1].addresses.source, kWorkers[2].mac);
  transit.drop(frame, DropReason::kNoPort);
  EXPECT_EQ(counters.port.drops[DropReason::kNoPort], 1u);
  transit.clear();
  EXPECT_TRUE(transit.all().empty());
}

TEST(TransitFrames, AFloodedFrameIsOneBuffer) {
  const Buffers buffers;
  LaneCounters counters;
  TransitFrames transit(counters);
  transit.add(buffers.holding(arp_request(kWorkers[0], kWorkers[1].ip)));
  transit.hand_over_to_all(transit.all()[0], 3);
  for (unsigned left = 3; left > 0; --left) {
    EXPECT_EQ(buffers.in_use(), 1u) << left;
    rte_pktmbuf_free(transit.all()[0].buffer);
  }
  EXPECT_EQ(buffers.in_use(), 0u);
  EXPECT_EQ(counters.ethdev.flooded, 1u);
  EXPECT_EQ(counters.ethdev.flood_copies, 3u);
  EXPECT_EQ(counters.ethdev.forwarded, 0u);
  transit.hand_over();
  EXPECT_EQ(counters.ethdev.forwarded, 1u);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
