#include "wire/frame.h"

#include <isa-l/crc.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

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

/// The INA header as little-endian words, so that it is put together, summed up and taken apart in
/// registers. A wide load of what narrow stores have just written waits until every store before
/// them has reached the cache, and here those go to rings that other cores read.
///
///   bits 0..15       16..23    24..31      32..47    48..55   56..63
///   magic            version   type        job
///   job_key
///   epoch                                  seq
///   bitmap
///   operation_elements
///   operation                              elements  dtype    op
///   rank, priority   origin    phase       flags     lane     collective
///   instance                               crc32c
///   tag
using InaWords = std::array<uint64_t, kInaHeaderBytes / sizeof(uint64_t)>;
static_assert(sizeof(InaWords) == kInaHeaderBytes);
constexpr size_t kCrcWord = 7;
constexpr size_t kTagWord = 8;
constexpr uint64_t kWithoutCrc = 0xffff'ffff;
constexpr size_t kVersionOffset = 2;
constexpr size_t kTypeOffset = 3;

struct NetworkHeaders {
  EthernetHeader ethernet;
  Ipv4Header ip;
  UdpHeader udp;
};
static_assert(sizeof(NetworkHeaders) == kFrameHeaderBytes - kInaHeaderBytes);
static_assert(alignof(NetworkHeaders) == 1);

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

/// A sum of some dozens of 16-bit words as a one's complement sum.
constexpr uint16_t folded(uint32_t sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>((sum & 0xffff) + (sum >> 16));
}

