#include "io/ethdev/switch_addresses.h"

#include <gtest/gtest.h>

#include "tests/ethdev/frames.h"

namespace ina::io {
namespace {

constexpr SwitchAddress kOwn{kSwitch.ip, 10};
constexpr SwitchAddress kOthers[] = {{kSwitch.ip, 0}, {0x0a000101, 20}};

class SwitchAddressesTest : public ::testing::Test {
 protected:
  /// Which address a request for `ip` is for.
  const SwitchAddress* asked(uint32_t ip, uint16_t vlan) const {
    const Bytes request = arp_request(kWorkers[0], ip);
    return addresses_.addressed_by(vlan == 0 ? request : tagged(request, vlan));
  }

  SwitchAddresses addresses_{kOwn, {std::begin(kOthers), std::end(kOthers)}};
};

TEST_F(SwitchAddressesTest, AreFoundByIpAndVlan) {
  EXPECT_EQ(asked(kOwn.ip, kOwn.vlan), &addresses_.own());
  for (const SwitchAddress& other : kOthers) {
    const SwitchAddress* const found = asked(other.ip, other.vlan);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found, other);
  }
}

TEST_F(SwitchAddressesTest, AnotherVlanOrIpIsSomebodyElses) {
  EXPECT_EQ(asked(kOwn.ip, 20), nullptr);
  EXPECT_EQ(asked(kOthers[1].ip, 0), nullptr);
  EXPECT_EQ(asked(kOthers[1].ip, kOwn.vlan), nullptr);
  EXPECT_EQ(asked(kWorkers[1].ip, kOwn.vlan), nullptr);
}

TEST_F(SwitchAddressesTest, TheMacAddressAloneIsTheBridges) {
  Bytes frame = tagged(arp_reply(kWorkers[0], kSwitch), kOwn.vlan);
  EXPECT_EQ(addresses_.addressed_by(frame), nullptr);
  wire::Address elsewhere = kSwitch;
  elsewhere.mac = kWorkers[1].mac;
  frame = tagged(echo(kWorkers[0], elsewhere, 8, 1), kOwn.vlan);
  EXPECT_EQ(addresses_.addressed_by(frame), &addresses_.own());
}

TEST_F(SwitchAddressesTest, WhatIsTooShortStays) {
  const Bytes frame = tagged(arp_request(kWorkers[0], kWorkers[1].ip), kOwn.vlan);
  for (size_t bytes = 0; bytes <= frame.size(); ++bytes) {
    const auto* const found = addresses_.addressed_by(std::span(frame).first(bytes));
    EXPECT_EQ(found, bytes < wire::kEthernetBytes ? &addresses_.own() : nullptr) << bytes;
  }
}

}  // namespace
}  // namespace ina::io
