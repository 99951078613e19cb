// One lane's ends of the rings between the lanes of a port. They go to lanes whose frames it
// received, from lanes that received its frames, and from a lane without a queue pair to the one
// that sends for it.
//
// A frame counts as received in the lane that takes it from the device, and has its fate in the
// lane that it is handed to, or here if there is no room in the ring. That is said of the sum over
// lanes; in between, frames that lie in rings have no fate yet.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/frame_buffer.h"
#include "io/ethdev/frame_ring.h"
#include "io/ethdev/lane_counters.h"
#include "io/ethdev/steering.h"
#include "io/ethdev/switch_addresses.h"

namespace ina::io {

/// The lane that a received frame is for, with its tag or after the device has taken that off.
inline uint16_t lane_of(const rte_mbuf* frame, const Steering& steering) {
  const std::span<const std::byte> bytes = bytes_of(frame);
  if (steering.vlan == 0) return lane_of(bytes, steering);
  const bool stripped = tag_is_stripped(frame);
  const int vlan = stripped ? stripped_vlan(frame) : bridge::vlan_of(bytes);
  if (vlan != steering.vlan) return 0;
  return lane_of(stripped ? bytes : behind_tag(bytes), steering);
}

/// Used by its lane alone.
class LaneRings {
 public:
  LaneRings(uint16_t lane, LaneCounters& counters) : counters_(counters), lane_(lane) {}
  LaneRings(const LaneRings&) = delete;
  LaneRings& operator=(const LaneRings&) = delete;

  using Rings = std::vector<std::unique_ptr<FrameRing>>;
  /// Makes the rings between the lanes of a port, of which the first `queues` have a queue pair.
  /// The rings must outlive their use by any lane.
  static Rings connect(std::span<LaneRings* const> lanes, uint16_t queues);

  /// From the own queue pair and from other lanes, each first in turn. `own_queue(frames, room,
  /// full)`: takes from the queue pair what is for this lane. `full`: set if there may be more.
  template <class OwnQueue>
  uint16_t receive(rte_mbuf** frames, uint16_t room, bool& full, OwnQueue own_queue) {
    const size_t rings = received_for_us_.size();
    const size_t sources = rings + (outboxes_.empty() ? 0 : 1);
    if (++next_source_ >= sources) next_source_ = 0;
    uint16_t count = 0;
    for (size_t i = 0, source = next_source_; i < sources && count < room; ++i) {
      rte_mbuf** const to = frames + count;
      const auto left = static_cast<uint16_t>(room - count);
      count += source < rings ? received_for_us_[source]->pop(to, left) : own_queue(to, left, full);
      if (++source == sources) source = 0;
    }
    full |= count == room;
    return count;
  }

  /// Keeps what is for this lane, and hands the rest over. Returns how many were kept.
  uint16_t sort(std::span<rte_mbuf* const> received, rte_mbuf** kept, const Steering& steering) {
    uint16_t count = 0;
    for (rte_mbuf* const frame : received) {
      const uint16_t lane = lane_of(frame, steering);
      Outbox& outbox = outboxes_[lane];
      if (lane == lane_)
        kept[count++] = frame;
      else
        outbox.frames[outbox.count++] = frame;
    }
    if (count != received.size())
      for (Outbox& outbox : outboxes_)
        if (outbox.count != 0) hand_over(outbox);
    return count;
  }

  /// Drops what lies in the rings to this lane.
  void drop_all() {
    std::array<rte_mbuf*, kBurstFrames> frames;
    const auto drop = [&frames](FrameRing& ring) {
      for (uint16_t count = 1; count != 0;) {
        count = ring.pop(frames.data(), static_cast<uint16_t>(frames.size()));
        rte_pktmbuf_free_bulk(frames.data(), count);
      }
    };
    for (FrameRing* const ring : received_for_us_) drop(*ring);
    for (FrameRing* const ring : carried_) drop(*ring);
  }

  /// To the lane that sends for this one; nullptr: this one has a queue pair.
  FrameRing* carrier() const { return carrier_; }
  /// From lanes for which this one sends.
  std::span<FrameRing* const> carried() const { return carried_; }

  /// Frames were passed on for another lane.
  void note_moved() { moved_ = true; }
  /// True if frames were passed on for another lane since the last call.
  bool take_moved() { return std::exchange(moved_, false); }

 private:
  /// Frames that go to another lane at the end of the burst.
  struct Outbox {
    FrameRing* ring = nullptr;
    uint16_t count = 0;
    std::array<rte_mbuf*, kBurstFrames> frames{};
  };

  void hand_over(Outbox& outbox) {
    const uint16_t taken = outbox.ring->push(outbox.frames.data(), outbox.count);
    counters_.ethdev.handed_over += taken;
    for (uint16_t i = taken; i < outbox.count; ++i) {
      rte_pktmbuf_free(outbox.frames[i]);
      counters_.port.drops.add(DropReason::kHandOverFull);
    }
    outbox.count = 0;
    moved_ = true;
  }

  LaneCounters& counters_;
  uint16_t lane_;
  std::vector<FrameRing*> received_for_us_;  ///< by lanes that have a queue pair
  std::vector<Outbox> outboxes_;             ///< by lane; none without a queue pair
  size_t next_source_ = 0;                   ///< among the own queue and received_for_us_
  FrameRing* carrier_ = nullptr;
  std::vector<FrameRing*> carried_;
  bool moved_ = false;
};

inline LaneRings::Rings LaneRings::connect(std::span<LaneRings* const> lanes, uint16_t queues) {
  Rings rings;
  const auto make_ring = [&] { return rings.emplace_back(std::make_unique<FrameRing>()).get(); };
  for (size_t from = 0; from < lanes.size(); ++from) {
    if (from >= queues) {
      FrameRing* const ring = lanes[from]->carrier_ = make_ring();
      lanes[from % queues]->carried_.push_back(ring);
      continue;
    }
    lanes[from]->outboxes_.resize(lanes.size());
    for (size_t to = 0; to < lanes.size(); ++to) {
      if (to == from) continue;
      FrameRing* const ring = lanes[from]->outboxes_[to].ring = make_ring();
      lanes[to]->received_for_us_.push_back(ring);
    }
  }
  return rings;
}

}  // namespace ina::io
