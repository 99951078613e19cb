#include "wire/frame.h"

#include <isa-l/crc.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>

namespace ina::wire {
namespace {

/// An integer as it lies on the wire: no alignment, fixed byte order.
template <class T, std::endian kOrder>
class WireInt {
 public:
  T get() const {
    T raw;
    std::memcpy(&raw, bytes_, sizeof(T));
    return swap(raw);
  }
  void set(T host) {
    const T raw = swap(host);
    std::memcpy(bytes_, &raw, sizeof(T));
  }

 private:
  static T swap(T raw) {
    if constexpr (kOrder == std::endian::native) {
      return raw;
    } else if constexpr (sizeof(T) == 2) {
      return __builtin_bswap16(raw);
    } else if constexpr (sizeof(T) == 4) {
      return __builtin_bswap32(raw);
    } else {
      static_assert(sizeof(T) == 8);
      return __builtin_bswap64(raw);
    }
  }

  std::byte bytes_[sizeof(T)];
};

using Le16 = WireInt<uint16_t, std::endian::little>;
using Le32 = WireInt<uint32_t, std::endian::little>;
using Le64 = WireInt<uint64_t, std::endian::little>;
using Be16 = WireInt<uint16_t, std::endian::big>;
using Be32 = WireInt<uint32_t, std::endian::big>;

struct EthernetHeader {
  MacAddress destination;
  MacAddress source;
  Be16 ethertype;
};
static_assert(sizeof(EthernetHeader) == kEthernetBytes && alignof(EthernetHeader) == 1);
static_assert(offsetof(EthernetHeader, ethertype) == 12);

struct Ipv4Header {
  uint8_t version_ihl;  ///< high nibble: version; low nibble: header length in 32-bit words
  uint8_t tos;
  Be16 total_length;
  Be16 identification;
  Be16 fragment;  ///< flags and, in 8-byte units, offset
  uint8_t ttl;
  uint8_t protocol;
  Be16 checksum;
  Be32 source;
  Be32 destination;
};
static_assert(sizeof(Ipv4Header) == kIpv4Bytes && alignof(Ipv4Header) == 1);
static_assert(offsetof(Ipv4Header, checksum) == 10 && offsetof(Ipv4Header, destination) == 16);

struct UdpHeader {
  Be16 source;
  Be16 destination;
  Be16 length;
  Be16 checksum;
};
static_assert(sizeof(UdpHeader) == kUdpBytes && alignof(UdpHeader) == 1);

struct InaHeader {
  Le16 magic;
  uint8_t version;
  uint8_t type;
  Le32 job;
  Le64 job_key;
  Le32 epoch;
  Le32 seq;
  Le64 bitmap;
  Le64 operation_elements;
  Le32 operation;
  Le16 elements;
  uint8_t dtype;
  uint8_t op;
  uint8_t rank;
  uint8_t priority;
  uint8_t origin;
  uint8_t phase;
  Le16 flags;
  uint8_t lane;
  uint8_t collective;
  Le32 instance;
  Le32 crc32c;
  Le64 tag;
};
static_assert(sizeof(InaHeader) == kInaHeaderBytes && alignof(InaHeader) == 1);
static_assert(offsetof(InaHeader, magic) == 0);
static_assert(offsetof(InaHeader, version) == 2);
static_assert(offsetof(InaHeader, type) == 3);
static_assert(offsetof(InaHeader, job) == 4);
static_assert(offsetof(InaHeader, job_key) == 8);
static_assert(offsetof(InaHeader, epoch) == 16);
static_assert(offsetof(InaHeader, seq) == 20);
static_assert(offsetof(InaHeader, bitmap) == 24);
static_assert(offsetof(InaHeader, operation_elements) == 32);
static_assert(offsetof(InaHeader, operation) == 40);
static_assert(offsetof(InaHeader, elements) == 44);
static_assert(offsetof(InaHeader, dtype) == 46);
static_assert(offsetof(InaHeader, op) == 47);
static_assert(offsetof(InaHeader, rank) == 48);
static_assert(offsetof(InaHeader, priority) == 49);
static_assert(offsetof(InaHeader, origin) == 50);
static_assert(offsetof(InaHeader, phase) == 51);
static_assert(offsetof(InaHeader, flags) == 52);
static_assert(offsetof(InaHeader, lane) == 54);
static_assert(offsetof(InaHeader, collective) == 55);
static_assert(offsetof(InaHeader, instance) == 56);
static_assert(offsetof(InaHeader, crc32c) == 60);
static_assert(offsetof(InaHeader, tag) == 64);

struct Headers {
  EthernetHeader ethernet;
  Ipv4Header ip;
  UdpHeader udp;
  InaHeader ina;
};
static_assert(sizeof(Headers) == kFrameHeaderBytes);

constexpr uint16_t kEthertypeIpv4 = 0x0800;
constexpr uint8_t kIpv4NoOptions = 0x45;
constexpr uint8_t kTtl = 64;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint16_t kDontFragment = 0x4000;
constexpr uint16_t kMoreFragments = 0x2000;
constexpr uint16_t kFragmentOffset = 0x1fff;

/// The header at the front of `bytes`, which must be long enough.
template <class Header>
Header load(std::span<const std::byte> bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

/// One's complement sum of a header of whole 16-bit words; 0xffff if it holds a right checksum.
uint16_t ones_complement_sum(std::span<const std::byte> header) {
  uint32_t sum = 0;
  for (size_t at = 0; at < header.size(); at += sizeof(Be16))
    sum += load<Be16>(header.subspan(at)).get();
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>((sum & 0xffff) + (sum >> 16));
}

#if defined(__x86_64__)
[[gnu::target("avx")]] void zero_uppers() {
  _mm256_zeroupper();
}

/// ISA-L (2.30) leaves the upper parts of vector registers dirty where it uses AVX-512. On Intel
/// each SSE instruction after that waits for them: 160 ns a frame.
void after_crc() {
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  if (has_avx) zero_uppers();
}
#else
void after_crc() {}
#endif

uint32_t crc32c_update(uint32_t state, const void* data, size_t bytes) {
  if (bytes == 0) return state;
  // ISA-L only reads the buffer, whatever its signature says.
  auto* buffer = static_cast<unsigned char*>(const_cast<void*>(data));
  return crc32_iscsi(buffer, static_cast<int>(bytes), state);
}

uint32_t crc_of(InaHeader header, std::span<const std::byte> payload) {
  header.crc32c.set(0);
  // ISA-L leaves the inversions before and after to its caller.
  const uint32_t state = crc32c_update(~uint32_t{0}, &header, sizeof header);
  const uint32_t crc = ~crc32c_update(state, payload.data(), payload.size());
  after_crc();
  return crc;
}

InaHeader to_wire(const Envelope& envelope, const Message& message) {
  InaHeader ina;
  ina.magic.set(kMagic);
  ina.version = kProtocolVersion;
  ina.type = static_cast<uint8_t>(message.type);
  ina.job.set(value(envelope.job));
  ina.job_key.set(envelope.job_key);
  ina.epoch.set(message.epoch);
  ina.seq.set(message.seq);
  ina.bitmap.set(message.bitmap);
  ina.operation_elements.set(message.operation_elements);
  ina.operation.set(message.operation);
  ina.elements.set(message.elements);
  ina.dtype = static_cast<uint8_t>(message.dtype);
  ina.op = static_cast<uint8_t>(message.op);
  ina.rank = static_cast<uint8_t>(message.rank);
  ina.priority = message.priority;
  ina.origin = static_cast<uint8_t>(message.origin);
  ina.phase = static_cast<uint8_t>(message.phase);
  ina.flags.set(message.flags);
  ina.lane = message.lane;
  ina.collective = static_cast<uint8_t>(message.collective);
  ina.instance.set(message.instance);
  ina.crc32c.set(0);
  ina.tag.set(envelope.tag);
  return ina;
}

/// What a tag is made of, beside the payload's hash in it.
struct TagInput {
  Be32 source_ip;
  Be32 destination_ip;
  Be16 source_port;
  Be16 destination_port;
  Le32 payload_bytes;
  InaHeader ina;  ///< its checksum and tag 0
  Le64 payload_hash;
};
static_assert(sizeof(TagInput) == 16 + kInaHeaderBytes + 8 && alignof(TagInput) == 1);

uint64_t tag_of(const Envelope& envelope, const InaHeader& ina, size_t payload_bytes,
                const Seal& seal) {
  TagInput input;
  input.source_ip.set(envelope.source.ip);
  input.destination_ip.set(envelope.destination.ip);
  input.source_port.set(envelope.source.udp_port);
  input.destination_port.set(envelope.destination.udp_port);
  input.payload_bytes.set(static_cast<uint32_t>(payload_bytes));
  input.ina = ina;
  input.ina.crc32c.set(0);
  input.ina.tag.set(0);
  input.payload_hash.set(seal.payload_hash);
  return siphash(seal.key, std::as_bytes(std::span(&input, 1)));
}

/// With its tag and its CRC, which covers the tag.
InaHeader sealed(const Envelope& envelope, const Message& message,
                 std::span<const std::byte> payload, const Seal* seal) {
  InaHeader ina = to_wire(envelope, message);
  if (seal) ina.tag.set(tag_of(envelope, ina, payload.size(), *seal));
  ina.crc32c.set(crc_of(ina, payload));
  return ina;
}

Message message_from(const InaHeader& ina) {
  Message message;
  message.bitmap = ina.bitmap.get();
  message.operation_elements = ina.operation_elements.get();
  message.operation = ina.operation.get();
  message.epoch = ina.epoch.get();
  message.seq = ina.seq.get();
  message.instance = ina.instance.get();
  message.elements = ina.elements.get();
  message.flags = ina.flags.get();
  message.type = Type{ina.type};
  message.dtype = DType{ina.dtype};
  message.op = Op{ina.op};
  message.collective = Collective{ina.collective};
  message.rank = Rank{ina.rank};
  message.priority = ina.priority;
  message.origin = Origin{ina.origin};
  message.phase = Phase{ina.phase};
  message.lane = ina.lane;
  return message;
}

bool in_range(uint16_t port, uint16_t first, uint16_t lanes) {
  return lanes == 0 || (port >= first && port < uint32_t{first} + lanes);
}

using Bytes = std::span<const std::byte>;

/// Strips Ethernet and IPv4: what remains is the datagram, whole, without padding.
tl::expected<Bytes, DropReason> parse_ip(Bytes bytes, uint16_t udp_port, uint16_t lanes,
                                         Envelope& envelope) {
  const auto drop = [](DropReason reason) { return tl::unexpected(reason); };
  if (bytes.size() < kEthernetBytes) return drop(DropReason::kTruncated);
  const auto ethernet = load<EthernetHeader>(bytes);
  if (ethernet.ethertype.get() != kEthertypeIpv4) return drop(DropReason::kNotIna);
  envelope.source.mac = ethernet.source;
  envelope.destination.mac = ethernet.destination;

  bytes = bytes.subspan(kEthernetBytes);
  if (bytes.size() < kIpv4Bytes) return drop(DropReason::kTruncated);
  const auto ip = load<Ipv4Header>(bytes);
  if (ip.version_ihl >> 4 != 4 || ip.protocol != kProtocolUdp) return drop(DropReason::kNotIna);
  const size_t header_bytes = size_t{4} * (ip.version_ihl & 0x0f);
  if (header_bytes < kIpv4Bytes || bytes.size() < header_bytes) return drop(DropReason::kTruncated);

  // The port comes before what follows, so that faults of other people's datagrams stay theirs.
  const uint16_t fragment = ip.fragment.get();
  const Bytes after_header = bytes.subspan(header_bytes);
  if ((fragment & kFragmentOffset) == 0 && after_header.size() >= kUdpBytes &&
      !in_range(load<UdpHeader>(after_header).destination.get(), udp_port, lanes))
    return drop(DropReason::kNotIna);

  if (fragment & (kMoreFragments | kFragmentOffset)) return drop(DropReason::kIpFragment);
  if (ones_complement_sum(bytes.first(header_bytes)) != 0xffff)
    return drop(DropReason::kIpChecksum);
  const size_t total_bytes = ip.total_length.get();
  if (total_bytes < header_bytes || total_bytes > bytes.size()) return drop(DropReason::kTruncated);
  envelope.source.ip = ip.source.get();
  envelope.destination.ip = ip.destination.get();
  return bytes.subspan(header_bytes, total_bytes - header_bytes);
}

/// Strips UDP: what remains is the INA header and its payload.
tl::expected<Bytes, DropReason> parse_udp(Bytes datagram, Envelope& envelope) {
  if (datagram.size() < kUdpBytes) return tl::unexpected(DropReason::kTruncated);
  const auto udp = load<UdpHeader>(datagram);
  const size_t udp_bytes = udp.length.get();
  if (udp_bytes < kUdpBytes || udp_bytes > datagram.size())
    return tl::unexpected(DropReason::kTruncated);
  envelope.source.udp_port = udp.source.get();
  envelope.destination.udp_port = udp.destination.get();
  return datagram.subspan(kUdpBytes, udp_bytes - kUdpBytes);
}

/// Magic and version come first: another version's header may have another length.
tl::expected<InaHeader, DropReason> parse_ina(Bytes bytes) {
  const auto drop = [](DropReason reason) { return tl::unexpected(reason); };
  if (bytes.size() < offsetof(InaHeader, type)) return drop(DropReason::kTruncated);
  if (load<Le16>(bytes).get() != kMagic) return drop(DropReason::kNotIna);
  const auto version = static_cast<uint8_t>(bytes[offsetof(InaHeader, version)]);
  if (version != kProtocolVersion) return drop(DropReason::kVersion);
  if (bytes.size() < kInaHeaderBytes) return drop(DropReason::kTruncated);
  return load<InaHeader>(bytes);
}

/// Fills all of `frame` but the addresses.
tl::expected<Frame, DropReason> parse_content(Bytes content, Frame frame) {
  const auto ina = parse_ina(content);
  if (!ina) return tl::unexpected(ina.error());
  frame.envelope.job = JobId{ina->job.get()};
  frame.envelope.job_key = ina->job_key.get();
  frame.envelope.tag = ina->tag.get();
  frame.message = message_from(*ina);
  const Bytes payload = content.subspan(kInaHeaderBytes);
  frame.payload = payload.data();
  frame.payload_bytes = static_cast<uint32_t>(payload.size());
  return frame;
}

/// It lies before its payload.
InaHeader header_of(const Frame& frame) {
  return load<InaHeader>(std::span(frame.payload - kInaHeaderBytes, kInaHeaderBytes));
}

tl::expected<Frame, DropReason> checked(const tl::expected<Frame, DropReason>& frame) {
  if (frame && !crc_matches(*frame)) return tl::unexpected(DropReason::kCrc);
  return frame;
}

}  // namespace

size_t encode_headers(const Envelope& envelope, const Message& message,
                      std::span<const std::byte> payload, std::span<std::byte> out,
                      const Seal* seal) {
  if (out.size() < kFrameHeaderBytes || payload.size() > kMaxPayloadBytes) return 0;
  const size_t udp_bytes = kUdpBytes + kInaHeaderBytes + payload.size();
  Headers headers;
  headers.ethernet.destination = envelope.destination.mac;
  headers.ethernet.source = envelope.source.mac;
  headers.ethernet.ethertype.set(kEthertypeIpv4);

  Ipv4Header& ip = headers.ip;
  ip.version_ihl = kIpv4NoOptions;
  ip.tos = 0;
  ip.total_length.set(static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
  ip.identification.set(0);
  ip.fragment.set(kDontFragment);
  ip.ttl = kTtl;
  ip.protocol = kProtocolUdp;
  ip.checksum.set(0);
  ip.source.set(envelope.source.ip);
  ip.destination.set(envelope.destination.ip);
  ip.checksum.set(
      static_cast<uint16_t>(~ones_complement_sum(std::as_bytes(std::span<Ipv4Header, 1>(&ip, 1)))));

  headers.udp.source.set(envelope.source.udp_port);
  headers.udp.destination.set(envelope.destination.udp_port);
  headers.udp.length.set(static_cast<uint16_t>(udp_bytes));
  headers.udp.checksum.set(0);

  headers.ina = sealed(envelope, message, payload, seal);
  std::memcpy(out.data(), &headers, sizeof headers);
  return sizeof headers;
}

size_t encode_ina_header(const Envelope& envelope, const Message& message,
                         std::span<const std::byte> payload, std::span<std::byte> out,
                         const Seal* seal) {
  if (out.size() < kInaHeaderBytes || payload.size() > kMaxPayloadBytes) return 0;
  const InaHeader ina = sealed(envelope, message, payload, seal);
  std::memcpy(out.data(), &ina, sizeof ina);
  return sizeof ina;
}

tl::expected<Frame, DropReason> parse_unchecked(std::span<const std::byte> bytes, uint16_t udp_port,
                                                uint16_t lanes) noexcept {
  Frame frame;
  const auto datagram = parse_ip(bytes, udp_port, lanes, frame.envelope);
  if (!datagram) return tl::unexpected(datagram.error());
  const auto content = parse_udp(*datagram, frame.envelope);
  if (!content) return tl::unexpected(content.error());
  return parse_content(*content, frame);
}

tl::expected<Frame, DropReason> parse_frame(std::span<const std::byte> bytes, uint16_t udp_port,
                                            uint16_t lanes) noexcept {
  return checked(parse_unchecked(bytes, udp_port, lanes));
}

tl::expected<Frame, DropReason> parse_datagram(std::span<const std::byte> bytes) noexcept {
  return checked(parse_content(bytes, Frame{}));
}

bool crc_matches(const Frame& frame) noexcept {
  const auto ina = header_of(frame);
  return ina.crc32c.get() == crc_of(ina, {frame.payload, frame.payload_bytes});
}

bool tag_matches(const Frame& frame, const Seal& seal) noexcept {
  const auto ina = header_of(frame);
  // One comparison of words, which takes as long whatever differs.
  return (tag_of(frame.envelope, ina, frame.payload_bytes, seal) ^ ina.tag.get()) == 0;
}

uint32_t frame_crc(std::span<const std::byte, kInaHeaderBytes> ina_header,
                   std::span<const std::byte> payload) {
  return crc_of(load<InaHeader>(ina_header), payload);
}

}  // namespace ina::wire
