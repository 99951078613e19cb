#include "wire/frame.h"

#include <isa-l/crc.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
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
  uint8_t origin_phase;  ///< low nibble: origin; high nibble: phase
  uint8_t receiver;
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
static_assert(offsetof(InaHeader, origin_phase) == 50);
static_assert(offsetof(InaHeader, receiver) == 51);
static_assert(offsetof(InaHeader, flags) == 52);
static_assert(offsetof(InaHeader, lane) == 54);
static_assert(offsetof(InaHeader, collective) == 55);
static_assert(offsetof(InaHeader, instance) == 56);
static_assert(offsetof(InaHeader, crc32c) == 60);
static_assert(offsetof(InaHeader, tag) == 64);

/// The INA header as little-endian words in registers: there it is put together, summed up and
/// taken apart. A wide load of bytes that narrow stores have just written waits until all earlier
/// stores have reached the cache, and here those go to rings that other cores read.
class InaWords {
 public:
  static InaWords load(std::span<const std::byte> bytes);
  void store(std::byte* out) const;

  /// The field at this offset of InaHeader; put() is for a field that is still 0.
  template <class T>
  T get(size_t offset) const {
    return static_cast<T>(words_[offset / sizeof(uint64_t)] >> shift(offset));
  }
  template <class T>
  void put(size_t offset, T value) {
    words_[offset / sizeof(uint64_t)] |= static_cast<uint64_t>(value) << shift(offset);
  }
  template <class T>
  void clear(size_t offset) {
    words_[offset / sizeof(uint64_t)] &=
        ~(uint64_t{std::numeric_limits<T>::max()} << shift(offset));
  }
  std::span<const uint64_t> words() const { return words_; }

 private:
  static constexpr size_t shift(size_t offset) { return offset % sizeof(uint64_t) * 8; }

  std::array<uint64_t, kInaHeaderBytes / sizeof(uint64_t)> words_{};
};
static_assert(sizeof(InaWords) == kInaHeaderBytes);

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
// The bits of `flags` from this one on are the upper ones of `receiver`.
constexpr int kReceiverBit = 11;
static_assert(kAllFlags < 1 << kReceiverBit);
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

/// The one's complement sum of a header of whole 16-bit words; 0xffff if it holds a right checksum.
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
  // ISA-L only reads the buffer, although its signature has no const.
  auto* buffer = static_cast<unsigned char*>(const_cast<void*>(data));
  return crc32_iscsi(buffer, static_cast<int>(bytes), state);
}

InaWords InaWords::load(std::span<const std::byte> bytes) {
  InaWords ina;
  for (size_t i = 0; i < ina.words_.size(); ++i)
    ina.words_[i] = wire::load<Le64>(bytes.subspan(i * sizeof(uint64_t))).get();
  return ina;
}

void InaWords::store(std::byte* out) const {
  for (const uint64_t word : words_) {
    Le64 raw;
    raw.set(word);
    std::memcpy(out, &raw, sizeof raw);
    out += sizeof raw;
  }
}

#if defined(__x86_64__)
const bool kHasCrcInstruction = __builtin_cpu_supports("sse4.2") != 0;

[[gnu::target("sse4.2")]] uint32_t crc32c_by_instruction(uint64_t state,
                                                         std::span<const uint64_t> words) {
  for (const uint64_t word : words) state = __builtin_ia32_crc32di(state, word);
  return static_cast<uint32_t>(state);
}
#else
constexpr bool kHasCrcInstruction = false;
uint32_t crc32c_by_instruction(uint64_t, std::span<const uint64_t>);
#endif

uint32_t crc_of(InaWords ina, std::span<const std::byte> payload) {
  ina.clear<uint32_t>(offsetof(InaHeader, crc32c));
  // ISA-L, and the instruction, leave the inversions before and after to their caller.
  uint32_t state = ~uint32_t{0};
  if (kHasCrcInstruction) {
    state = crc32c_by_instruction(state, ina.words());
  } else {
    std::byte bytes[kInaHeaderBytes];
    ina.store(bytes);
    state = crc32c_update(state, bytes, sizeof bytes);
  }
  const uint32_t crc = ~crc32c_update(state, payload.data(), payload.size());
  after_crc();
  return crc;
}

