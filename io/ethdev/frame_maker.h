// Messages to workers as frames: headers, tag and checksums, and the payload as a copy or shared.
#pragma once

#include <rte_mbuf.h>

#include <cstring>
#include <optional>

#include "io/ethdev/device.h"
#include "io/ethdev/endpoint_table.h"
#include "io/ethdev/frame_buffer.h"
#include "io/ethdev/last_hash.h"
#include "io/ethdev/shared_payload.h"
#include "wire/frame.h"

namespace ina::io {

/// The switch's own results do; a fallback's lie in its memory.
inline bool lies_in_result_ring(const wire::Message& message) {
  return message.type == wire::Type::kResult && message.origin == wire::Origin::kSwitch;
}

/// Makes the frames of one lane, in buffers of the device's pool.
class FrameMaker {
 public:
  /// `source`: of all frames. `vlan`: that they are sent in; 0: without a tag.
  FrameMaker(const Device& device, const wire::Address& source, uint16_t vlan)
      : device_(device), source_(source), vlan_(vlan), shared_(device.tx_pool()) {}

  /// Before the payload of a message, in a frame as it is sent.
  uint32_t header_bytes() const {
    return wire::kFrameHeaderBytes + (vlan_ != 0 ? kVlanTagBytes : 0);
  }

  /// A frame to `to` with the job and the keys of `worker`. nullptr: no buffer is free. It may
  /// refer to the payload (nb_segs > 1), see shared_payload.h. `last_hash`: of this thread's ports.
  rte_mbuf* make(const Endpoint& worker, const wire::Address& to, const wire::Message& message,
                 std::span<const std::byte> payload, LastHash& last_hash) {
    rte_mbuf* const frame = rte_pktmbuf_alloc(device_.tx_pool());
    if (frame == nullptr) return nullptr;
    const wire::Envelope envelope{.source = source_,
                                  .destination = to,
                                  .job = worker.job_id,
                                  .job_key = worker.job_key,
                                  .tag = 0};
    auto* const headers =
        reinterpret_cast<std::byte*>(rte_pktmbuf_append(frame, wire::kFrameHeaderBytes));
    std::optional<wire::Seal> seal;
    if (worker.tag_keys) seal = seal_of(*worker.tag_keys, message, payload, last_hash);
    // The checksum is made anew for each worker, over a payload that is in the cache by then. Its
    // part over the payload is the same for all of them and could be combined instead.
    wire::encode_headers(envelope, message, payload, {headers, wire::kFrameHeaderBytes},
                         seal ? &*seal : nullptr);
    if (device_.tx_checksums() != 0) leave_checksums_to_device(frame, device_.tx_checksums());
    if (!payload.empty() && !append_payload(frame, payload)) {
      rte_pktmbuf_free(frame);
      return nullptr;
    }
    put_tag(frame, vlan_);
    return frame;
  }

  /// Before the memory of payloads goes.
  void drop_payload() { shared_.drop(); }

 private:
  static wire::Seal seal_of(const wire::TagKeys& keys, const wire::Message& message,
                            std::span<const std::byte> payload, LastHash& last_hash) {
    return {keys.frame, lies_in_result_ring(message) ? last_hash.of(keys.payload, payload)
                                                     : wire::siphash(keys.payload, payload)};
  }

  bool append_payload(rte_mbuf* head, std::span<const std::byte> payload) {
    if (!device_.sends_from_outside()) {
      if (payload.size() > rte_pktmbuf_tailroom(head)) return false;
      std::memcpy(rte_pktmbuf_append(head, static_cast<uint16_t>(payload.size())), payload.data(),
                  payload.size());
      return true;
    }
    rte_mbuf* const tail = shared_.share(payload);
    if (tail == nullptr) return false;
    head->next = tail;
    head->nb_segs = 2;
    head->pkt_len += tail->data_len;
    return true;
  }

  const Device& device_;
  wire::Address source_;
  uint16_t vlan_;
  SharedPayload shared_;
};

}  // namespace ina::io
