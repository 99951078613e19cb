#include "wire/frame.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>

namespace ina::wire {

static_assert(std::endian::native == std::endian::little, "payloads travel as they lie in memory");

namespace {

// Offsets within the INA header; docs/protocol.md has the same table.
constexpr size_t kAtMagic = 0;
constexpr size_t kAtVersion = 2;
constexpr size_t kAtType = 3;
constexpr size_t kAtJob = 4;
constexpr size_t kAtJobKey = 8;
constexpr size_t kAtEpoch = 16;
constexpr size_t kAtSeq = 20;
constexpr size_t kAtBitmap = 24;
constexpr size_t kAtOperationElements = 32;
constexpr size_t kAtOperation = 40;
constexpr size_t kAtElements = 44;
constexpr size_t kAtDtype = 46;
constexpr size_t kAtOp = 47;
constexpr size_t kAtRank = 48;
constexpr size_t kAtPriority = 49;
constexpr size_t kAtOrigin = 50;
constexpr size_t kAtPhase = 51;
constexpr size_t kAtFlags = 52;
constexpr size_t kAtLane = 54;
constexpr size_t kAtCollective = 55;
constexpr size_t kAtInstance = 56;
constexpr size_t kAtCrc = 60;
constexpr size_t kAtTag = 64;
static_assert(kAtTag + sizeof(uint64_t) == kInaHeaderBytes);

constexpr uint16_t kEthertypeIpv4 = 0x0800;
constexpr uint8_t kIpProtocolUdp = 17;
constexpr uint16_t kIpDontFragment = 0x4000;
constexpr uint16_t kIpFragmentMask = 0x3fff;  // more-fragments flag and offset

template <class T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store_le(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <std::unsigned_integral T>
T load_be(const std::byte* from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value << 8 | std::to_integer<T>(from[i]));
  return value;
}

template <std::unsigned_integral T>
void store_be(std::byte* to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    to[i] = static_cast<std::byte>(value >> (8 * (sizeof(T) - 1 - i)));
}

/// RFC 1071 over the IPv4 header; 0 over a header that includes its right checksum.
uint16_t ip_checksum(std::span<const std::byte> header) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < header.size(); i += 2) sum += load_be<uint16_t>(&header[i]);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

/// Continues a CRC32C; ISA-L's function takes and gives the register without the final inversion.
uint32_t crc_update(uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;
  auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  return crc32_iscsi(data, static_cast<int>(bytes.size()), crc);
}

void encode_ina(const Envelope& envelope, const Message& message, std::byte* out) {
  store_le(out + kAtMagic, kMagic);
  store_le(out + kAtVersion, kProtocolVersion);
  store_le(out + kAtType, message.type);
  store_le(out + kAtJob, value(envelope.job));
  store_le(out + kAtJobKey, envelope.job_key);
  store_le(out + kAtEpoch, message.epoch);
  store_le(out + kAtSeq, message.seq);
  store_le(out + kAtBitmap, message.bitmap);
  store_le(out + kAtOperationElements, message.operation_elements);
  store_le(out + kAtOperation, message.operation);
  store_le(out + kAtElements, message.elements);
  store_le(out + kAtDtype, message.dtype);
  store_le(out + kAtOp, message.op);
  store_le(out + kAtRank, message.rank);
  store_le(out + kAtPriority, message.priority);
  store_le(out + kAtOrigin, message.origin);
  store_le(out + kAtPhase, message.phase);
  store_le(out + kAtFlags, message.flags);
  store_le(out + kAtLane, message.lane);
  store_le(out + kAtCollective, message.collective);
  store_le(out + kAtInstance, message.instance);
  store_le(out + kAtCrc, uint32_t{0});
  store_le(out + kAtTag, envelope.tag);
}

void decode_ina(const std::byte* in, Envelope& envelope, Message& message) {
  message.type = load_le<Type>(in + kAtType);
  envelope.job = load_le<JobId>(in + kAtJob);
  envelope.job_key = load_le<uint64_t>(in + kAtJobKey);
  message.epoch = load_le<uint32_t>(in + kAtEpoch);
  message.seq = load_le<uint32_t>(in + kAtSeq);
  message.bitmap = load_le<Bitmap>(in + kAtBitmap);
  message.operation_elements = load_le<uint64_t>(in + kAtOperationElements);
  message.operation = load_le<uint32_t>(in + kAtOperation);
  message.elements = load_le<uint16_t>(in + kAtElements);
  message.dtype = load_le<DType>(in + kAtDtype);
  message.op = load_le<Op>(in + kAtOp);
  message.rank = load_le<Rank>(in + kAtRank);
  message.priority = load_le<uint8_t>(in + kAtPriority);
  message.origin = load_le<Origin>(in + kAtOrigin);
  message.phase = load_le<Phase>(in + kAtPhase);
  message.flags = load_le<uint16_t>(in + kAtFlags);
  message.lane = load_le<uint8_t>(in + kAtLane);
  message.collective = load_le<Collective>(in + kAtCollective);
  message.instance = load_le<uint32_t>(in + kAtInstance);
  envelope.tag = load_le<uint64_t>(in + kAtTag);
}

}  // namespace

