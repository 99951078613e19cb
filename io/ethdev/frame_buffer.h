// A frame in a buffer of DPDK: its bytes, its VLAN tag, its checksums.
#pragma once

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/bridge/bridge.h"
#include "wire/frame.h"

namespace ina::io {

inline std::byte* data_of(rte_mbuf* buffer) {
  return rte_pktmbuf_mtod(buffer, std::byte*);
}

inline std::span<std::byte> bytes_of(rte_mbuf* buffer) {
  return {data_of(buffer), buffer->data_len};
}

inline std::span<const std::byte> bytes_of(const rte_mbuf* buffer) {
  return {rte_pktmbuf_mtod(buffer, const std::byte*), buffer->data_len};
}

/// The device took the tag off, and says in `vlan_tci` what it was.
inline bool tag_is_stripped(const rte_mbuf* buffer) {
  return (buffer->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
}

inline uint16_t stripped_vlan(const rte_mbuf* buffer) {
  return buffer->vlan_tci & (bridge::kVlans - 1);
}

/// Takes the tag off, if the device has not. Returns its VLAN; 0: there is none, or it names none.
inline uint16_t remove_tag(rte_mbuf* buffer) {
  if (!tag_is_stripped(buffer) &&
      (bridge::vlan_of(bytes_of(buffer)) == 0 || rte_vlan_strip(buffer) != 0))
    return 0;
  return stripped_vlan(buffer);
}

/// Puts a tag before a frame that nobody else holds; 0: none.
inline void put_tag(rte_mbuf* frame, uint16_t vlan) {
  if (vlan == 0) return;
  frame->vlan_tci = vlan;
  rte_vlan_insert(&frame);  // there is headroom
}

/// Every buffer has room for the largest frame, but a device may use less of it and then fill
/// several: e1000 takes the next lower power of two. Copies the rest to the first if so.
inline bool is_in_one_piece(rte_mbuf* buffer) {
  return buffer->nb_segs == 1 || rte_pktmbuf_linearize(buffer) == 0;
}

/// Its sender has left the checksum to whoever sends it on: by virtio, from the same machine.
inline bool has_unfinished_checksum(const rte_mbuf* buffer) {
  return (buffer->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE;
}

/// The receiving device's flags must not be taken for an order to the sending one.
inline void forget_receipt(rte_mbuf* buffer) {
  buffer->ol_flags &= RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_INDIRECT;
}

inline bool has_wrong_udp_checksum(const rte_mbuf* buffer) {
  return (buffer->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

/// As rte_mbuf.h asks for: its own place zero, that of the datagram filled with the sum over the
/// addresses. Without the device a datagram has no checksum: its content has a better one.
inline void leave_checksums_to_device(rte_mbuf* frame, uint64_t flags) {
  frame->ol_flags |= flags;
  frame->l2_len = wire::kEthernetBytes;
  frame->l3_len = wire::kIpv4Bytes;
  auto* const ip = rte_pktmbuf_mtod_offset(frame, rte_ipv4_hdr*, wire::kEthernetBytes);
  ip->hdr_checksum = 0;
  if ((flags & RTE_MBUF_F_TX_L4_MASK) == 0) return;
  reinterpret_cast<rte_udp_hdr*>(ip + 1)->dgram_cksum = rte_ipv4_phdr_cksum(ip, flags);
}

}  // namespace ina::io
