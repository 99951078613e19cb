// Ethernet / IPv4 / UDP frames that carry INA messages. docs/protocol.md is the specification.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

#include "wire/message.h"

namespace ina::wire {

inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr uint16_t kMagic = 0x4e49;         ///< bytes 'I' 'N' on the wire (little-endian)
inline constexpr uint16_t kDefaultUdpPort = 7584;  ///< lane n of a switch listens on this + n

inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kIpv4Bytes = 20;
inline constexpr size_t kUdpBytes = 8;
inline constexpr size_t kInaHeaderBytes = 72;
inline constexpr size_t kFrameHeaderBytes =
    kEthernetBytes + kIpv4Bytes + kUdpBytes + kInaHeaderBytes;
/// Ethernet's minimum without FCS; shorter frames are padded with zeros.
inline constexpr size_t kMinFrameBytes = 60;

using MacAddress = std::array<uint8_t, 6>;

/// One end of a flow. Addresses and ports in host byte order, MAC as it is on the wire.
struct Address {
  MacAddress mac{};
  uint32_t ip = 0;
  uint16_t udp_port = 0;
  friend bool operator==(const Address&, const Address&) = default;
};

/// What a frame says about whom it belongs to; a receiver checks it against its bindings.
struct Envelope {
  Address source;
  Address destination;
  JobId job{};
  uint64_t job_key = 0;
  uint64_t tag = 0;  ///< room for an authentication tag; 0 when unused
};

struct Frame {
  Envelope envelope;
  Message message;
  const std::byte* payload = nullptr;  ///< points into the parsed bytes
  uint32_t payload_bytes = 0;
};

/// Writes the kFrameHeaderBytes of headers for a payload into `out` and returns their number.
/// The CRC32C covers the INA header and the payload, so the payload must be complete; it may lie
/// anywhere (it is not copied).
size_t encode_headers(const Envelope& envelope, const Message& message,
                      std::span<const std::byte> payload, std::span<std::byte> out);

/// Parses one whole frame (without FCS; trailing padding allowed). Checks lengths, ethertype,
/// IPv4 header and checksum, UDP length, magic, version and CRC32C, but not the message itself:
/// see validate(). A UDP checksum of any value is accepted: the CRC32C is stronger. The UDP
/// destination port must lie in [udp_port, udp_port + lanes); `lanes` 0 accepts any.
tl::expected<Frame, DropReason> parse_frame(std::span<const std::byte> bytes, uint16_t udp_port,
                                            uint16_t lanes);

/// CRC32C (Castagnoli) of header and payload as they stand, the CRC field itself counted as 0.
uint32_t frame_crc(std::span<const std::byte> ina_header, std::span<const std::byte> payload);

}  // namespace ina::wire
