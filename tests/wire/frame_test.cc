// The frame codec: bytes, fields, checksums, and every reason to refuse a frame.
#include "wire/frame.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tests/support/packet_builder.h"
#include "tests/wire/golden_frames.h"

namespace ina {
namespace {

using testing::Bytes;
using testing::from_hex;
using testing::kInaAt;
using testing::kPayloadAt;
using testing::PacketBuilder;
using wire::Frame;
using wire::parse_frame;

constexpr uint32_t kSlotBytes = 1024;
constexpr uint16_t kLanes = 16;

// Worked out apart from the codec, with another CRC32C.
const Bytes kGoldenGrad = from_hex(R"(
  02 00 00 00 00 0a 02 00 00 00 00 03 08 00
  45 00 00 74 00 00 40 00 40 11 26 6d 0a 00 00 03
  0a 00 00 0a
  9c 43 1d a1 00 60 00 00
  49 4e 02 01 07 00 00 00 88 77 66 55 44 33 22 11
  03 00 00 00 01 10 00 00 04 00 00 00 00 00 00 00
  04 03 00 00 00 00 00 00 0c 00 00 00 04 00 04 01
  02 05 00 00 00 00 01 01 00 00 00 00 eb 29 c2 d9
  00 00 00 00 00 00 00 00
  00 00 80 3f 00 00 20 c0 00 00 00 3f 00 00 80 44)");

const Bytes kGoldenEveryField = from_hex(R"(
  a1 a2 a3 a4 a5 a6 b1 b2 b3 b4 b5 b6 08 00
  45 00 00 6a 00 00 40 00 40 11 b5 2c c0 a8 01 02
  c0 a8 03 04
  9c 43 1d af 00 56 00 00
  49 4e 02 09 04 03 02 01 18 17 16 15 14 13 12 11
  24 23 22 21 34 33 32 31 48 47 46 45 44 43 42 41
  58 57 56 55 54 53 52 51 64 63 62 61 03 00 07 04
  2a fe 12 3c 06 00 0f 01 74 73 72 71 2b 76 ba df
  88 87 86 85 84 83 82 81
  00 3c 00 40 00 44)");

/// Parses a copy that ends where its allocation ends, so that AddressSanitizer sees any overrun.
struct Parsed {
  std::unique_ptr<std::byte[]> memory;
  tl::expected<Frame, DropReason> frame;
};

Parsed parse(const Bytes& bytes, uint16_t port = wire::kDefaultUdpPort, uint16_t lanes = kLanes) {
  Parsed parsed{std::make_unique<std::byte[]>(bytes.size()), Frame{}};
  std::copy(bytes.begin(), bytes.end(), parsed.memory.get());
  parsed.frame = parse_frame({parsed.memory.get(), bytes.size()}, port, lanes);
  return parsed;
}

/// Why a receiver drops the frame, if it does: codec first, then validation.
std::optional<DropReason> verdict(const Bytes& bytes) {
  const Parsed parsed = parse(bytes);
  if (!parsed.frame) return parsed.frame.error();
  return wire::validate(parsed.frame->message, parsed.frame->payload_bytes, kSlotBytes);
}

std::string text(std::optional<DropReason> reason) {
  return reason ? std::string(name(*reason)) : "accepted";
}

/// CRC32C bit by bit, from its definition.
uint32_t slow_crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

void expect_same(const wire::Envelope& a, const wire::Envelope& b) {
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.destination, b.destination);
  EXPECT_EQ(a.job, b.job);
  EXPECT_EQ(a.job_key, b.job_key);
  EXPECT_EQ(a.tag, b.tag);
}

void expect_same(const wire::Message& a, const wire::Message& b) {
  EXPECT_EQ(a.bitmap, b.bitmap);
  EXPECT_EQ(a.operation_elements, b.operation_elements);
  EXPECT_EQ(a.operation, b.operation);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.seq, b.seq);
  EXPECT_EQ(a.instance, b.instance);
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.collective, b.collective);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.priority, b.priority);
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.receiver, b.receiver);
  EXPECT_EQ(a.lane, b.lane);
}

