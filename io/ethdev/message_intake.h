// Messages of the workers that are bound at a port, out of frames: whose a frame is, whether it is
// whole, whether its tag and its header are right. Pure: without DPDK's headers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "io/ethdev/buffer_budget.h"
#include "io/ethdev/drop_witness.h"
#include "io/ethdev/endpoint_table.h"
#include "io/port.h"
#include "wire/frame.h"

namespace ina::io {

/// The intake of one lane. It counts the frames that it drops by itself.
class MessageIntake {
 public:
  struct Rules {
    uint32_t ip = 0;        ///< that messages are sent to, host byte order
    uint16_t udp_port = 0;  ///< the first
    uint16_t udp_ports = 1;
    uint32_t slot_bytes = 0;
    uint16_t max_endpoints = 0;
  };

  MessageIntake(const Rules& rules, PortCounters& counters)
      : rules_(rules), counters_(counters), endpoints_(rules.max_endpoints) {}
  MessageIntake(const MessageIntake&) = delete;
  MessageIntake& operator=(const MessageIntake&) = delete;

  EndpointTable& endpoints() { return endpoints_; }
  const EndpointTable& endpoints() const { return endpoints_; }
  DropWitness& witness() { return witness_; }
  const DropWitness& witness() const { return witness_; }

  enum class Taken : uint8_t {
    kFilled,   ///< `packet` is a message
    kSettled,  ///< it carries a tag, and waits for take_tagged(); or it was dropped
    kRefused   ///< it is no message, for a reason: the caller's to drop, or to answer
  };
  /// Reads a frame without its VLAN tag, which must stay as it is while the packet is used. At most
  /// kBurstFrames between two calls of take_tagged(). `wrong_udp_checksum`: says the device.
  Taken take(std::span<const std::byte> frame, bool wrong_udp_checksum, RxPacket& packet,
             DropReason& reason) {
    Tagged& parsed = tagged_[tagged_count_];
    if (!parse(frame, parsed.frame, parsed.endpoint, reason)) return Taken::kRefused;
    if (wrong_udp_checksum) [[unlikely]] {
      reason = DropReason::kUdpChecksum;
      return Taken::kRefused;
    }
    if (!parsed.endpoint->tag_keys)
      return accept(parsed.frame, *parsed.endpoint, packet) ? Taken::kFilled : Taken::kSettled;
    ++tagged_count_;
    return Taken::kSettled;
  }

  bool has_tagged() const { return tagged_count_ != 0; }
  /// Fills `burst` with those that carry tags, once all frames of a burst were read; returns how
  /// many. Payloads of one length after another are hashed together.
  size_t take_tagged(std::span<RxPacket> burst) {
    std::array<uint64_t, kBurstFrames> hashes;
    hash_payloads(hashes);
    size_t filled = 0;
    for (size_t i = 0; i < tagged_count_; ++i) {
      const auto& [frame, endpoint] = tagged_[i];
      if (!wire::tag_matches(frame, {endpoint->tag_keys->frame, hashes[i]})) {
        counters_.drops.add(DropReason::kBadTag);
        witness_.note(frame.envelope, endpoint->rank, DropReason::kBadTag);
      } else if (accept(frame, *endpoint, burst[filled]))
        ++filled;
    }
    tagged_count_ = 0;
    return filled;
  }

  /// A worker may want to know why it is not heard. To any UDP port: a wrong one may be the reason.
  void note_drop(std::span<const std::byte> frame, DropReason reason) {
    if (const auto parsed = wire::parse_unchecked(frame, 0, 0))
      witness_.note(parsed->envelope, parsed->message.rank, reason);
  }

 private:
  /// A frame of the burst at hand whose tag has not been looked at.
  struct Tagged {
    wire::Frame frame;
    const Endpoint* endpoint = nullptr;
  };

  /// True: an INA frame of the worker at `endpoint`, as far as can be told without tags.
  bool parse(std::span<const std::byte> frame, wire::Frame& parsed, const Endpoint*& endpoint,
             DropReason& reason) const {
    const auto drop = [&reason](DropReason why) {
      reason = why;
      return false;
    };
    const auto unchecked = wire::parse_unchecked(frame, rules_.udp_port, rules_.udp_ports);
    if (!unchecked) return drop(unchecked.error());
    parsed = *unchecked;
    const wire::Envelope& envelope = parsed.envelope;
    if (envelope.destination.ip != rules_.ip) return drop(DropReason::kNotIna);
    endpoint = endpoints_.find(envelope.source, envelope.job);
    if (endpoint == nullptr) return drop(DropReason::kUnknownSource);
    if (envelope.job_key != endpoint->job_key) return drop(DropReason::kBadJob);
    // After the checks of the sender: this one reads the whole frame, which a flood of strangers'
    // frames is not worth.
    if (!wire::crc_matches(parsed)) return drop(DropReason::kCrc);
    return true;
  }

  /// The frame is its worker's.
  bool accept(const wire::Frame& frame, const Endpoint& endpoint, RxPacket& packet) {
    if (const auto invalid =
            endpoint.header.validate(frame.message, frame.payload_bytes, rules_.slot_bytes)) {
      counters_.drops.add(*invalid);
      witness_.note(frame.envelope, endpoint.rank, *invalid);
      return false;
    }
    if (!endpoint.heard) [[unlikely]]
      endpoint.heard = true;
    packet = {.message = frame.message,
              .payload = frame.payload,
              .payload_bytes = frame.payload_bytes,
              .job = endpoint.job,
              .rank = endpoint.rank};
    return true;
  }

  void hash_payloads(std::array<uint64_t, kBurstFrames>& hashes) const {
    std::array<wire::SipInput, kBurstFrames> payloads;
    for (size_t first = 0; first < tagged_count_;) {
      const uint32_t bytes = tagged_[first].frame.payload_bytes;
      size_t count = 0;
      for (; first + count < tagged_count_ && tagged_[first + count].frame.payload_bytes == bytes;
           ++count) {
        const Tagged& tagged = tagged_[first + count];
        payloads[count] = {tagged.endpoint->tag_keys->payload, tagged.frame.payload};
      }
      wire::siphash_many({payloads.data(), count}, bytes, {&hashes[first], count});
      first += count;
    }
  }

  Rules rules_;
  PortCounters& counters_;
  EndpointTable endpoints_;
  DropWitness witness_;
  std::array<Tagged, kBurstFrames> tagged_{};
  uint16_t tagged_count_ = 0;
};

}  // namespace ina::io
