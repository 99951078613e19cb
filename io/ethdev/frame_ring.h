// A ring of frames from one lane to another.
#pragma once

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace ina::io {

/// One thread puts frames in, one takes them out; neither ever waits. Leftover frames are freed.
class FrameRing {
 public:
  static constexpr unsigned kFrames = 512;

  FrameRing() {
    const auto bytes = static_cast<size_t>(rte_ring_get_memsize(2 * kFrames));
    ring_.reset(static_cast<rte_ring*>(std::aligned_alloc(RTE_CACHE_LINE_SIZE, bytes)));
    constexpr unsigned kFlags = RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ;
    if (!ring_ || rte_ring_init(ring_.get(), "ina_lanes", kFrames, kFlags) != 0)
      throw std::bad_alloc();
  }
  ~FrameRing() {
    for (rte_mbuf* frame = nullptr; pop(&frame, 1) == 1;) rte_pktmbuf_free(frame);
  }
  FrameRing(const FrameRing&) = delete;
  FrameRing& operator=(const FrameRing&) = delete;

  /// Returns how many there was room for, the first ones; the others still belong to the caller.
  uint16_t push(rte_mbuf** frames, uint16_t count) {
    return static_cast<uint16_t>(
        rte_ring_sp_enqueue_burst(ring_.get(), reinterpret_cast<void**>(frames), count, nullptr));
  }
  uint16_t pop(rte_mbuf** frames, uint16_t room) {
    return static_cast<uint16_t>(
        rte_ring_sc_dequeue_burst(ring_.get(), reinterpret_cast<void**>(frames), room, nullptr));
  }

 private:
  struct Free {
    void operator()(rte_ring* ring) const { std::free(ring); }
  };
  std::unique_ptr<rte_ring, Free> ring_;
};

}  // namespace ina::io
