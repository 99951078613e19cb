// The number of packet buffers that a device needs, and their memory: for the device that makes
// them, and for checks before it does. Without DPDK's headers.
#pragma once

#include <cstdint>

namespace ina::io {

/// Packets of one call of Device::rx() or tx().
inline constexpr uint32_t kBurstFrames = 64;
inline constexpr uint32_t kPoolCacheFrames = 64;
inline constexpr uint32_t kVlanTagBytes = 4;
inline constexpr uint32_t kVlanTagsBytes = 2 * kVlanTagBytes;  ///< of a frame with two
inline constexpr uint32_t kXdpRingFrames = 2048;  ///< in the driver's fill or completion ring

/// The parameters that decide the number and size of buffers.
struct BufferNeed {
  uint32_t frame_bytes = 0;  ///< largest, without FCS and VLAN tags
  uint32_t queues = 1;
  uint32_t lanes = 1;
  uint32_t rx_descriptors = 0;  ///< of each queue
  uint32_t tx_descriptors = 0;
  uint32_t ring_frames = 0;         ///< that may lie in a ring from one lane to another
  uint32_t lent_buffers = 0;        ///< received ones that may lie in other devices' queues
  uint32_t min_rx_bytes = 0;        ///< that the driver demands of a buffer
  bool sends_from_outside = false;  ///< Device::sends_from_outside()
};

struct BufferPools {
  uint32_t rx_buffers = 0;
  uint32_t rx_bytes = 0;  ///< room for data of each, behind the headroom
  uint32_t tx_buffers = 0;
  uint32_t tx_bytes = 0;
};

/// Buffers for the device, for bursts and the pools' caches, and for the rings between lanes.
/// Should all of these be full at once, the device drops the frames that arrive.
constexpr BufferPools plan_buffers(const BufferNeed& need) {
  const uint32_t spare = need.lanes * (2 * kBurstFrames + 2 * kPoolCacheFrames);
  const uint32_t in_rings = (need.lanes - 1) * need.ring_frames;
  BufferPools pools;
  pools.rx_buffers = need.queues * need.rx_descriptors + spare + in_rings + need.lent_buffers;
  pools.tx_buffers =
      need.queues * need.tx_descriptors + spare + (need.lanes - need.queues) * need.ring_frames;
  // NICs know buffer sizes in steps of 1 KiB, and the FCS may be among what they write.
  const uint32_t whole_frame = (need.frame_bytes + kVlanTagsBytes + 4 + 1023) / 1024 * 1024;
  pools.rx_bytes = whole_frame > need.min_rx_bytes ? whole_frame : need.min_rx_bytes;
  pools.tx_bytes = whole_frame;
  if (need.sends_from_outside) {
    // A chained frame has two buffers if no other frame shares its payload.
    pools.tx_buffers *= 2;
    pools.tx_bytes = 128;
  }
  return pools;
}

/// The buffers of an AF_XDP device: one pool of pages, for both directions. Some are received into,
/// some are to be sent, some are sent and not yet given back. The driver looks for the last only
/// when it sends, so there must be enough for all of them.
constexpr uint32_t plan_xdp_buffers(const BufferNeed& need) {
  const uint32_t spare = need.lanes * (4 * kBurstFrames + 2 * kPoolCacheFrames);
  const uint32_t in_rings = (need.lanes - 1) * need.ring_frames;
  return need.queues * (2 * kXdpRingFrames + need.rx_descriptors) + spare + 2 * in_rings +
         need.lent_buffers;
}

/// DPDK's memory for the buffers of one pool, each with room for `data_bytes`. Without hugepages
/// none of them crosses the boundary of a page, unless it is larger than that: then it has pages of
/// its own.
constexpr uint64_t pool_bytes(uint32_t buffers, uint64_t data_bytes, bool hugepages) {
  // A cache line before each buffer, the buffer's own head, its headroom.
  constexpr uint64_t kHeadBytes = 64 + 128 + 128;
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t element = (data_bytes + kHeadBytes + 63) / 64 * 64;
  if (hugepages) return buffers * element;
  if (element > kPageBytes) return buffers * ((element + kPageBytes - 1) / kPageBytes * kPageBytes);
  const uint64_t in_page = kPageBytes / element;
  return (buffers + in_page - 1) / in_page * kPageBytes;
}

/// The memory of the buffers of a pool of pages.
constexpr uint64_t xdp_pool_bytes(uint32_t buffers) {
  return uint64_t{buffers} * 4096;
}

/// The memory of a pool beside its buffers, at least and at most: the caches of all lcores that
/// DPDK could have, and the ring of the free ones.
inline constexpr uint64_t kLeastPoolOwnBytes = uint64_t{512} << 10;
inline constexpr uint64_t kPoolOwnBytes = uint64_t{1100} << 10;
/// DPDK's own tables and the drivers' own memory, at most.
inline constexpr uint64_t kEalOwnBytes = uint64_t{2} << 20;

}  // namespace ina::io
