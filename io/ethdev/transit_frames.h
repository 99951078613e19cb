// Frames for others than the switch, as a lane received them in its last burst.
//
// The buffer in which a frame came in goes out, by several ports at once if the frame is flooded.
// Drivers only read buffers that others hold too, and give back one reference each.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "io/bridge/bridge.h"
#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/frame_buffer.h"
#include "io/ethdev/lane_counters.h"

namespace ina::io {

/// A frame for another host. Without a buffer it was for the switch and is answered already, but
/// shows where its sender is, or it is a probe for loops that came back.
struct TransitFrame {
  bridge::Addresses addresses;
  std::optional<bridge::LoopProbe> probe = std::nullopt;
  rte_mbuf* buffer = nullptr;
};

/// Each buffer must go to drop(), or by hand_over...() to other ports, before the next burst.
class TransitFrames {
 public:
  explicit TransitFrames(LaneCounters& counters) : counters_(counters) {}

  std::span<const TransitFrame> all() const { return {frames_.data(), count_}; }
  void clear() { count_ = 0; }

  /// Takes the buffer, which has at least an Ethernet header.
  void add(rte_mbuf* buffer) {
    forget_receipt(buffer);
    frames_[count_++] = {.addresses = bridge::addresses_of(bytes_of(buffer)), .buffer = buffer};
  }
  /// Adds the addresses of a frame that was answered.
  void add_asker(const bridge::Addresses& asker) { frames_[count_++] = {.addresses = asker}; }
  void add_probe(const bridge::LoopProbe& probe) {
    frames_[count_++] = {.addresses = {}, .probe = probe};
  }

  void drop(const TransitFrame& frame, DropReason reason) {
    rte_pktmbuf_free(frame.buffer);
    counters_.port.drops.add(reason);
  }
  /// Counts it as forwarded to one port.
  void hand_over() { ++counters_.ethdev.forwarded; }
  /// Counts it as flooded, and lets `ports` ports send the same buffer; at least one.
  void hand_over_to_all(const TransitFrame& frame, uint16_t ports) {
    rte_mbuf_refcnt_update(frame.buffer, static_cast<int16_t>(ports - 1));
    ++counters_.ethdev.flooded;
    counters_.ethdev.flood_copies += ports;
  }

 private:
  LaneCounters& counters_;
  std::array<TransitFrame, kBurstFrames> frames_{};
  uint16_t count_ = 0;
};

}  // namespace ina::io
