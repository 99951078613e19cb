// Ethernet / IPv4 / UDP frames that carry INA messages. docs/protocol.md is the specification.
//
//   Ethernet II 14 | IPv4 20 (24..60 accepted) | UDP 8 | INA header 72 | payload | any padding
//
// The network's headers are big-endian, the INA header and the payload little-endian. This is the
// only codec: switch, client and tests use it, and the Wireshark dissector is tested against it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

#include "wire/message.h"
#include "wire/siphash.h"

namespace ina::wire {

inline constexpr uint8_t kProtocolVersion = 2;
inline constexpr uint16_t kMagic = 0x4e49;         ///< bytes 'I' 'N' on the wire (little-endian)
inline constexpr uint16_t kDefaultUdpPort = 7584;  ///< lane n of a switch listens on this + n

inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kIpv4Bytes = 20;
inline constexpr size_t kUdpBytes = 8;
inline constexpr size_t kInaHeaderBytes = 72;
inline constexpr size_t kFrameHeaderBytes =
    kEthernetBytes + kIpv4Bytes + kUdpBytes + kInaHeaderBytes;
/// Ethernet's minimum without FCS. An INA frame is always longer; other frames on the port (ARP,
/// ICMP) may need padding to it.
inline constexpr size_t kMinFrameBytes = 60;
/// Largest payload that IPv4's 16-bit total length has room for. A slot is far smaller.
inline constexpr size_t kMaxPayloadBytes = 65535 - kIpv4Bytes - kUdpBytes - kInaHeaderBytes;

using MacAddress = std::array<uint8_t, 6>;

/// One end of a flow. IP and UDP port in host byte order, MAC in the order of the wire.
struct Address {
  MacAddress mac{};
  uint32_t ip = 0;
  uint16_t udp_port = 0;
  friend bool operator==(const Address&, const Address&) = default;
};

/// The addresses and the job that a frame claims. A receiver compares these claims with the binding
/// made at admission before it believes any.
struct Envelope {
  Address source;
  Address destination;
  JobId job{};
  uint64_t job_key = 0;
  uint64_t tag = 0;  ///< a frame sent with a Seal has its tag instead
};

/// The secrets of a worker and the switch by which they know each other's frames (docs/protocol.md,
/// Tags). Those for the payload are the job's: the payload of a result, which goes to all of its
/// workers, is hashed once.
struct TagKeys {
  SipKey frame;
  SipKey payload;
};

/// The input that makes or proves the tag of one frame.
struct Seal {
  SipKey key;                 ///< TagKeys::frame
  uint64_t payload_hash = 0;  ///< SipHash of the payload with TagKeys::payload
};
inline Seal make_seal(const TagKeys& keys, std::span<const std::byte> payload) {
  return {keys.frame, siphash(keys.payload, payload)};
}

/// A parsed frame: a copy of its headers and a view of its payload.
struct Frame {
  Envelope envelope;
  Message message;  ///< any bit pattern: enumerators may be out of range until validate()
  const std::byte* payload = nullptr;  ///< points into the parsed bytes; any alignment
  uint32_t payload_bytes = 0;          ///< from the UDP length, padding excluded
};

/// Writes the kFrameHeaderBytes of headers for a payload to the front of `out` and returns their
/// number; nothing is written and 0 returned if `out` is shorter or the payload longer than
/// kMaxPayloadBytes. The CRC32C covers the payload, so that must be complete; it may lie anywhere
/// and is not copied: it follows the headers on the wire. `message.target` is not sent. Without a
/// seal the tag is the envelope's.
size_t encode_headers(const Envelope& envelope, const Message& message,
                      std::span<const std::byte> payload, std::span<std::byte> out,
                      const Seal* seal = nullptr);

/// As encode_headers(), but for a socket that puts Ethernet, IP and UDP before it: the
/// kInaHeaderBytes that begin the datagram. Of the envelope's addresses a seal needs IP addresses
/// and UDP ports; nothing else is used.
size_t encode_ina_header(const Envelope& envelope, const Message& message,
                         std::span<const std::byte> payload, std::span<std::byte> out,
                         const Seal* seal = nullptr);

/// Parses one whole frame (without FCS; trailing padding allowed) of any origin and content; reads
/// nothing outside `bytes`, allocates nothing, throws nothing.
///
/// Checks ethertype, IPv4 header, lengths, UDP destination port, fragmentation, IPv4 checksum,
/// magic, version and CRC32C, but not the message itself (see validate()) nor the MAC and IP
/// addresses (see the bindings). The port must lie in [udp_port, udp_port + lanes); `lanes` 0
/// accepts any. A UDP checksum of any value is accepted: the CRC32C is stronger.
///
/// kNotIna: a frame of other traffic, which a switch forwards; the other reasons are INA frames, or
/// too damaged to tell. VLAN tags (802.1Q) are not understood: kNotIna.
tl::expected<Frame, DropReason> parse_frame(std::span<const std::byte> bytes, uint16_t udp_port,
                                            uint16_t lanes) noexcept;

/// Parses like parse_frame(), but without the CRC32C, for a receiver that first looks whether it
/// wants the frame at all: crc_matches() is to follow before any of the message is believed.
tl::expected<Frame, DropReason> parse_unchecked(std::span<const std::byte> bytes, uint16_t udp_port,
                                                uint16_t lanes) noexcept;

/// True if the CRC32C of a parsed frame is right; reads the parsed bytes once more.
bool crc_matches(const Frame& frame) noexcept;

/// True if the frame's tag is that of the seal: sent by a holder of the keys, from and to the IP
/// addresses and UDP ports of its envelope. Compares in constant time.
bool tag_matches(const Frame& frame, const Seal& seal) noexcept;

/// Parses the content of a datagram: INA header and payload. Checks what parse_frame() checks of
/// them; the envelope's addresses stay zeros (and are to be filled in before tag_matches()).
tl::expected<Frame, DropReason> parse_datagram(std::span<const std::byte> bytes) noexcept;

/// CRC32C (Castagnoli) of header and payload as they stand, the CRC field itself counted as 0.
uint32_t frame_crc(std::span<const std::byte, kInaHeaderBytes> ina_header,
                   std::span<const std::byte> payload);

}  // namespace ina::wire