void expect_parses_to(const Bytes& bytes, const PacketBuilder& expected) {
  const Parsed parsed = parse(bytes);
  ASSERT_TRUE(parsed.frame) << name(parsed.frame.error());
  expect_same(parsed.frame->envelope, expected.envelope());
  expect_same(parsed.frame->message, expected.message());
}

TEST(Frame, GoldenGradEncodes) {
  EXPECT_EQ(testing::golden_grad().build(), kGoldenGrad);
}

TEST(Frame, GoldenGradParses) {
  expect_parses_to(kGoldenGrad, testing::golden_grad());
  const Parsed parsed = parse(kGoldenGrad);
  EXPECT_EQ(parsed.frame->payload_bytes, 16u);
  EXPECT_EQ(parsed.frame->payload, parsed.memory.get() + kPayloadAt);
  EXPECT_EQ(text(verdict(kGoldenGrad)), "accepted");
}

// Every offset of the INA header: no two of its fields hold the same bytes here.
TEST(Frame, GoldenEveryFieldEncodes) {
  EXPECT_EQ(testing::golden_every_field().build(), kGoldenEveryField);
}

TEST(Frame, GoldenEveryFieldParses) {
  expect_parses_to(kGoldenEveryField, testing::golden_every_field());
  EXPECT_EQ(text(verdict(kGoldenEveryField)), "accepted");
}

// Field by field, all others 0: a field that is written or read in the wrong place or width shows.
TEST(Frame, RoundTripOfEveryField) {
  std::vector<std::pair<wire::Envelope, wire::Message>> cases;
  const auto envelope_with = [&](auto&& change) {
    wire::Envelope envelope;
    change(envelope);
    cases.emplace_back(envelope, wire::Message{});
  };
  const auto message_with = [&](auto&& change) {
    wire::Message message;
    change(message);
    cases.emplace_back(wire::Envelope{}, message);
  };
  envelope_with([](auto& e) { e.source.mac.fill(0xff); });
  envelope_with([](auto& e) { e.source.ip = ~0u; });
  envelope_with([](auto& e) { e.source.udp_port = 0xffff; });
  envelope_with([](auto& e) { e.destination.mac.fill(0xff); });
  envelope_with([](auto& e) { e.destination.ip = ~0u; });
  envelope_with([](auto& e) { e.destination.udp_port = 0xffff; });
  envelope_with([](auto& e) { e.job = JobId{~0u}; });
  envelope_with([](auto& e) { e.job_key = ~uint64_t{0}; });
  envelope_with([](auto& e) { e.tag = ~uint64_t{0}; });
  message_with([](auto& m) { m.bitmap = WorkerSet::first(kMaxWorkers); });
  message_with([](auto& m) { m.operation_elements = ~uint64_t{0}; });
  message_with([](auto& m) { m.operation = ~0u; });
  message_with([](auto& m) { m.epoch = ~0u; });
  message_with([](auto& m) { m.seq = ~0u; });
  message_with([](auto& m) { m.instance = ~0u; });
  message_with([](auto& m) { m.elements = 0xffff; });
  message_with([](auto& m) { m.flags = wire::kAllFlags; });
  message_with([](auto& m) { m.type = wire::Type{0xff}; });
  message_with([](auto& m) { m.dtype = DType{0xff}; });
  message_with([](auto& m) { m.op = Op{0xff}; });
  message_with([](auto& m) { m.collective = Collective{0xff}; });
  message_with([](auto& m) { m.rank = Rank{0x7f}; });
  message_with([](auto& m) { m.priority = 0xff; });
  message_with([](auto& m) { m.origin = wire::Origin{7}; });
  message_with([](auto& m) { m.phase = wire::Phase{7}; });
  message_with([](auto& m) { m.receiver = 0xff; });
  message_with([](auto& m) { m.receiver = 0x1fff; });
  message_with([](auto& m) { m.lane = 0x3f; });
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const auto& [envelope, message] = cases[i];
    const Bytes frame = PacketBuilder().envelope(envelope).message(message).payload({}).build();
    const Parsed parsed = parse(frame, 0, 0);
    ASSERT_TRUE(parsed.frame) << name(parsed.frame.error());
    expect_same(parsed.frame->envelope, envelope);
    expect_same(parsed.frame->message, message);
    EXPECT_EQ(parsed.frame->payload_bytes, 0u);
  }
}