/// The input of a tag, beside the payload in its hash.
struct TagInput {
  Be32 source_ip;
  Be32 destination_ip;
  Be16 source_port;
  Be16 destination_port;
  Le32 payload_bytes;
  std::byte ina[kInaHeaderBytes];  ///< its checksum and tag 0
  Le64 payload_hash;
};
static_assert(sizeof(TagInput) == 16 + kInaHeaderBytes + 8 && alignof(TagInput) == 1);

uint64_t tag_of(const Envelope& envelope, InaWords ina, size_t payload_bytes, const Seal& seal) {
  ina.clear<uint32_t>(offsetof(InaHeader, crc32c));
  ina.clear<uint64_t>(offsetof(InaHeader, tag));
  TagInput input;
  input.source_ip.set(envelope.source.ip);
  input.destination_ip.set(envelope.destination.ip);
  input.source_port.set(envelope.source.udp_port);
  input.destination_port.set(envelope.destination.udp_port);
  input.payload_bytes.set(static_cast<uint32_t>(payload_bytes));
  ina.store(input.ina);
  input.payload_hash.set(seal.payload_hash);
  return siphash(seal.key, std::as_bytes(std::span(&input, 1)));
}

/// With its tag and its CRC, which covers the tag.
InaWords sealed(const Envelope& envelope, const Message& message,
                std::span<const std::byte> payload, const Seal* seal) {
  InaWords ina;
  ina.put(offsetof(InaHeader, magic), kMagic);
  ina.put(offsetof(InaHeader, version), kProtocolVersion);
  ina.put(offsetof(InaHeader, type), message.type);
  ina.put(offsetof(InaHeader, job), value(envelope.job));
  ina.put(offsetof(InaHeader, job_key), envelope.job_key);
  ina.put(offsetof(InaHeader, epoch), message.epoch);
  ina.put(offsetof(InaHeader, seq), message.seq);
  ina.put(offsetof(InaHeader, bitmap), message.bitmap.bits());
  ina.put(offsetof(InaHeader, operation_elements), message.operation_elements);
  ina.put(offsetof(InaHeader, operation), message.operation);
  ina.put(offsetof(InaHeader, elements), message.elements);
  ina.put(offsetof(InaHeader, dtype), message.dtype);
  ina.put(offsetof(InaHeader, op), message.op);
  ina.put(offsetof(InaHeader, rank), static_cast<uint8_t>(message.rank));
  ina.put(offsetof(InaHeader, priority), message.priority);
  ina.put(offsetof(InaHeader, origin_phase),
          static_cast<uint8_t>(static_cast<uint8_t>(message.origin) |
                               static_cast<uint8_t>(message.phase) << 4));
  ina.put(offsetof(InaHeader, receiver), static_cast<uint8_t>(message.receiver));
  ina.put(offsetof(InaHeader, flags),
          static_cast<uint16_t>(message.flags | message.receiver >> 8 << kReceiverBit));
  ina.put(offsetof(InaHeader, lane), static_cast<uint8_t>(message.lane));
  ina.put(offsetof(InaHeader, collective), message.collective);
  ina.put(offsetof(InaHeader, instance), message.instance);
  ina.put(offsetof(InaHeader, tag),
          seal ? tag_of(envelope, ina, payload.size(), *seal) : envelope.tag);
  ina.put(offsetof(InaHeader, crc32c), crc_of(ina, payload));
  return ina;
}

