// Checksums that a sender has left to a device: of TCP and UDP, over IPv4 and IPv6, behind tags.
#include "io/ethdev/unfinished_checksum.h"

#include <gtest/gtest.h>

#include "tests/ethdev/frames.h"

namespace ina::io {
namespace {

constexpr uint8_t kTcp = 6, kUdp = 17, kIcmp = 1;

void append(Bytes& to, std::initializer_list<int> bytes) {
  for (const int byte : bytes) to.push_back(static_cast<std::byte>(byte));
}

struct Packet {
  bool ipv6;
  uint8_t protocol;
  bool has_tag;
  size_t payload;

  size_t segment_bytes() const { return (protocol == kTcp ? 20 : 8) + payload; }
  size_t segment_at() const { return 14 + (has_tag ? 4 : 0) + (ipv6 ? 40 : 20); }
  size_t checksum_at() const { return segment_at() + (protocol == kTcp ? 16 : 6); }
  size_t addresses_at() const { return segment_at() - (ipv6 ? 32 : 8); }

  /// With something else where the checksum belongs, and padded as Ethernet does.
  Bytes frame() const {
    Bytes all(12, std::byte{2});
    if (has_tag) append(all, {0x81, 0, 0, 10});
    const auto bytes = static_cast<int>(segment_bytes());
    if (ipv6) {
      append(all, {0x86, 0xdd, 0x60, 0, 0, 0, bytes >> 8, bytes & 255, protocol, 64});
      for (int i = 0; i < 32; ++i) append(all, {3 * i});
    } else {
      const int total = 20 + bytes;
      append(all, {8, 0, 0x45, 0, total >> 8, total & 255, 0, 0, 0, 0, 64, protocol, 0, 0});
      append(all, {10, 0, 0, 1, 10, 0, 0, 2});
    }
    for (int i = 0; i < bytes; ++i) append(all, {i * 7 % 256});
    if (all.size() < 60) all.resize(60, std::byte{0xff});
    return all;
  }

  /// 0: the checksum is right (RFC 1071, RFC 8200).
  uint16_t sum(const Bytes& frame) const {
    Bytes all(frame.begin() + addresses_at(), frame.begin() + segment_at());
    const auto bytes = static_cast<int>(segment_bytes());
    append(all, {0, protocol, bytes >> 8, bytes & 255});
    all.insert(all.end(), frame.begin() + segment_at(),
               frame.begin() + segment_at() + segment_bytes());
    return internet_checksum(all);
  }
};

TEST(UnfinishedChecksum, IsWritten) {
  for (const bool ipv6 : {false, true})
    for (const uint8_t protocol : {kTcp, kUdp})
      for (const bool has_tag : {false, true})
        for (const size_t payload : {0, 1, 5, 700}) {
          const Packet packet{ipv6, protocol, has_tag, payload};
          const Bytes before = packet.frame();
          Bytes frame = before;
          ASSERT_NE(packet.sum(frame), 0);
          finish_checksum(frame);
          EXPECT_EQ(packet.sum(frame), 0)
              << ipv6 << ' ' << protocol << ' ' << has_tag << ' ' << payload;
          std::copy_n(before.begin() + packet.checksum_at(), 2,
                      frame.begin() + packet.checksum_at());
          EXPECT_EQ(frame, before) << "nothing else is";
        }
}

TEST(UnfinishedChecksum, OtherFramesStayAsTheyAre) {
  const auto stays = [](Bytes frame) {
    const Bytes before = frame;
    finish_checksum(frame);
    return frame == before;
  };
  EXPECT_TRUE(stays(Packet{false, kIcmp, false, 30}.frame()));
  EXPECT_TRUE(stays(arp_request(kWorkers[0], kSwitch.ip)));
  for (const bool ipv6 : {false, true}) {
    const Packet packet{ipv6, kTcp, true, 100};
    for (size_t bytes = 0; bytes < packet.segment_at() + packet.segment_bytes(); ++bytes) {
      const Bytes frame = packet.frame();
      EXPECT_TRUE(stays({frame.begin(), frame.begin() + bytes})) << bytes;
    }
    Bytes short_of_header = packet.frame();
    short_of_header[ipv6 ? 23 : 21] =
        static_cast<std::byte>(ipv6 ? 19 : 39);  // says that TCP's header is cut
    short_of_header[ipv6 ? 22 : 20] = std::byte{0};
    EXPECT_TRUE(stays(short_of_header));
  }
  Bytes wrong_header = Packet{false, kTcp, false, 100}.frame();
  wrong_header[14] = std::byte{0x44};
  EXPECT_TRUE(stays(wrong_header));
}

}  // namespace
}  // namespace ina::io
