#include "io/bridge/source_guard.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ina::bridge {
namespace {

constexpr uint32_t kSwitchIp = 0x0a0000fe, kOtherSwitchIp = 0x0a0000fd;
constexpr uint32_t kIpA = 0x0a000001, kIpB = 0x0a000002;
constexpr wire::MacAddress kA = {2, 0, 0, 0, 0, 1}, kB = {2, 0, 0, 0, 0, 2},
                           kC = {2, 0, 0, 0, 0, 3};

using Frame = std::vector<std::byte>;

void store(Frame& frame, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    frame[at + i] = static_cast<std::byte>(value >> 8 * (bytes - 1 - i) & 0xff);
}

/// `ip_at`: where the source address stands.
Frame frame(const wire::MacAddress& source, uint16_t ethertype, size_t ip_at, uint32_t ip) {
  Frame frame(60);
  std::memcpy(frame.data() + 6, source.data(), source.size());
  store(frame, 12, ethertype, 2);
  store(frame, ip_at, ip, 4);
  return frame;
}
Frame ipv4(const wire::MacAddress& source, uint32_t ip) {
  return frame(source, 0x0800, 26, ip);
}
Frame arp(const wire::MacAddress& source, uint32_t ip) {
  return frame(source, 0x0806, 28, ip);
}
Frame other(const wire::MacAddress& source) {
  return frame(source, 0x86dd, 26, kIpB);
}
Frame tagged(Frame frame, uint32_t tag) {
  Frame bytes(4);
  store(bytes, 0, tag, 4);
  frame.insert(frame.begin() + 12, bytes.begin(), bytes.end());
  return frame;
}

const SourceGuard kOpen({kSwitchIp, kOtherSwitchIp}, {});
const SourceGuard kListed({kSwitchIp, kOtherSwitchIp}, {{kB, kIpB}, {kA, kIpA}, {kA, kIpA + 16}});

TEST(SourceGuard, WithoutAListAnybodyMaySend) {
  EXPECT_TRUE(kOpen.allows(ipv4(kA, kIpA)));
  EXPECT_TRUE(kOpen.allows(ipv4(kC, kIpA)));
  EXPECT_TRUE(kOpen.allows(arp(kC, kIpA)));
  EXPECT_TRUE(kOpen.allows(other(kC)));
  EXPECT_TRUE(kOpen.allows(HostAddress{kC, kIpA}));
}

TEST(SourceGuard, NobodySendsAsTheSwitch) {
  for (const SourceGuard* guard : {&kOpen, &kListed})
    for (const uint32_t ip : {kSwitchIp, kOtherSwitchIp}) {
      EXPECT_FALSE(guard->allows(ipv4(kA, ip)));
      EXPECT_FALSE(guard->allows(arp(kA, ip)));
      // Hosts take VLAN 0 for no VLAN; double tags do not hide it either.
      EXPECT_FALSE(guard->allows(tagged(arp(kA, ip), 0x8100'0000)));
      EXPECT_FALSE(guard->allows(tagged(tagged(ipv4(kA, ip), 0x8100'0000), 0x88a8'0000)));
    }
}

TEST(SourceGuard, AListTiesAddressesTogether) {
  EXPECT_TRUE(kListed.allows(ipv4(kA, kIpA)));
  EXPECT_TRUE(kListed.allows(ipv4(kA, kIpA + 16)));
  EXPECT_TRUE(kListed.allows(arp(kB, kIpB)));
  EXPECT_TRUE(kListed.allows(tagged(arp(kB, kIpB), 0x8100'0007)));
  EXPECT_FALSE(kListed.allows(ipv4(kA, kIpB)));
  EXPECT_FALSE(kListed.allows(ipv4(kC, kIpB)));
  EXPECT_FALSE(kListed.allows(ipv4(kC, kIpB + 1)));
  EXPECT_FALSE(kListed.allows(arp(kB, kIpA)));
  EXPECT_FALSE(kListed.allows(tagged(arp(kB, kIpA), 0x8100'0000)));
  EXPECT_TRUE(kListed.allows(HostAddress{kB, kIpB}));
  EXPECT_FALSE(kListed.allows(HostAddress{kB, kIpA}));
}

TEST(SourceGuard, WhatHasNoIpAddressNeedsAKnownMac) {
  EXPECT_TRUE(kListed.allows(other(kA)));
  EXPECT_FALSE(kListed.allows(other(kC)));
  // A host that looks for an address (DHCP, duplicate detection) has none yet.
  EXPECT_TRUE(kListed.allows(ipv4(kB, 0)));
  EXPECT_TRUE(kListed.allows(arp(kB, 0)));
  EXPECT_FALSE(kListed.allows(arp(kC, 0)));
}

TEST(SourceGuard, ReadsNothingBeyondTheFrame) {
  for (const Frame& whole : {ipv4(kA, kIpB), arp(kA, kIpB), tagged(arp(kA, kIpB), 0x8100'0000)})
    for (size_t bytes = wire::kEthernetBytes; bytes <= whole.size(); ++bytes) {
      const Frame cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
      EXPECT_EQ(kListed.allows(cut), bytes < 30 || (bytes < 32 && whole[13] == std::byte{6}) ||
                                         (bytes < 36 && whole[12] == std::byte{0x81}))
          << bytes;
    }
}

TEST(SourceGuard, LeavesGroupsAndNobodyToTheBridge) {
  EXPECT_TRUE(kListed.allows(ipv4({1, 0, 0, 0, 0, 1}, kIpA)));
  EXPECT_TRUE(kListed.allows(ipv4({}, kIpA)));
}

}  // namespace
}  // namespace ina::bridge