/// Of a header of whole 16-bit words; 0xffff if it holds a right checksum.
uint16_t ones_complement_sum(std::span<const std::byte> header) {
  uint32_t sum = 0;
  for (size_t at = 0; at < header.size(); at += sizeof(Be16))
    sum += load<Be16>(header.subspan(at)).get();
  return folded(sum);
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

InaWords load_words(std::span<const std::byte> bytes) {
  InaWords words;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = load<Le64>(bytes.subspan(i * sizeof(uint64_t))).get();
  return words;
}

void store_words(std::span<const uint64_t> words, std::byte* out) {
  for (const uint64_t word : words) {
    Le64 raw;
    raw.set(word);
    std::memcpy(out, &raw, sizeof raw);
    out += sizeof raw;
  }
}

#if defined(__x86_64__)
const bool kHasCrcInstruction = __builtin_cpu_supports("sse4.2") != 0;

[[gnu::target("sse4.2")]] uint32_t crc32c_by_instruction(uint64_t state, const InaWords& words) {
  for (const uint64_t word : words) state = __builtin_ia32_crc32di(state, word);
  return static_cast<uint32_t>(state);
}
#else
constexpr bool kHasCrcInstruction = false;
uint32_t crc32c_by_instruction(uint64_t, const InaWords&);
#endif

/// Of a header and its payload, the CRC itself counted as 0.
uint32_t crc_of(InaWords words, std::span<const std::byte> payload) {
  words[kCrcWord] &= kWithoutCrc;
  // The inversions before and after are the caller's.
  uint32_t state = ~uint32_t{0};
  if (kHasCrcInstruction) {
    state = crc32c_by_instruction(state, words);
  } else {
    std::byte bytes[kInaHeaderBytes];
    store_words(words, bytes);
    state = crc32c_update(state, bytes, sizeof bytes);
  }
  const uint32_t crc = ~crc32c_update(state, payload.data(), payload.size());
  after_crc();
  return crc;
}

/// Of a header, whose own tag and CRC count as 0, what is around it, and the payload's hash.
uint64_t tag_of(const Envelope& envelope, const InaWords& ina, size_t payload_bytes,
                const Seal& seal) {
  constexpr size_t kAround = 3;
  // Addresses as on the wire, in network byte order.
  const auto swapped = [](uint64_t high, uint64_t low, int bits) {
    return __builtin_bswap64(high << (64 - bits) | low << (64 - 2 * bits));
  };
  std::array<uint64_t, kInaHeaderBytes / sizeof(uint64_t) + kAround> words{
      swapped(envelope.source.ip, envelope.destination.ip, 32),
      swapped(envelope.source.udp_port, envelope.destination.udp_port, 16) | uint64_t{payload_bytes}
                                                                                 << 32};
  std::copy(ina.begin(), ina.end(), words.begin() + 2);
  words[2 + kCrcWord] &= kWithoutCrc;
  words[2 + kTagWord] = 0;
  words.back() = seal.payload_hash;
  std::byte bytes[sizeof words];
  store_words(words, bytes);
  return siphash(seal.key, bytes);
}

/// With its tag and its CRC, which covers the tag.
InaWords sealed(const Envelope& envelope, const Message& message,
                std::span<const std::byte> payload, const Seal* seal) {
  const auto byte = [](auto value) { return uint64_t{static_cast<uint8_t>(value)}; };
  InaWords words{
      uint64_t{kMagic} | byte(kProtocolVersion) << 16 | byte(message.type) << 24 |
          uint64_t{value(envelope.job)} << 32,
      envelope.job_key,
      uint64_t{message.epoch} | uint64_t{message.seq} << 32,
      message.bitmap,
      message.operation_elements,
      uint64_t{message.operation} | uint64_t{message.elements} << 32 | byte(message.dtype) << 48 |
          byte(message.op) << 56,
      byte(message.rank) | byte(message.priority) << 8 | byte(message.origin) << 16 |
          byte(message.phase) << 24 | uint64_t{message.flags} << 32 | byte(message.lane) << 48 |
          byte(message.collective) << 56,
      message.instance,
      envelope.tag,
  };
  if (seal) words[kTagWord] = tag_of(envelope, words, payload.size(), *seal);
  words[kCrcWord] |= uint64_t{crc_of(words, payload)} << 32;
  return words;
}

Message message_from(const InaWords& words) {
  const auto byte = [&words](size_t word, int shift) {
    return static_cast<uint8_t>(words[word] >> shift);
  };
  const auto low = [&words](size_t word) { return static_cast<uint32_t>(words[word]); };
  const auto high = [&words](size_t word) { return static_cast<uint32_t>(words[word] >> 32); };
  Message message;
  message.type = Type{byte(0, 24)};
  message.epoch = low(2);
  message.seq = high(2);
  message.bitmap = words[3];
  message.operation_elements = words[4];
  message.operation = low(5);
  message.elements = static_cast<uint16_t>(high(5));
  message.dtype = DType{byte(5, 48)};
  message.op = Op{byte(5, 56)};
  message.rank = Rank{byte(6, 0)};
  message.priority = byte(6, 8);
  message.origin = Origin{byte(6, 16)};
  message.phase = Phase{byte(6, 24)};
  message.flags = static_cast<uint16_t>(high(6));
  message.lane = byte(6, 48);
  message.collective = Collective{byte(6, 56)};
  message.instance = low(7);
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
tl::expected<InaWords, DropReason> parse_ina(Bytes bytes) {
  const auto drop = [](DropReason reason) { return tl::unexpected(reason); };
  if (bytes.size() < kTypeOffset) return drop(DropReason::kTruncated);
  if (load<Le16>(bytes).get() != kMagic) return drop(DropReason::kNotIna);
  const auto version = static_cast<uint8_t>(bytes[kVersionOffset]);
  if (version != kProtocolVersion) return drop(DropReason::kVersion);
  if (bytes.size() < kInaHeaderBytes) return drop(DropReason::kTruncated);
  return load_words(bytes);
}

/// Fills all of `frame` but the addresses.
tl::expected<Frame, DropReason> parse_content(Bytes content, Frame frame) {
  const auto words = parse_ina(content);
  if (!words) return tl::unexpected(words.error());
  frame.envelope.job = JobId{static_cast<uint32_t>((*words)[0] >> 32)};
  frame.envelope.job_key = (*words)[1];
  frame.envelope.tag = (*words)[kTagWord];
  frame.message = message_from(*words);
  const Bytes payload = content.subspan(kInaHeaderBytes);
  frame.payload = payload.data();
  frame.payload_bytes = static_cast<uint32_t>(payload.size());
  return frame;
}

/// It lies before its payload.
InaWords header_of(const Frame& frame) {
  return load_words({frame.payload - kInaHeaderBytes, kInaHeaderBytes});
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
  // Written where they belong, for the same reason as InaWords.
  auto& headers = *new (out.data()) NetworkHeaders;
  headers.ethernet.destination = envelope.destination.mac;
  headers.ethernet.source = envelope.source.mac;
  headers.ethernet.ethertype.set(kEthertypeIpv4);

  Ipv4Header& ip = headers.ip;
  const auto ip_bytes = static_cast<uint16_t>(kIpv4Bytes + udp_bytes);
  ip.version_ihl = kIpv4NoOptions;
  ip.tos = 0;
  ip.total_length.set(ip_bytes);
  ip.identification.set(0);
  ip.fragment.set(kDontFragment);
  ip.ttl = kTtl;
  ip.protocol = kProtocolUdp;
  ip.source.set(envelope.source.ip);
  ip.destination.set(envelope.destination.ip);
  ip.checksum.set(static_cast<uint16_t>(
      ~folded((kIpv4NoOptions << 8) + ip_bytes + kDontFragment + (kTtl << 8 | kProtocolUdp) +
              (envelope.source.ip >> 16) + (envelope.source.ip & 0xffff) +
              (envelope.destination.ip >> 16) + (envelope.destination.ip & 0xffff))));

  headers.udp.source.set(envelope.source.udp_port);
  headers.udp.destination.set(envelope.destination.udp_port);
  headers.udp.length.set(static_cast<uint16_t>(udp_bytes));
  headers.udp.checksum.set(0);

  store_words(sealed(envelope, message, payload, seal), out.data() + sizeof headers);
  return kFrameHeaderBytes;
}

size_t encode_ina_header(const Envelope& envelope, const Message& message,
                         std::span<const std::byte> payload, std::span<std::byte> out,
                         const Seal* seal) {
  if (out.size() < kInaHeaderBytes || payload.size() > kMaxPayloadBytes) return 0;
  store_words(sealed(envelope, message, payload, seal), out.data());
  return kInaHeaderBytes;
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
  const InaWords words = header_of(frame);
  return words[kCrcWord] >> 32 == crc_of(words, {frame.payload, frame.payload_bytes});
}

bool tag_matches(const Frame& frame, const Seal& seal) noexcept {
  const InaWords words = header_of(frame);
  // One comparison of words, which takes as long whatever differs.
  return (tag_of(frame.envelope, words, frame.payload_bytes, seal) ^ words[kTagWord]) == 0;
}

uint32_t frame_crc(std::span<const std::byte, kInaHeaderBytes> ina_header,
                   std::span<const std::byte> payload) {
  return crc_of(load_words(ina_header), payload);
}

}  // namespace ina::wire
