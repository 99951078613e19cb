// Builds frames for tests: valid ones by the codec, then damaged on purpose.
//
//   PacketBuilder().seq(5).elements(256).build()                  a valid GRAD
//   PacketBuilder().set_byte(kIpTtlAt, 1).build()                 ... with a wrong IPv4 checksum
//   PacketBuilder().set_byte(kInaAt + 2, 9).fix_crc().build()     ... of version 9, CRC right
//
// Edits apply to the encoded frame in the order of the calls; their offsets are those of a frame
// without IPv4 options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/frame.h"

namespace ina::testing {

using Bytes = std::vector<std::byte>;

inline constexpr size_t kEthertypeAt = 12;
inline constexpr size_t kIpAt = wire::kEthernetBytes;
inline constexpr size_t kIpTotalLengthAt = kIpAt + 2;
inline constexpr size_t kIpFragmentAt = kIpAt + 6;
inline constexpr size_t kIpTtlAt = kIpAt + 8;
inline constexpr size_t kIpProtocolAt = kIpAt + 9;
inline constexpr size_t kIpChecksumAt = kIpAt + 10;
inline constexpr size_t kUdpAt = kIpAt + wire::kIpv4Bytes;
inline constexpr size_t kUdpDestinationAt = kUdpAt + 2;
inline constexpr size_t kUdpLengthAt = kUdpAt + 4;
inline constexpr size_t kUdpChecksumAt = kUdpAt + 6;
inline constexpr size_t kInaAt = kUdpAt + wire::kUdpBytes;
inline constexpr size_t kCrcAt = kInaAt + 60;
inline constexpr size_t kPayloadAt = kInaAt + wire::kInaHeaderBytes;

/// Bytes from hexadecimal text; blanks and line ends are skipped.
inline Bytes from_hex(std::string_view text) {
  Bytes bytes;
  int high = -1;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<std::byte>(high * 16 + digit));
      high = -1;
    }
  }
  return bytes;
}

template <class T>
Bytes bytes_of(std::span<const T> values) {
  const auto raw = std::as_bytes(values);
  return Bytes(raw.begin(), raw.end());
}

inline uint16_t get_be16(const Bytes& bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<unsigned>(bytes.at(at)) << 8 |
                               static_cast<unsigned>(bytes.at(at + 1)));
}

inline void put_be16(Bytes& bytes, size_t at, uint16_t value) {
  bytes.at(at) = static_cast<std::byte>(value >> 8);
  bytes.at(at + 1) = static_cast<std::byte>(value);
}

/// Makes the IPv4 checksum right again, for any header length that the frame states (if it has that
/// many bytes).
inline void fix_ip_checksum(Bytes& frame) {
  if (frame.size() < kUdpAt) return;
  const size_t header_bytes = size_t{4} * (static_cast<unsigned>(frame[kIpAt]) & 0x0f);
  if (header_bytes < wire::kIpv4Bytes || frame.size() < kIpAt + header_bytes) return;
  put_be16(frame, kIpChecksumAt, 0);
  uint32_t sum = 0;
  for (size_t at = 0; at < header_bytes; at += 2) sum += get_be16(frame, kIpAt + at);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  put_be16(frame, kIpChecksumAt, static_cast<uint16_t>(~sum));
}

/// Makes the CRC32C right again, for a frame without IPv4 options, up to where its UDP length ends
/// (if it has that many bytes).
inline void fix_crc(Bytes& frame) {
  if (frame.size() < kPayloadAt) return;
  const size_t end = kUdpAt + get_be16(frame, kUdpLengthAt);
  if (end < kPayloadAt || end > frame.size()) return;
  const std::span<const std::byte> all(frame);
  const uint32_t crc = wire::frame_crc(all.subspan(kInaAt).first<wire::kInaHeaderBytes>(),
                                       all.subspan(kPayloadAt, end - kPayloadAt));
  for (size_t i = 0; i < 4; ++i) frame[kCrcAt + i] = static_cast<std::byte>(crc >> 8 * i);
}

class PacketBuilder {
 public:
  /// A GRAD of rank 1: 8 float32 of an operation of 8, sum, from a worker to lane 0 of a switch.
  PacketBuilder() {
    envelope_.source = {{2, 0, 0, 0, 0, 1}, 0x0a000001, 40001};
    envelope_.destination = {{2, 0, 0, 0, 0, 0x0a}, 0x0a00000a, wire::kDefaultUdpPort};
    envelope_.job = JobId{7};
    envelope_.job_key = 0x1122334455667788;
    message_.type = wire::Type::kGrad;
    message_.epoch = 1;
    message_.dtype = DType::kFloat32;
    message_.op = Op::kSum;
    message_.collective = Collective::kAllReduce;
    message_.elements = 8;
    message_.operation_elements = 8;
    rank(Rank{1});
  }

