// The ring in which the kernel gives frames to DPDK's driver for AF_PACKET.
//
// The kernel takes the outermost VLAN tag off a frame, and says in the ring what it was. The driver
// (22.11) puts an 802.1Q tag back, also where it was one of 802.1ad. Only the ring tells.
#pragma once

#include <linux/if_packet.h>
#include <rte_mbuf.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "io/bridge/vlan_tags.h"
#include "io/ethdev/driver_socket.h"
#include "io/ethdev/frame_buffer.h"

namespace ina::io {

/// The ring of one queue; belongs to its lane. The driver reads the same frames, in the same order.
class PacketRing {
 public:
  /// `frame_bytes`: framesz of the device's arguments. Nothing: the process has no such ring.
  static std::optional<PacketRing> of(const DriverSocket& socket, uint32_t frame_bytes);

  /// How many of the next `most` frames are there; at most 64.
  uint16_t look(uint16_t most) {
    provider_tags_ = 0;
    uint16_t count = 0;
    for (uint32_t at = next_; count < most; ++count) {
      auto* const header = reinterpret_cast<tpacket2_hdr*>(first_ + size_t{at} * frame_bytes_);
      const uint32_t status =
          std::atomic_ref<uint32_t>(header->tp_status).load(std::memory_order_acquire);
      if ((status & TP_STATUS_USER) == 0) break;
      if ((status & TP_STATUS_VLAN_VALID) != 0 &&
          header->tp_vlan_tpid == bridge::kEthertypeProviderVlan)
        provider_tags_ |= uint64_t{1} << count;
      if (++at == frames_) at = 0;
    }
    return count;
  }

  /// The driver has taken so many of those that look() has seen.
  void taken(rte_mbuf** packets, uint16_t count) {
    next_ = (next_ + count) % frames_;
    for (uint16_t i = 0; provider_tags_ != 0 && i < count; ++i, provider_tags_ >>= 1)
      if ((provider_tags_ & 1) != 0) restore_tag(packets[i]);
  }

 private:
  PacketRing(std::byte* first, uint32_t frames, uint32_t frame_bytes)
      : first_(first), frames_(frames), frame_bytes_(frame_bytes) {}

  static void restore_tag(rte_mbuf* packet) {
    constexpr size_t kEthertype = 12;
    const std::span<std::byte> bytes = bytes_of(packet);
    if (bytes.size() < kEthertype + bridge::kTagBytes ||
        bridge::load16(bytes, kEthertype) != bridge::kEthertypeVlan)
      return;
    bytes[kEthertype] = std::byte{bridge::kEthertypeProviderVlan >> 8};
    bytes[kEthertype + 1] = std::byte{bridge::kEthertypeProviderVlan & 0xff};
  }

  std::byte* first_;
  uint32_t frames_;
  uint32_t frame_bytes_;
  uint32_t next_ = 0;
  uint64_t provider_tags_ = 0;  ///< bits: of the frames that look() has seen
};

}  // namespace ina::io
