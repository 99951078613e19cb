// Frames that a lane has not given to the device yet, and their fate.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/frame_ring.h"
#include "io/ethdev/lane_counters.h"

namespace ina::io {

/// Has room for a burst. Untaken frames are lost, as on any full link: the worker asks again.
class SendQueue {
 public:
  enum class Kind : uint8_t { kMessage, kAnswer, kTransit };

  explicit SendQueue(LaneCounters& counters) : counters_(counters) {}
  ~SendQueue() {
    for (uint16_t i = 0; i < count_; ++i) rte_pktmbuf_free(frames_[i]);
  }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == frames_.size(); }

  /// There is room. `bytes`: of payload in a message, all of them otherwise.
  void add(rte_mbuf* frame, Kind kind, size_t bytes) {
    frames_[count_] = frame;
    kinds_[count_] = kind;
    bytes_[count_] = static_cast<uint32_t>(bytes);
    ++count_;
  }

  /// Gives all to the queue pair of a device, and counts what that takes.
  template <class Device>
  void send(Device& device, uint16_t queue_pair) {
    uint16_t sent = 0;
    while (sent < count_) {
      const uint16_t now =
          device.tx(frames_.data() + sent, static_cast<uint16_t>(count_ - sent), queue_pair);
      if (now == 0) break;
      sent = static_cast<uint16_t>(sent + now);
    }
    for (uint16_t i = 0; i < sent; ++i) count_sent(kinds_[i], bytes_[i]);
    lose_from(sent);
  }

  /// There is no device.
  void lose() { lose_from(0); }

  /// Gives all to another lane, which sends them, and counts them as sent.
  void pass_to(FrameRing& carrier) {
    const uint16_t taken = carrier.push(frames_.data(), count_);
    counters_.ethdev.tx_handed_over += taken;
    lose_from(taken);
  }

  /// Takes what another lane gave, into an empty queue; whether there was something. All are
  /// messages (lane 0 alone has others, and a queue pair), with so many bytes before the payload.
  bool take_from(FrameRing& carried, uint32_t header_bytes) {
    count_ = carried.pop(frames_.data(), static_cast<uint16_t>(frames_.size()));
    for (uint16_t i = 0; i < count_; ++i) {
      kinds_[i] = Kind::kMessage;
      bytes_[i] = frames_[i]->pkt_len - header_bytes;
    }
    return count_ != 0;
  }

 private:
  void count_sent(Kind kind, uint32_t bytes) {
    if (kind == Kind::kMessage) {
      ++counters_.port.tx_packets;
      counters_.port.tx_bytes += bytes;
    } else if (kind == Kind::kTransit) {
      ++counters_.ethdev.bridged_sent;
      counters_.ethdev.bridged_sent_bytes += bytes;
    }
  }

  void lose_from(uint16_t first) {
    for (uint16_t i = first; i < count_; ++i) {
      rte_pktmbuf_free(frames_[i]);
      counters_.port.drops.add(DropReason::kTxFull);
      if (kinds_[i] == Kind::kTransit) ++counters_.ethdev.bridged_lost;
    }
    count_ = 0;
  }

  LaneCounters& counters_;
  std::array<rte_mbuf*, kBurstFrames> frames_{};
  std::array<Kind, kBurstFrames> kinds_{};
  std::array<uint32_t, kBurstFrames> bytes_{};
  uint16_t count_ = 0;
};

}  // namespace ina::io
