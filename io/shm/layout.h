// The same-host port: memory that the switch shares with one worker, and with all workers of a job.
// docs/protocol.md specifies it; both sides include this file.
//
// Three regions, each with one writer:
//   worker region   made by the worker, mapped read-only by the switch: its send ring and payloads,
//                   how far it has read its receive ring, whether it sleeps
//   switch region   made by the switch, one per worker, mapped read-only by the worker: the receive
//                   ring, how far the switch has read the send ring, whether the switch sleeps,
//                   and side rows: payloads for this worker that are not results
//   result region   made by the switch, one per job, mapped read-only by its workers: the result
//                   ring
//
// Two more kinds come and go while a job runs. With them the worker copies neither gradient nor
// result:
//   registered memory  a worker's own, mapped read-only by the switch: gradients are added in place
//   result buffers     made by the switch, mapped read-only by the job's workers: the switch writes
//                      a result to its final place, once for all workers
//
// Rings are per lane. A descriptor is one cache line and says itself whether it is filled: `turn`
// is the number of times the ring has come round. So a reader polls the line that it will need
// anyway. A reader of the other side's memory copies a descriptor before it believes it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "wire/message.h"

namespace ina::io::shm {

inline constexpr uint32_t kLayoutVersion = 6;
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kLineBytes = 64;

/// Bit of Descriptor::payload_offset: the payload lies in a side row.
inline constexpr uint64_t kSidePayload = uint64_t{1} << 63;

/// Bit of Descriptor::payload_offset: the payload lies in the job's result buffers, which are
/// numbered through (wire::Message::target).
inline constexpr uint64_t kResultBufferPayload = uint64_t{1} << 62;

/// Bits of Descriptor::payload_offset from here on, in a worker's send ring: number of the
/// registered memory; 0 is the worker region.
inline constexpr uint32_t kRegionShift = 48;
/// Memories of a worker, the worker region included.
inline constexpr uint32_t kMaxRegions = 64;

/// One packet: written by the ring's producer, `turn` last.
struct alignas(kLineBytes) Descriptor {
  wire::Message message;
  /// Sending: within the worker region, or with a number of registered memory within that.
  /// Receiving: within the result region; with kSidePayload within the switch region, with
  /// kResultBufferPayload within the result buffers.
  uint64_t payload_offset = 0;
  uint32_t payload_bytes = 0;
  std::atomic<uint32_t> turn{0};  ///< 1 + index / depth once filled
};
static_assert(sizeof(Descriptor) == kLineBytes && std::atomic<uint32_t>::is_always_lock_free);

/// A ring's read position, alone on its line.
struct alignas(kLineBytes) Position {
  std::atomic<uint64_t> value{0};
};

/// Values of a worker's sleep flag: awake, asleep on the doorbell, or one that nobody drives and
/// that is to be called over the control connection. Each idle period has a number of its own, so
/// that a lane calls once a period.
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t kAsleep = 1;
inline constexpr uint32_t kFirstIdlePeriod = 2;

/// Non-zero while its writer sleeps and wants to be woken, alone on its line.
struct alignas(kLineBytes) SleepFlag {
  std::atomic<uint32_t> value{0};
};

/// Sizes agreed at join. All depths are powers of two.
struct Geometry {
  uint32_t lanes = 1;
  uint32_t tx_depth = 0;    ///< descriptors and payload rows of a send ring
  uint32_t rx_depth = 0;    ///< descriptors of a receive ring
  uint32_t slot_bytes = 0;  ///< bytes of a payload row and of a result row
  uint32_t result_rows = 0;
  uint32_t side_rows = 0;  ///< payload rows of a lane in the switch region

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

constexpr size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Offsets within the worker region.
struct WorkerLayout {
  explicit constexpr WorkerLayout(const Geometry& g)
      : rx_read(kLineBytes),
        tx_ring(round_up(rx_read + g.lanes * sizeof(Position), kPageBytes)),
        payload(round_up(tx_ring + size_t{g.lanes} * g.tx_depth * sizeof(Descriptor), kPageBytes)),
        bytes(round_up(payload + size_t{g.lanes} * g.tx_depth * g.slot_bytes, kPageBytes)) {}
  size_t sleeping = 0;  ///< SleepFlag
  size_t rx_read;       ///< Position per lane
  size_t tx_ring;       ///< Descriptor [lane][tx_depth]
  size_t payload;       ///< row [lane][tx_depth]
  size_t bytes;
};

/// Offsets within the switch region.
struct SwitchLayout {
  explicit constexpr SwitchLayout(const Geometry& g)
      : tx_read(kLineBytes),
        sleeping(tx_read + g.lanes * sizeof(Position)),
        rx_ring(round_up(sleeping + g.lanes * sizeof(SleepFlag), kPageBytes)),
        side(round_up(rx_ring + size_t{g.lanes} * g.rx_depth * sizeof(Descriptor), kPageBytes)),
        bytes(round_up(side + size_t{g.lanes} * g.side_rows * g.slot_bytes, kPageBytes)) {}
  size_t doorbell =
      0;            ///< SleepFlag used as a futex word: any lane increments it to wake the worker
  size_t tx_read;   ///< Position per lane
  size_t sleeping;  ///< SleepFlag per lane
  size_t rx_ring;   ///< Descriptor [lane][rx_depth]
  size_t side;      ///< row [lane][side_rows]
  size_t bytes;
};

/// Side rows of a receive ring: as many partial sums and others' payloads may wait for a worker.
constexpr uint32_t side_rows_for(uint32_t rx_depth) {
  constexpr uint32_t kMost = 256;
  return rx_depth < kMost ? rx_depth : kMost;
}

constexpr size_t result_region_bytes(const Geometry& g) {
  return round_up(size_t{g.result_rows} * g.slot_bytes, kPageBytes);
}

template <class T>
T* at(std::byte* base, size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}
template <class T>
const T* at(const std::byte* base, size_t offset) {
  return reinterpret_cast<const T*>(base + offset);
}

/// Turn number under which entry `index` of a ring of `depth` is filled. Asked for each packet, so
/// without a division, and without std::countr_zero(), which thinks of 0, too.
constexpr uint32_t turn_of(uint64_t index, uint32_t depth) {
  return static_cast<uint32_t>(index >> __builtin_ctz(depth)) + 1;
}

}  // namespace ina::io::shm