Message message_from(const InaWords& ina) {
  Message message;
  message.bitmap = WorkerSet::from_bits(ina.get<uint64_t>(offsetof(InaHeader, bitmap)));
  message.operation_elements = ina.get<uint64_t>(offsetof(InaHeader, operation_elements));
  message.operation = ina.get<uint32_t>(offsetof(InaHeader, operation));
  message.epoch = ina.get<uint32_t>(offsetof(InaHeader, epoch));
  message.seq = ina.get<uint32_t>(offsetof(InaHeader, seq));
  message.instance = ina.get<uint32_t>(offsetof(InaHeader, instance));
  message.elements = ina.get<uint16_t>(offsetof(InaHeader, elements));
  const auto flags = ina.get<uint16_t>(offsetof(InaHeader, flags));
  message.flags = flags & kAllFlags;
  message.type = Type{ina.get<uint8_t>(offsetof(InaHeader, type))};
  message.dtype = DType{ina.get<uint8_t>(offsetof(InaHeader, dtype))};
  message.op = Op{ina.get<uint8_t>(offsetof(InaHeader, op))};
  message.collective = Collective{ina.get<uint8_t>(offsetof(InaHeader, collective))};
  // A field that is too small for a number has its highest instead, which is as wrong.
  message.rank = Rank{std::min<uint8_t>(ina.get<uint8_t>(offsetof(InaHeader, rank)), 0x7f)};
  message.priority = ina.get<uint8_t>(offsetof(InaHeader, priority));
  const auto origin_phase = ina.get<uint8_t>(offsetof(InaHeader, origin_phase));
  message.origin = Origin{std::min<uint8_t>(origin_phase & 0xf, 7)};
  message.phase = Phase{std::min<uint8_t>(origin_phase >> 4, 7)};
  message.receiver = static_cast<uint16_t>(ina.get<uint8_t>(offsetof(InaHeader, receiver)) |
                                           flags >> kReceiverBit << 8);
  message.lane = ina.get<uint8_t>(offsetof(InaHeader, lane)) & 0x3f;
  return message;
}

bool in_range(uint16_t port, uint16_t first, uint16_t lanes) {
  return lanes == 0 || (port >= first && port < uint32_t{first} + lanes);
}

using Bytes = std::span<const std::byte>;

/// Strips Ethernet and IPv4: returns the whole datagram, without padding.
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

  // The port is checked before the rest, so that faults of other people's datagrams stay theirs.
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

/// Strips UDP: returns the INA header and its payload.
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
  if (bytes.size() < offsetof(InaHeader, type)) return drop(DropReason::kTruncated);
  if (load<Le16>(bytes).get() != kMagic) return drop(DropReason::kNotIna);
  const auto version = static_cast<uint8_t>(bytes[offsetof(InaHeader, version)]);
  if (version != kProtocolVersion) return drop(DropReason::kVersion);
  if (bytes.size() < kInaHeaderBytes) return drop(DropReason::kTruncated);
  return InaWords::load(bytes);
}

/// Fills all of `frame` but the addresses.
tl::expected<Frame, DropReason> parse_content(Bytes content, Frame frame) {
  const auto ina = parse_ina(content);
  if (!ina) return tl::unexpected(ina.error());
  frame.envelope.job = JobId{ina->get<uint32_t>(offsetof(InaHeader, job))};
  frame.envelope.job_key = ina->get<uint64_t>(offsetof(InaHeader, job_key));
  frame.envelope.tag = ina->get<uint64_t>(offsetof(InaHeader, tag));
  frame.message = message_from(*ina);
  const Bytes payload = content.subspan(kInaHeaderBytes);
  frame.payload = payload.data();
  frame.payload_bytes = static_cast<uint32_t>(payload.size());
  return frame;
}

/// It lies before its payload.
InaWords header_of(const Frame& frame) {
  return InaWords::load({frame.payload - kInaHeaderBytes, kInaHeaderBytes});
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

  sealed(envelope, message, payload, seal).store(out.data() + sizeof headers);
  return kFrameHeaderBytes;
}

size_t encode_ina_header(const Envelope& envelope, const Message& message,
                         std::span<const std::byte> payload, std::span<std::byte> out,
                         const Seal* seal) {
  if (out.size() < kInaHeaderBytes || payload.size() > kMaxPayloadBytes) return 0;
  sealed(envelope, message, payload, seal).store(out.data());
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
  const InaWords ina = header_of(frame);
  return ina.get<uint32_t>(offsetof(InaHeader, crc32c)) ==
         crc_of(ina, {frame.payload, frame.payload_bytes});
}

bool tag_matches(const Frame& frame, const Seal& seal) noexcept {
  const InaWords ina = header_of(frame);
  // One comparison of words, in constant time.
  return (tag_of(frame.envelope, ina, frame.payload_bytes, seal) ^
          ina.get<uint64_t>(offsetof(InaHeader, tag))) == 0;
}

uint32_t frame_crc(std::span<const std::byte, kInaHeaderBytes> ina_header,
                   std::span<const std::byte> payload) {
  return crc_of(InaWords::load(ina_header), payload);
}

}  // namespace ina::wire