TEST(Frame, ReservedBytesAreNotSent) {
  wire::Message message = testing::golden_grad().message();
  message.target = 0xffffff;
  EXPECT_EQ(testing::golden_grad().message(message).build(), kGoldenGrad);
}

TEST(Frame, CrcMatchesDefinition) {
  const char digits[] = "123456789";
  ASSERT_EQ(slow_crc32c(std::as_bytes(std::span(digits, 9))), 0xe3069283u);
  Bytes content(wire::kInaHeaderBytes + 300);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i * i + 3);
  for (size_t at = 60; at < 64; ++at) content[at] = std::byte{0};
  for (const size_t payload : {0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 300}) {
    const std::span<const std::byte> all(content.data(), wire::kInaHeaderBytes + payload);
    const auto header = all.first<wire::kInaHeaderBytes>();
    const uint32_t expected = slow_crc32c(all);
    EXPECT_EQ(wire::frame_crc(header, all.subspan(wire::kInaHeaderBytes)), expected) << payload;
  }
}

TEST(Frame, CrcFieldCountsAsZero) {
  const std::span<const std::byte> all(kGoldenGrad);
  Bytes other(kGoldenGrad);
  other[testing::kCrcAt] ^= std::byte{0xff};
  const std::span<const std::byte> changed(other);
  EXPECT_EQ(
      wire::frame_crc(all.subspan(kInaAt).first<wire::kInaHeaderBytes>(), all.subspan(kPayloadAt)),
      wire::frame_crc(changed.subspan(kInaAt).first<wire::kInaHeaderBytes>(),
                      changed.subspan(kPayloadAt)));
}

TEST(Frame, EncodeRefusesWhatDoesNotFit) {
  const PacketBuilder golden = testing::golden_grad();
  Bytes out(wire::kFrameHeaderBytes, std::byte{0xee});
  const Bytes untouched(out);
  EXPECT_EQ(wire::encode_headers(golden.envelope(), golden.message(), {},
                                 std::span(out).first(wire::kFrameHeaderBytes - 1)),
            0u);
  const Bytes too_large(wire::kMaxPayloadBytes + 1);
  EXPECT_EQ(wire::encode_headers(golden.envelope(), golden.message(), too_large, out), 0u);
  EXPECT_EQ(out, untouched);
}

TEST(Frame, LargestPayload) {
  const Bytes frame = PacketBuilder().payload(Bytes(wire::kMaxPayloadBytes, std::byte{5})).build();
  const Parsed parsed = parse(frame);
  ASSERT_TRUE(parsed.frame);
  EXPECT_EQ(parsed.frame->payload_bytes, wire::kMaxPayloadBytes);
}

// Accepted, though encode_headers() does not write such frames.
TEST(Frame, AcceptsOptionsPaddingAndUdpChecksum) {
  const PacketBuilder golden = testing::golden_grad();
  for (size_t words = 1; words <= 10; ++words) {
    SCOPED_TRACE(words);
    const Bytes frame = PacketBuilder(golden).ip_options(words).build();
    expect_parses_to(frame, golden);
    const Parsed parsed = parse(frame);
    EXPECT_EQ(parsed.frame->payload, parsed.memory.get() + kPayloadAt + 4 * words);
    EXPECT_EQ(parsed.frame->payload_bytes, 16u);
  }
  for (const size_t padding : {1, 2, 46, 1000}) {
    const Bytes frame = PacketBuilder(golden).padding(padding, std::byte{0xaa}).build();
    expect_parses_to(frame, golden);
    EXPECT_EQ(parse(frame).frame->payload_bytes, 16u);
  }
  expect_parses_to(PacketBuilder(golden).set_be16(testing::kUdpChecksumAt, 0xbeef).build(), golden);
  expect_parses_to(PacketBuilder(golden).set_byte(testing::kIpTtlAt, 3).fix_ip_checksum().build(),
                   golden);
}

