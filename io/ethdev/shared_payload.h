// A buffer that stands for the payload of a result, so that the frames to all workers share it.
//
// The payload of a result is not copied if the device copies it anyway
// (Device::sends_from_outside). All frames of a result then chain one buffer that refers to the row
// of the result ring. The row may be read until the device has taken the frame, at the latest in
// the tx_flush() that ends the datapath's burst. It is not overwritten before: the row of fragment
// s is written again for s + 2W, which needs a GRAD of s + 2W from every worker. A worker sends
// that only when it has the result of s + W, and no worker has this result before a tx_flush() that
// also sent s. Other payloads (partial sums, messages from one worker to another) stay as they are
// during tx() only, so the device is made to take such a frame at once. A device that might hold a
// frame after taking it gets a copy instead, so that nothing refers to a ring whose job has gone.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ina::io {

/// Knows a payload by its place, so drop() must be called before its memory goes.
class SharedPayload {
 public:
  explicit SharedPayload(rte_mempool* pool) : pool_(pool) {
    foreign_memory_.free_cb = [](void*, void*) {};
    rte_mbuf_ext_refcnt_set(&foreign_memory_, 1);  // never freed
  }
  ~SharedPayload() { drop(); }
  SharedPayload(const SharedPayload&) = delete;
  SharedPayload& operator=(const SharedPayload&) = delete;

  /// A buffer that refers to `payload`, with a reference for the caller; nullptr: none is free.
  rte_mbuf* share(std::span<const std::byte> payload) {
    if (buffer_ == nullptr || payload.data() != payload_.data() ||
        payload.size() != payload_.size()) {
      drop();
      buffer_ = rte_pktmbuf_alloc(pool_);
      if (buffer_ == nullptr) return nullptr;
      rte_mbuf_ext_refcnt_update(&foreign_memory_, 1);
      const auto bytes = static_cast<uint16_t>(payload.size());
      // The device only reads it; DPDK has no const buffers.
      rte_pktmbuf_attach_extbuf(buffer_, const_cast<std::byte*>(payload.data()), RTE_BAD_IOVA,
                                bytes, &foreign_memory_);
      buffer_->data_len = bytes;
      buffer_->pkt_len = bytes;
      payload_ = payload;
    }
    rte_mbuf_refcnt_update(buffer_, 1);
    return buffer_;
  }

  /// Frames that share the buffer still may be sent.
  void drop() {
    rte_pktmbuf_free(buffer_);
    buffer_ = nullptr;
    payload_ = {};
  }

 private:
  rte_mempool* pool_;
  rte_mbuf* buffer_ = nullptr;
  std::span<const std::byte> payload_;
  rte_mbuf_ext_shared_info foreign_memory_{};  ///< describes payloads that no buffer owns
};

}  // namespace ina::io