uint32_t frame_crc(std::span<const std::byte> ina_header, std::span<const std::byte> payload) {
  std::byte header[kInaHeaderBytes];
  std::memcpy(header, ina_header.data(), kInaHeaderBytes);
  store_le(header + kAtCrc, uint32_t{0});
  return ~crc_update(crc_update(~uint32_t{0}, header), payload);
}

size_t encode_headers(const Envelope& envelope, const Message& message,
                      std::span<const std::byte> payload, std::span<std::byte> out) {
  std::byte* eth = out.data();
  std::memcpy(eth, envelope.destination.mac.data(), 6);
  std::memcpy(eth + 6, envelope.source.mac.data(), 6);
  store_be(eth + 12, kEthertypeIpv4);

  std::byte* ip = eth + kEthernetBytes;
  const auto udp_bytes = static_cast<uint16_t>(kUdpBytes + kInaHeaderBytes + payload.size());
  std::memset(ip, 0, kIpv4Bytes);
  store_be(ip, uint8_t{0x45});
  store_be(ip + 2, static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
  store_be(ip + 6, kIpDontFragment);
  store_be(ip + 8, uint8_t{64});  // TTL
  store_be(ip + 9, kIpProtocolUdp);
  store_be(ip + 12, envelope.source.ip);
  store_be(ip + 16, envelope.destination.ip);
  store_be(ip + 10, ip_checksum({ip, kIpv4Bytes}));

  std::byte* udp = ip + kIpv4Bytes;
  store_be(udp, envelope.source.udp_port);
  store_be(udp + 2, envelope.destination.udp_port);
  store_be(udp + 4, udp_bytes);
  store_be(udp + 6, uint16_t{0});  // no checksum, which IPv4 allows: the CRC32C is stronger

  std::byte* ina = udp + kUdpBytes;
  encode_ina(envelope, message, ina);
  store_le(ina + kAtCrc, frame_crc({ina, kInaHeaderBytes}, payload));
  return kFrameHeaderBytes;
}

tl::expected<Frame, DropReason> parse_frame(std::span<const std::byte> bytes, uint16_t udp_port,
                                            uint16_t lanes) {
  const auto drop = [](DropReason reason) { return tl::unexpected(reason); };
  if (bytes.size() < kEthernetBytes) return drop(DropReason::kTruncated);
  if (load_be<uint16_t>(&bytes[12]) != kEthertypeIpv4) return drop(DropReason::kNotIna);

  const auto ip = bytes.subspan(kEthernetBytes);
  if (ip.size() < kIpv4Bytes) return drop(DropReason::kTruncated);
  const auto version_and_length = std::to_integer<uint8_t>(ip[0]);
  const size_t ip_header_bytes = size_t{version_and_length & 0x0fu} * 4;
  if (version_and_length >> 4 != 4 || ip_header_bytes < kIpv4Bytes)
    return drop(DropReason::kNotIna);
  const size_t ip_bytes = load_be<uint16_t>(&ip[2]);
  if (ip.size() < ip_header_bytes || ip.size() < ip_bytes) return drop(DropReason::kTruncated);
  if (ip_checksum(ip.first(ip_header_bytes)) != 0) return drop(DropReason::kIpChecksum);
  if (std::to_integer<uint8_t>(ip[9]) != kIpProtocolUdp) return drop(DropReason::kNotIna);
  if (load_be<uint16_t>(&ip[6]) & kIpFragmentMask) return drop(DropReason::kIpFragment);
  if (ip_bytes < ip_header_bytes + kUdpBytes) return drop(DropReason::kTruncated);

  // Ethernet pads short frames, so the IP length says where the datagram ends, not the frame's.
  const auto udp = ip.subspan(ip_header_bytes, ip_bytes - ip_header_bytes);
  const auto port = load_be<uint16_t>(&udp[2]);
  if (lanes != 0 && (port < udp_port || port - udp_port >= lanes)) return drop(DropReason::kNotIna);
  const size_t udp_bytes = load_be<uint16_t>(&udp[4]);
  if (udp_bytes > udp.size() || udp_bytes < kUdpBytes + kInaHeaderBytes)
    return drop(DropReason::kTruncated);

  const auto ina = udp.subspan(kUdpBytes, udp_bytes - kUdpBytes);
  if (load_le<uint16_t>(&ina[kAtMagic]) != kMagic) return drop(DropReason::kNotIna);
  if (load_le<uint8_t>(&ina[kAtVersion]) != kProtocolVersion) return drop(DropReason::kVersion);
  const auto header = ina.first(kInaHeaderBytes);
  const auto payload = ina.subspan(kInaHeaderBytes);
  if (load_le<uint32_t>(&ina[kAtCrc]) != frame_crc(header, payload)) return drop(DropReason::kCrc);

  Frame frame;
  decode_ina(header.data(), frame.envelope, frame.message);
  std::memcpy(frame.envelope.destination.mac.data(), &bytes[0], 6);
  std::memcpy(frame.envelope.source.mac.data(), &bytes[6], 6);
  frame.envelope.source.ip = load_be<uint32_t>(&ip[12]);
  frame.envelope.destination.ip = load_be<uint32_t>(&ip[16]);
  frame.envelope.source.udp_port = load_be<uint16_t>(&udp[0]);
  frame.envelope.destination.udp_port = port;
  frame.payload = payload.data();
  frame.payload_bytes = static_cast<uint32_t>(payload.size());
  return frame;
}

}  // namespace ina::wire