TEST(Frame, LaneRange) {
  const auto accepted = [](uint16_t port, uint16_t first, uint16_t lanes) {
    wire::Address to = testing::golden_grad().envelope().destination;
    to.udp_port = port;
    const Parsed parsed = parse(testing::golden_grad().to(to).build(), first, lanes);
    if (!parsed.frame) {
      EXPECT_EQ(parsed.frame.error(), DropReason::kNotIna);
    }
    return parsed.frame.has_value();
  };
  EXPECT_TRUE(accepted(7584, 7584, 2));
  EXPECT_TRUE(accepted(7585, 7584, 2));
  EXPECT_FALSE(accepted(7586, 7584, 2));
  EXPECT_FALSE(accepted(7583, 7584, 2));
  EXPECT_TRUE(accepted(1, 7584, 0));
  EXPECT_TRUE(accepted(65535, 65535, 4));
  EXPECT_FALSE(accepted(0, 65535, 4)) << "the range must not wrap";
  EXPECT_TRUE(accepted(0xffff, 0, 0xffff) == false && accepted(0xfffe, 0, 0xffff));
}

struct Fixture {
  const char* what;
  Bytes bytes;
  std::optional<DropReason> expected;
};

std::vector<Fixture> fixtures() {
  using enum DropReason;
  using testing::kEthertypeAt;
  using wire::Type;
  const auto grad = [] { return PacketBuilder().elements(256); };
  const auto content = [](const Bytes& bytes) {
    // A UDP datagram of just these bytes, everything around it right.
    return PacketBuilder()
        .edit([=](Bytes& frame) {
          frame.resize(kInaAt);
          frame.insert(frame.end(), bytes.begin(), bytes.end());
          testing::put_be16(frame, testing::kUdpLengthAt,
                            static_cast<uint16_t>(wire::kUdpBytes + bytes.size()));
          testing::put_be16(frame, testing::kIpTotalLengthAt,
                            static_cast<uint16_t>(frame.size() - wire::kEthernetBytes));
          testing::fix_ip_checksum(frame);
        })
        .build();
  };
  const auto ina_byte = [&](size_t at, uint8_t value) {
    return grad().set_byte(kInaAt + at, value).fix_crc().build();
  };
  return {
      // Accepted: the others differ from these in one thing.
      {"grad", grad().build(), {}},
      {"grad of no elements", grad().elements(0).build(), {}},
      {"tail of an operation", grad().operation(3, 1000).build(), {}},
      {"part", grad().type(Type::kPart).build(), {}},
      {"result", grad().type(Type::kResult).origin(wire::Origin::kSwitch).build(), {}},
      {"stale", grad().type(Type::kStale).build(), {}},
      {"part of int8: accumulators", grad().dtype(DType::kInt8).type(Type::kPart).build(), {}},

      {"nothing", {}, kTruncated},
      {"half an Ethernet header", grad().truncate(13).build(), kTruncated},
      {"Ethernet header only", grad().truncate(14).build(), kTruncated},
      {"IPv4 header of 16 bytes", grad().set_byte(14, 0x44).fix_ip_checksum().build(), kTruncated},
      {"IPv4 header longer than the frame", grad().set_byte(14, 0x4f).truncate(60).build(),
       kTruncated},
      {"IPv4 total length above the frame's",
       grad().set_be16(testing::kIpTotalLengthAt, 5000).fix_ip_checksum().build(), kTruncated},
      {"IPv4 total length below its header",
       grad().set_be16(testing::kIpTotalLengthAt, 19).fix_ip_checksum().build(), kTruncated},
      {"IPv4 total length without UDP header",
       grad().set_be16(testing::kIpTotalLengthAt, 27).fix_ip_checksum().build(), kTruncated},
      {"UDP length 0", grad().set_be16(testing::kUdpLengthAt, 0).build(), kTruncated},
      {"UDP length 7", grad().set_be16(testing::kUdpLengthAt, 7).build(), kTruncated},
      {"UDP length above IPv4's", grad().set_be16(testing::kUdpLengthAt, 1105).build(), kTruncated},
      {"UDP length above IPv4's, within the padding",
       grad().set_be16(testing::kUdpLengthAt, 1105).padding(64).build(), kTruncated},
      {"empty datagram", content({}), kTruncated},
      {"two bytes, the magic", content(from_hex("494e")), kTruncated},
      {"header one byte short",
       content(Bytes(kGoldenGrad.begin() + kInaAt, kGoldenGrad.begin() + kPayloadAt - 1)),
       kTruncated},

      {"ARP", grad().set_be16(kEthertypeAt, 0x0806).build(), kNotIna},
      {"IPv6", grad().set_be16(kEthertypeAt, 0x86dd).build(), kNotIna},
      {"802.1Q", grad().vlan(5).build(), kNotIna},
      {"IP version 6 behind IPv4's ethertype", grad().set_byte(14, 0x65).build(), kNotIna},
      {"TCP", grad().set_byte(testing::kIpProtocolAt, 6).fix_ip_checksum().build(), kNotIna},
      {"another UDP port", grad().set_be16(testing::kUdpDestinationAt, 53).build(), kNotIna},
      {"another port, wrong IPv4 checksum",
       grad().set_be16(testing::kUdpDestinationAt, 53).set_byte(testing::kIpTtlAt, 1).build(),
       kNotIna},
      {"another magic", ina_byte(0, 'X'), kNotIna},
      {"four bytes, another magic", content(from_hex("deadbeef")), kNotIna},

      {"first fragment", grad().set_be16(testing::kIpFragmentAt, 0x2000).fix_ip_checksum().build(),
       kIpFragment},
      {"middle fragment", grad().set_be16(testing::kIpFragmentAt, 0x2001).fix_ip_checksum().build(),
       kIpFragment},
      {"last fragment", grad().set_be16(testing::kIpFragmentAt, 0x0100).fix_ip_checksum().build(),
       kIpFragment},

      {"TTL changed", grad().set_byte(testing::kIpTtlAt, 63).build(), kIpChecksum},
      {"no IPv4 checksum", grad().set_be16(testing::kIpChecksumAt, 0).build(), kIpChecksum},
      {"options changed", grad().ip_options(2).set_byte(testing::kUdpAt, 0).build(), kIpChecksum},

      {"version 0", ina_byte(2, 0), kVersion},
      {"version 1", ina_byte(2, 1), kVersion},
      {"version 3", ina_byte(2, 3), kVersion},
      {"version 3 with a shorter header", content(from_hex("494e0300")), kVersion},

      {"payload changed", grad().set_byte(kPayloadAt + 9, 0).build(), kCrc},
      {"header changed", grad().set_byte(kInaAt + 4, 9).build(), kCrc},
      {"CRC 0",
       grad()
           .edit([](Bytes& frame) {
             for (size_t i = 0; i < 4; ++i) frame[testing::kCrcAt + i] = std::byte{0};
           })
           .build(),
       kCrc},
      {"one byte fewer, UDP length agreeing", grad().set_be16(testing::kUdpLengthAt, 1103).build(),
       kCrc},

      {"type 0", ina_byte(3, 0), kBadType},
      {"type 14", ina_byte(3, 14), kBadType},
      {"origin 4", ina_byte(50, 4), kBadType},
      {"origin 15", ina_byte(50, 0x0f), kBadType},
      {"phase 5", ina_byte(50, 0x50), kBadType},
      {"phase 15", ina_byte(50, 0xf0), kBadType},
      {"dtype 0", ina_byte(46, 0), kBadDtype},
      {"dtype 10", ina_byte(46, 10), kBadDtype},
      {"op 0", ina_byte(47, 0), kBadOp},
      {"op 9", ina_byte(47, 9), kBadOp},
      {"bitwise operation of floats", grad().dtype(DType::kFloat32).op(Op::kBor).build(), kBadOp},
      {"avg of integers", grad().dtype(DType::kInt32).op(Op::kAvg).build(), kBadOp},
      {"collective 0", ina_byte(55, 0), kBadOp},
      {"collective 11", ina_byte(55, 11), kBadOp},
      {"receiver 4097", grad().receiver(4097).build(), kBadRank},
      {"mark of an all-reduce", grad().flags(wire::kFlagBare).payload({}).build(), kBadLength},
      {"more elements than a slot has room for", grad().elements(257).build(), kBadLength},
      {"more elements than the operation", grad().operation(1, 255).build(), kBadLength},
      {"empty fragment of an operation", grad().elements(0).operation(1, 5).build(), kBadLength},
      {"element count without payload", grad().payload({}).build(), kBadLength},
      {"payload one byte long", grad().payload(Bytes(1025)).build(), kBadLength},
      {"payload one byte short", grad().payload(Bytes(1023)).build(), kBadLength},
      {"part of int8 carrying int8",
       grad().dtype(DType::kInt8).payload(Bytes(256)).type(Type::kPart).build(), kBadLength},
      {"STALE with a payload", grad().type(Type::kStale).payload(Bytes(4)).build(), kBadLength},
      {"rank 65", grad().rank(Rank{65}).build(), kBadRank},
      {"rank 255", ina_byte(48, 255), kBadRank},
      {"part of nobody", grad().type(Type::kPart).bitmap({}).build(), kBadRank},
      {"parked sum of nobody", grad().type(Type::kPark).bitmap({}).build(), kBadRank},
  };
}