  // The contents of the frame.
  PacketBuilder& envelope(const wire::Envelope& envelope) { return set(envelope_, envelope); }
  PacketBuilder& message(const wire::Message& message) { return set(message_, message); }
  PacketBuilder& from(const wire::Address& source) { return set(envelope_.source, source); }
  PacketBuilder& to(const wire::Address& to) { return set(envelope_.destination, to); }
  PacketBuilder& job(JobId job, uint64_t key) {
    envelope_.job_key = key;
    return set(envelope_.job, job);
  }
  PacketBuilder& type(wire::Type type) { return set(message_.type, type); }
  PacketBuilder& dtype(DType dtype) { return set(message_.dtype, dtype); }
  PacketBuilder& op(Op op) { return set(message_.op, op); }
  PacketBuilder& collective(Collective collective) { return set(message_.collective, collective); }
  PacketBuilder& epoch(uint32_t epoch) { return set(message_.epoch, epoch); }
  PacketBuilder& seq(uint32_t seq) { return set(message_.seq, seq); }
  PacketBuilder& bitmap(WorkerSet bitmap) { return set(message_.bitmap, bitmap); }
  PacketBuilder& flags(uint16_t flags) { return set(message_.flags, flags); }
  PacketBuilder& origin(wire::Origin origin) {
    message_.origin = origin;
    return *this;
  }
  PacketBuilder& phase(wire::Phase phase) {
    message_.phase = phase;
    return *this;
  }
  PacketBuilder& receiver(uint16_t receiver) {
    message_.receiver = receiver;
    return *this;
  }
  /// With the rank's own bit, if it has one.
  PacketBuilder& rank(Rank rank) {
    message_.bitmap = value(rank) < kMaxWorkers ? WorkerSet::of(rank) : WorkerSet();
    message_.rank = rank;
    return *this;
  }
  /// Sets the elements of the fragment, which becomes the whole operation.
  PacketBuilder& elements(uint16_t elements) {
    message_.operation_elements = elements;
    return set(message_.elements, elements);
  }
  PacketBuilder& operation(uint32_t number, uint64_t elements) {
    message_.operation_elements = elements;
    return set(message_.operation, number);
  }
  PacketBuilder& lane(uint8_t lane) {
    envelope_.destination.udp_port = static_cast<uint16_t>(wire::kDefaultUdpPort + lane);
    message_.lane = lane;
    return *this;
  }
  /// Without it, a payload of the length that the message implies, with a pattern in it.
  PacketBuilder& payload(Bytes payload) {
    own_payload_ = true;
    return set(payload_, std::move(payload));
  }
  template <class T>
  PacketBuilder& values(const std::vector<T>& values) {
    elements(static_cast<uint16_t>(values.size()));
    return payload(bytes_of(std::span<const T>(values)));
  }

  // Edits of the encoded frame.
  PacketBuilder& edit(std::function<void(Bytes&)> edit) {
    edits_.push_back(std::move(edit));
    return *this;
  }
  PacketBuilder& set_byte(size_t at, uint8_t value) {
    return edit([=](Bytes& frame) { frame.at(at) = std::byte{value}; });
  }
  PacketBuilder& set_be16(size_t at, uint16_t value) {
    return edit([=](Bytes& frame) { put_be16(frame, at, value); });
  }
  PacketBuilder& fix_ip_checksum() { return edit(testing::fix_ip_checksum); }
  PacketBuilder& fix_crc() { return edit(testing::fix_crc); }
  /// `words` 32-bit words of IPv4 no-operation options, 1..10; lengths and checksum made right.
  PacketBuilder& ip_options(size_t words) {
    return edit([=](Bytes& frame) {
      frame.insert(frame.begin() + kUdpAt, 4 * words, std::byte{1});
      frame.at(kIpAt) = static_cast<std::byte>(0x45 + words);
      put_be16(frame, kIpTotalLengthAt,
               static_cast<uint16_t>(get_be16(frame, kIpTotalLengthAt) + 4 * words));
      testing::fix_ip_checksum(frame);
    });
  }
  /// An 802.1Q tag.
  PacketBuilder& vlan(uint16_t id) {
    return edit([=](Bytes& frame) {
      frame.insert(frame.begin() + kEthertypeAt, 4, std::byte{});
      put_be16(frame, kEthertypeAt, 0x8100);
      put_be16(frame, kEthertypeAt + 2, id);
    });
  }
  PacketBuilder& padding(size_t bytes, std::byte value = {}) {
    return edit([=](Bytes& frame) { frame.insert(frame.end(), bytes, value); });
  }
  PacketBuilder& truncate(size_t bytes) {
    return edit([=](Bytes& frame) { frame.resize(bytes); });
  }

  Bytes build() const {
    Bytes payload = payload_;
    if (!own_payload_) {
      payload.resize(wire::payload_bytes(message_));
      for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7 + 1);
    }
    Bytes frame(wire::kFrameHeaderBytes);
    wire::encode_headers(envelope_, message_, payload, frame);
    frame.insert(frame.end(), payload.begin(), payload.end());
    for (const auto& edit : edits_) edit(frame);
    return frame;
  }

  const wire::Envelope& envelope() const { return envelope_; }
  const wire::Message& message() const { return message_; }

 private:
  template <class T>
  PacketBuilder& set(T& field, T value) {
    field = std::move(value);
    return *this;
  }

  wire::Envelope envelope_;
  wire::Message message_;
  Bytes payload_;
  bool own_payload_ = false;
  std::vector<std::function<void(Bytes&)>> edits_;
};

}  // namespace ina::testing
