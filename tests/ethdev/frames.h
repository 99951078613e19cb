// Frames for the tests of ethdev ports, and the addresses in them.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>

#include "tests/ethdev/capture.h"
#include "wire/frame.h"

namespace ina::io {

/// The pcap driver gives its device this MAC address.
inline constexpr wire::MacAddress kPcapMac = {0x02, 0x70, 0x63, 0x61, 0x70, 0x00};
inline constexpr wire::Address kSwitch = {kPcapMac, 0x0a000001, wire::kDefaultUdpPort};
inline constexpr wire::Address kWorkers[] = {
    {{0x02, 0, 0, 0, 0, 1}, 0x0a000011, 9000},
    {{0x02, 0, 0, 0, 0, 2}, 0x0a000012, 9000},
    {{0x02, 0, 0, 0, 0, 3}, 0x0a000013, 9001},
};

inline constexpr JobId kJob{7};
inline constexpr uint64_t kJobKey = 0x1122334455667788;

inline wire::Envelope envelope(const wire::Address& from, const wire::Address& to) {
  return {.source = from, .destination = to, .job = kJob, .job_key = kJobKey, .tag = 0};
}

/// An int32 sum fragment.
inline wire::Message message(wire::Type type, uint32_t seq, size_t elements) {
  wire::Message m;
  m.type = type;
  m.dtype = DType::kInt32;
  m.op = Op::kSum;
  m.collective = Collective::kAllReduce;
  m.seq = seq;
  m.elements = static_cast<uint16_t>(elements);
  m.operation_elements = 1 << 20;
  m.epoch = 1;
  return m;
}

inline Bytes encode(const wire::Envelope& e, const wire::Message& m,
                    std::span<const std::byte> payload) {
  Bytes frame(wire::kFrameHeaderBytes + payload.size());
  std::ranges::copy(payload, frame.begin() + wire::kFrameHeaderBytes);
  wire::encode_headers(e, m, payload, {frame.data(), wire::kFrameHeaderBytes});
  return frame;
}

inline uint16_t internet_checksum(std::span<const std::byte> bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    sum += std::to_integer<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

inline void store(Bytes& frame, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    frame[at + i] = static_cast<std::byte>(value >> 8 * (bytes - 1 - i) & 0xff);
}

inline void store_mac(Bytes& frame, size_t at, const wire::MacAddress& mac) {
  std::memcpy(frame.data() + at, mac.data(), mac.size());
}

/// Makes the IPv4 header's checksum right again after a change.
inline void fix_ip_checksum(Bytes& frame) {
  store(frame, 24, 0, 2);
  store(frame, 24, internet_checksum({frame.data() + 14, 20}), 2);
}

/// With an 802.1Q tag.
inline Bytes tagged(Bytes frame, uint16_t vlan, uint16_t priority = 0) {
  frame.insert(frame.begin() + 12, 4, std::byte{0});
  store(frame, 12, 0x8100, 2);
  store(frame, 14, priority << 13 | vlan, 2);
  return frame;
}

inline Bytes arp(const wire::Address& from, const wire::Address& to, uint16_t operation) {
  Bytes frame(42);
  store_mac(frame, 0, to.mac);
  store_mac(frame, 6, from.mac);
  store(frame, 12, 0x0806'0001'0800'0604, 8);
  store(frame, 20, operation, 2);
  store_mac(frame, 22, from.mac);
  store(frame, 28, from.ip, 4);
  store_mac(frame, 32, operation == 1 ? wire::MacAddress{} : to.mac);
  store(frame, 38, to.ip, 4);
  return frame;
}

inline Bytes arp_request(const wire::Address& from, uint32_t ip) {
  return arp(from, {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ip, 0}, 1);
}

inline Bytes arp_reply(const wire::Address& from, const wire::Address& to) {
  return arp(from, to, 2);
}

inline Bytes echo(const wire::Address& from, const wire::Address& to, uint8_t type, uint16_t id) {
  Bytes frame(14 + 20 + 8 + 16);
  store_mac(frame, 0, to.mac);
  store_mac(frame, 6, from.mac);
  store(frame, 12, 0x0800'4500, 4);
  store(frame, 16, frame.size() - 14, 2);
  store(frame, 22, 64, 1);
  store(frame, 23, 1, 1);
  store(frame, 26, from.ip, 4);
  store(frame, 30, to.ip, 4);
  fix_ip_checksum(frame);
  store(frame, 34, type, 1);
  store(frame, 38, id, 2);
  for (size_t i = 42; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i);
  store(frame, 36, internet_checksum({frame.data() + 34, frame.size() - 34}), 2);
  return frame;
}

}  // namespace ina::io