TEST(Frame, FixturesAreAcceptedOrDroppedForTheirReason) {
  std::set<DropReason> seen;
  for (const Fixture& fixture : fixtures()) {
    const auto reason = verdict(fixture.bytes);
    EXPECT_EQ(text(reason), text(fixture.expected)) << fixture.what;
    if (reason) seen.insert(*reason);
  }
  // All reasons of the groups "frame" and "message". A frame holds no offset: kBadOffset is the shm
  // port's. Only devices report a wrong UDP checksum.
  seen.insert(DropReason::kUdpChecksum);
  for (auto reason = DropReason::kTruncated; reason <= DropReason::kBadRank;
       reason = static_cast<DropReason>(static_cast<int>(reason) + 1))
    EXPECT_TRUE(seen.contains(reason)) << name(reason) << " has no fixture";
}

TEST(Frame, EveryTruncationIsTruncated) {
  for (const Bytes& whole : {kGoldenGrad, PacketBuilder().ip_options(3).build()})
    for (size_t length = 0; length < whole.size(); ++length) {
      const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_EQ(text(verdict(part)), "truncated") << length;
    }
}

TEST(Frame, EverySingleBitFlipOfHeaderAndPayloadIsCaught) {
  const Bytes whole = PacketBuilder().elements(256).build();
  for (size_t at = kInaAt; at < whole.size(); ++at) {
    const DropReason expected = at < kInaAt + 2    ? DropReason::kNotIna
                                : at == kInaAt + 2 ? DropReason::kVersion
                                                   : DropReason::kCrc;
    for (int bit = 0; bit < 8; ++bit) {
      Bytes flipped(whole);
      flipped[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_EQ(text(verdict(flipped)), text(expected)) << "byte " << at << " bit " << bit;
    }
  }
}

TEST(Frame, EverySingleBitFlipOfTheIpHeaderIsCaught) {
  const Bytes whole = testing::golden_grad().build();
  for (size_t at = testing::kIpAt; at < testing::kUdpAt; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      Bytes flipped(whole);
      flipped[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(parse(flipped).frame) << "byte " << at << " bit " << bit;
    }
}

// ---- tags

constexpr wire::TagKeys kTagKeys = {{0x0706050403020100, 0x0f0e0d0c0b0a0908},
                                    {0x1716151413121110, 0x1f1e1d1c1b1a1918}};

/// The worked example with a tag.
Bytes tagged_grad() {
  const PacketBuilder grad = testing::golden_grad();
  Bytes frame = grad.build();
  const std::span payload = std::span(frame).subspan(wire::kFrameHeaderBytes);
  const wire::Seal seal = wire::make_seal(kTagKeys, payload);
  wire::encode_headers(grad.envelope(), grad.message(), payload, frame, &seal);
  return frame;
}

bool proves(const Bytes& bytes, const wire::TagKeys& keys = kTagKeys) {
  const Parsed parsed = parse(bytes);
  EXPECT_TRUE(parsed.frame);
  const wire::Frame& frame = *parsed.frame;
  return wire::tag_matches(frame, wire::make_seal(keys, {frame.payload, frame.payload_bytes}));
}

/// With the CRC right again, so that only the tag can tell.
Bytes resealed(Bytes frame) {
  const std::span ina = std::span(frame).subspan(testing::kInaAt);
  const uint32_t crc =
      wire::frame_crc(ina.first<wire::kInaHeaderBytes>(), ina.subspan(wire::kInaHeaderBytes));
  for (size_t i = 0; i < 4; ++i) frame[testing::kCrcAt + i] = static_cast<std::byte>(crc >> 8 * i);
  return frame;
}

TEST(Tag, IsTheOneInTheSpecification) {
  const Parsed parsed = parse(tagged_grad());
  ASSERT_TRUE(parsed.frame);
  // Computed from docs/protocol.md alone by tests/net/second_worker.py.
  EXPECT_EQ(parsed.frame->envelope.tag, 0x9d4bd303b2099c5eu);
  EXPECT_TRUE(proves(tagged_grad()));
}

TEST(Tag, EveryByteOfMessageAndPayloadCounts) {
  const Bytes good = tagged_grad();
  for (size_t at = testing::kInaAt; at < good.size(); ++at) {
    if (at >= testing::kCrcAt && at < testing::kCrcAt + 4) continue;
    // Another magic or version is no frame at all.
    if (at < testing::kInaAt + 3) continue;
    Bytes changed = good;
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(proves(resealed(changed))) << at;
  }
}

TEST(Tag, AddressesAndKeysCount) {
  wire::Frame frame = *parse(tagged_grad()).frame;
  const Parsed parsed = parse(tagged_grad());
  frame = *parsed.frame;
  const wire::Seal seal = wire::make_seal(kTagKeys, std::span(frame.payload, frame.payload_bytes));
  EXPECT_TRUE(wire::tag_matches(frame, seal));
  const auto changed = [&](auto change) {
    wire::Frame other = frame;
    change(other.envelope);
    return wire::tag_matches(other, seal);
  };
  EXPECT_FALSE(changed([](wire::Envelope& e) { ++e.source.ip; }));
  EXPECT_FALSE(changed([](wire::Envelope& e) { ++e.destination.ip; }));
  EXPECT_FALSE(changed([](wire::Envelope& e) { ++e.source.udp_port; }));
  EXPECT_FALSE(changed([](wire::Envelope& e) { ++e.destination.udp_port; }));
  EXPECT_FALSE(changed([](wire::Envelope& e) { std::swap(e.source, e.destination); }))
      << "sent back to where it came from";
  for (int word = 0; word < 4; ++word) {
    wire::TagKeys keys = kTagKeys;
    uint64_t* const words[] = {&keys.frame.k0, &keys.frame.k1, &keys.payload.k0, &keys.payload.k1};
    *words[word] ^= uint64_t{1} << 63;
    EXPECT_FALSE(proves(tagged_grad(), keys)) << word;
  }
}

TEST(Tag, ADatagramHasTheSame) {
  const Bytes frame = tagged_grad();
  const std::span datagram = std::span(frame).subspan(testing::kInaAt);
  std::array<std::byte, wire::kInaHeaderBytes> header{};
  const PacketBuilder grad = testing::golden_grad();
  const std::span payload = datagram.subspan(wire::kInaHeaderBytes);
  const wire::Seal seal = wire::make_seal(kTagKeys, payload);
  wire::encode_ina_header(grad.envelope(), grad.message(), payload, header, &seal);
  EXPECT_TRUE(std::ranges::equal(header, datagram.first(wire::kInaHeaderBytes)));
  auto parsed = wire::parse_datagram(datagram);
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(wire::tag_matches(*parsed, seal)) << "addresses are not filled in";
  parsed->envelope.source = grad.envelope().source;
  parsed->envelope.destination = grad.envelope().destination;
  EXPECT_TRUE(wire::tag_matches(*parsed, seal));
}

}  // namespace
}  // namespace ina
