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

TEST(FrameBuffer, ATagIsPutOn) {
  const Buffers buffers;
  const Bytes frame = arp_request(kWorkers[0], kSwitch.ip);
  rte_mbuf* const none = buffers.holding(frame);
  put_tag(none, 0);
  EXPECT_EQ(content(none), frame);
  rte_mbuf* const with_tag = buffers.holding(frame);
  put_tag(with_tag, 42);
  EXPECT_EQ(content(with_tag), tagged(frame, 42));
  for (rte_mbuf* const buffer : {none, with_tag}) rte_pktmbuf_free(buffer);
}

TEST(FrameBuffer, OfSeveralBuffersOneIsMade) {
  const Buffers buffers;
  const Bytes frame = arp_request(kWorkers[0], kSwitch.ip);
  const size_t half = frame.size() / 2;
  rte_mbuf* const first = buffers.holding({frame.begin(), frame.begin() + half});
  rte_mbuf* const second = buffers.holding({frame.begin() + half, frame.end()});
  ASSERT_EQ(rte_pktmbuf_chain(first, second), 0);
  ASSERT_TRUE(is_in_one_piece(first));
  EXPECT_EQ(content(first), frame);
  rte_pktmbuf_free(first);
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
