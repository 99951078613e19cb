// Frames in buffers: tags that the device takes off or puts on, or leaves to the port.
#include "io/ethdev/frame_buffer.h"

#include <gtest/gtest.h>

#include "tests/ethdev/buffers.h"
#include "tests/ethdev/eal_fixture.h"

namespace ina::io {
namespace {

Bytes content(rte_mbuf* buffer) {
  const auto bytes = bytes_of(buffer);
  return {bytes.begin(), bytes.end()};
}

TEST(FrameBuffer, ATagIsTakenOffWhereTheDeviceHasNot) {
  const Buffers buffers;
  const Bytes frame = arp_request(kWorkers[0], kSwitch.ip);
  rte_mbuf* const plain = buffers.holding(frame);
  EXPECT_EQ(remove_tag(plain), 0);
  EXPECT_EQ(content(plain), frame);
  rte_mbuf* const with_tag = buffers.holding(tagged(frame, 42, 3));
  EXPECT_EQ(remove_tag(with_tag), 42);
  EXPECT_EQ(content(with_tag), frame);
  rte_mbuf* const stripped = buffers.holding(frame);
  stripped->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
  stripped->vlan_tci = 3 << 13 | 43;
  EXPECT_EQ(remove_tag(stripped), 43);
  EXPECT_EQ(content(stripped), frame);
  for (rte_mbuf* const buffer : {plain, with_tag, stripped}) rte_pktmbuf_free(buffer);
}

TEST(FrameBuffer, ATagIsPutOnOrLeftToTheDevice) {
  const Buffers buffers;
  const Bytes frame = arp_request(kWorkers[0], kSwitch.ip);
  rte_mbuf* const none = buffers.holding(frame);
  put_tag(none, 0, false);
  EXPECT_EQ(content(none), frame);
  rte_mbuf* const here = buffers.holding(frame);
  put_tag(here, 42, false);
  EXPECT_EQ(content(here), tagged(frame, 42));
  rte_mbuf* const by_device = buffers.holding(frame);
  put_tag(by_device, 42, true);
  EXPECT_EQ(content(by_device), frame);
  EXPECT_NE(by_device->ol_flags & RTE_MBUF_F_TX_VLAN, 0u);
  EXPECT_EQ(by_device->vlan_tci, 42);
  for (rte_mbuf* const buffer : {none, here, by_device}) rte_pktmbuf_free(buffer);
}

TEST(FrameBuffer, WhatWasReceivedIsNoOrderToSend) {
  const Buffers buffers;
  rte_mbuf* const buffer = buffers.holding(arp_request(kWorkers[0], kSwitch.ip));
  buffer->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_L4_CKSUM_BAD;
  EXPECT_TRUE(has_wrong_udp_checksum(buffer));
  forget_receipt(buffer);
  EXPECT_EQ(buffer->ol_flags, 0u);
  rte_pktmbuf_free(buffer);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
