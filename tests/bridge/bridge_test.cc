#include "io/bridge/bridge.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ina::bridge {
namespace {

using To = Decision::To;
constexpr Nanos kSecondNs = 1'000'000'000;
constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr wire::MacAddress kMulticast = {0x01, 0, 0x5e, 1, 2, 3};

wire::MacAddress host(uint8_t number) {
  return {0x02, 0, 0, 0, 1, number};
}
wire::MacAddress own(uint8_t port) {
  return {0x02, 0, 0, 0, 0, port};
}

class BridgeTest : public testing::Test {
 protected:
  static BridgeConfig config() {
    return {.mac_entries = 64, .ageing_ns = 10 * kSecondNs, .storm_limit_frames_per_s = 100};
  }
  BridgeTest() {
    for (PortIndex port = 0; port < 3; ++port) bridge_.set_link(port, true);
  }
  Decision decide(const wire::MacAddress& to, const wire::MacAddress& from, PortIndex ingress,
                  Nanos now = 0) {
    return bridge_.decide({.destination = to, .source = from}, ingress, now);
  }
  void expect_drop(const Decision& decision, DropReason reason) {
    EXPECT_EQ(decision.to, To::kNowhere);
    EXPECT_EQ(name(decision.reason), name(reason));
  }

  Bridge bridge_{config(), {own(0), own(1), own(2)}};
};

TEST_F(BridgeTest, AddressesAreTheFirstTwelveBytes) {
  std::array<std::byte, 14> frame{};
  for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i + 1);
  const Addresses addresses = addresses_of(frame);
  EXPECT_EQ(addresses.destination, (wire::MacAddress{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(addresses.source, (wire::MacAddress{7, 8, 9, 10, 11, 12}));
}

TEST_F(BridgeTest, TheVlanIsThatOfAnOutermost8021QTag) {
  std::array<std::byte, 22> frame{};
  const auto with = [&](std::initializer_list<int> bytes, size_t size) {
    std::ranges::transform(bytes, frame.begin() + 12, [](int b) { return std::byte(b); });
    return addresses_of(std::span(frame).first(size)).vlan;
  };
  EXPECT_EQ(with({0x81, 0, 0x6f, 0xfe}, 18), 4094) << "priority and drop eligibility aside";
  EXPECT_EQ(with({0x81, 0, 0xe0, 0x00}, 18), 0);
  EXPECT_EQ(with({0x81, 0, 0x00, 0x07, 0x81, 0, 0, 9}, 22), 7);
  EXPECT_EQ(with({0x81, 0, 0x00, 0x07}, 17), 0) << "cut off";
  EXPECT_EQ(with({0x88, 0xa8, 0x00, 0x07, 0x81, 0, 0, 9}, 22), 0) << "a provider's tag";
  EXPECT_EQ(with({0x08, 0x00, 0x00, 0x07}, 18), 0);
}

TEST_F(BridgeTest, WhatIsKnownInOneVlanIsUnknownInAnother) {
  const auto tagged = [&](uint8_t to, uint8_t from, VlanId vlan, PortIndex ingress) {
    return bridge_.decide({.destination = host(to), .source = host(from), .vlan = vlan}, ingress,
                          0);
  };
  tagged(9, 1, 10, 0);
  EXPECT_EQ(tagged(1, 2, 20, 1).to, To::kAllOthers);
  EXPECT_EQ(tagged(1, 2, 0, 1).to, To::kAllOthers);
  const Decision there = tagged(1, 2, 10, 1);
  EXPECT_EQ(there.to, To::kPort);
  EXPECT_EQ(there.port, 0);
  // An address that is seen elsewhere, in another VLAN, is somebody else's.
  tagged(9, 1, 20, 2);
  EXPECT_EQ(tagged(1, 2, 10, 1).port, 0);
  EXPECT_EQ(tagged(1, 2, 20, 1).port, 2);
  EXPECT_EQ(bridge_.table().counters().moved, 0u);
}

TEST_F(BridgeTest, PortsThatAreNoMembersHaveNoPart) {
  BridgeConfig vlans = config();
  vlans.vlans = {{10}, {10, 20}, {}};
  Bridge bridge(vlans, {own(0), own(1), own(2)});
  for (PortIndex port = 0; port < 3; ++port) bridge.set_link(port, true);
  const auto tagged = [&](uint8_t to, uint8_t from, VlanId vlan, PortIndex ingress) {
    return bridge.decide({.destination = host(to), .source = host(from), .vlan = vlan}, ingress, 0);
  };
  EXPECT_EQ(bridge.others_up(2, 10), 0b011u);
  EXPECT_EQ(bridge.others_up(2, 20), 0b010u);
  EXPECT_EQ(bridge.others_up(1, 20), 0b100u);
  EXPECT_EQ(bridge.others_up(2, 0), 0u);
  expect_drop(tagged(9, 1, 20, 0), DropReason::kVlan);
  expect_drop(tagged(9, 1, 0, 0), DropReason::kVlan);
  expect_drop(tagged(9, 1, 4095, 2), DropReason::kVlan);
  bridge.learn({.destination = own(0), .source = host(1), .vlan = 20}, 0, 0);
  EXPECT_EQ(bridge.table().size(), 0u) << "and is not learned";
  expect_drop(tagged(9, 1, 5, 2), DropReason::kNoPort);
  EXPECT_EQ(tagged(9, 1, 10, 0).to, To::kAllOthers);
}

TEST_F(BridgeTest, FloodsToUnknownAndForwardsToKnown) {
  EXPECT_EQ(decide(host(2), host(1), 0).to, To::kAllOthers);
  const Decision back = decide(host(1), host(2), 1);
  EXPECT_EQ(back.to, To::kPort);
  EXPECT_EQ(back.port, 0);
  const Decision there = decide(host(2), host(1), 0);
  EXPECT_EQ(there.to, To::kPort);
  EXPECT_EQ(there.port, 1);
}

TEST_F(BridgeTest, FloodsGroups) {
  EXPECT_EQ(decide(kBroadcast, host(1), 0).to, To::kAllOthers);
  EXPECT_EQ(decide(kMulticast, host(1), 0).to, To::kAllOthers);
  EXPECT_EQ(bridge_.others_up(0, 0), 0b110u);
  EXPECT_EQ(bridge_.others_up(1, 0), 0b101u);
}

TEST_F(BridgeTest, NeverBackToWhereItCameFrom) {
  decide(kBroadcast, host(1), 0);
  decide(kBroadcast, host(2), 0);
  expect_drop(decide(host(2), host(1), 0), DropReason::kSamePort);
}

TEST_F(BridgeTest, LearnsFromWhatWasForTheSwitch) {
  bridge_.learn({.destination = own(2), .source = host(1)}, 2, 0);
  const Decision decision = decide(host(1), host(2), 0);
  EXPECT_EQ(decision.to, To::kPort);
  EXPECT_EQ(decision.port, 2);
}

TEST_F(BridgeTest, SourcesThatCannotBeAreDropped) {
  expect_drop(decide(host(1), kMulticast, 0), DropReason::kBadMac);
  expect_drop(decide(host(1), kBroadcast, 0), DropReason::kBadMac);
  expect_drop(decide(host(1), {}, 0), DropReason::kBadMac);
  // The switch hears itself, at whichever port: a loop, or a spoof.
  expect_drop(decide(kBroadcast, own(1), 0), DropReason::kBadMac);
  expect_drop(decide(kBroadcast, own(1), 1), DropReason::kBadMac);
  bridge_.learn({.destination = kBroadcast, .source = own(1)}, 0, 0);
  EXPECT_EQ(bridge_.table().size(), 0u);
}

TEST_F(BridgeTest, FramesToTheSwitchAreNotForwarded) {
  for (const PortIndex ingress : {0, 1, 2})
    for (const uint8_t port : {0, 1, 2})
      expect_drop(decide(own(port), host(1), ingress), DropReason::kNotIna);
}

TEST_F(BridgeTest, LinkLocalGroupsStayOnTheWire) {
  for (uint8_t last = 0; last < 16; ++last)
    expect_drop(decide({0x01, 0x80, 0xc2, 0, 0, last}, host(2), 0), DropReason::kLinkLocal);
  EXPECT_EQ(decide({0x01, 0x80, 0xc2, 0, 0, 16}, host(1), 0).to, To::kAllOthers);
  EXPECT_EQ(decide({0x01, 0x80, 0xc2, 0, 1, 0}, host(1), 0).to, To::kAllOthers);
  EXPECT_EQ(bridge_.table().size(), 1u) << "of the frames that were passed on";
}

TEST_F(BridgeTest, NothingIsLearnedOfDroppedFrames) {
  const auto expect_unlearned = [this](DropReason reason, const Addresses& frame) {
    expect_drop(bridge_.decide(frame, 1, 0), reason);
    EXPECT_EQ(bridge_.table().find(frame.source, frame.vlan, 0), 0) << name(reason);
    EXPECT_EQ(bridge_.table().counters().moved, 0u) << name(reason);
  };
  for (int i = 0; i < 100; ++i) decide(kBroadcast, host(200), 1);
  for (uint8_t number = 1; number < 5; ++number) decide(kBroadcast, host(number), 0);
  expect_unlearned(DropReason::kLinkLocal,
                   {.destination = {0x01, 0x80, 0xc2, 0, 0, 14}, .source = host(1)});
  expect_unlearned(DropReason::kNotIna, {.destination = own(2), .source = host(2)});
  expect_unlearned(DropReason::kStorm, {.destination = kBroadcast, .source = host(3)});
  expect_unlearned(DropReason::kStorm, {.destination = host(99), .source = host(4)});
  bridge_.set_link(0, false);
  bridge_.set_link(2, false);
  expect_drop(decide(kBroadcast, host(20), 1, kSecondNs), DropReason::kNoPort);
  EXPECT_EQ(bridge_.table().find(host(20), 0, 0), std::nullopt);
}

TEST_F(BridgeTest, AHostWhoseFramesNeedNotBePassedOnStaysKnown) {
  decide(kBroadcast, host(1), 0);
  decide(kBroadcast, host(2), 0);
  expect_drop(decide(host(2), host(1), 0, 9 * kSecondNs), DropReason::kSamePort);
  expect_drop(decide(host(3), host(3), 0, 9 * kSecondNs), DropReason::kSamePort);
  EXPECT_EQ(decide(host(1), host(9), 1, 18 * kSecondNs).to, To::kPort);
  EXPECT_EQ(decide(host(3), host(9), 1, 18 * kSecondNs).to, To::kPort);
}

TEST_F(BridgeTest, CountsByPortWhatBecameKnownThere) {
  decide(kBroadcast, host(1), 0);
  decide(kBroadcast, host(2), 0);
  decide(kBroadcast, host(1), 1);
  EXPECT_EQ(bridge_.table().at(0).learned, 2u);
  EXPECT_EQ(bridge_.table().at(0).moved, 0u);
  EXPECT_EQ(bridge_.table().at(1).learned, 0u);
  EXPECT_EQ(bridge_.table().at(1).moved, 1u);
}

TEST_F(BridgeTest, HostsThatAreSilentAreForgotten) {
  decide(kBroadcast, host(1), 0);
  EXPECT_EQ(decide(host(1), host(2), 1, 10 * kSecondNs - 1).to, To::kPort);
  EXPECT_EQ(decide(host(1), host(2), 1, 10 * kSecondNs).to, To::kAllOthers);
}

TEST_F(BridgeTest, TicksRemoveTheSilentFromTheTable) {
  decide(kBroadcast, host(1), 0);
  bridge_.tick(0);
  EXPECT_EQ(bridge_.table().size(), 1u);
  for (Nanos now = 0; now <= 15 * kSecondNs; now += kSecondNs / 10) bridge_.tick(now);
  EXPECT_EQ(bridge_.table().size(), 0u);
}

TEST_F(BridgeTest, NothingGoesWhereTheLinkIsDown) {
  decide(kBroadcast, host(1), 0);
  decide(kBroadcast, host(2), 1);
  bridge_.set_link(1, false);
  EXPECT_FALSE(bridge_.link_up(1));
  EXPECT_EQ(bridge_.table().size(), 1u);
  EXPECT_EQ(decide(host(2), host(1), 0).to, To::kAllOthers) << "it may be elsewhere by now";
  EXPECT_EQ(bridge_.others_up(0, 0), 0b100u);
  // A last frame of it, still in the queue, does not bring the address back.
  decide(host(1), host(2), 1);
  EXPECT_EQ(bridge_.table().size(), 1u);
  bridge_.set_link(2, false);
  expect_drop(decide(host(2), host(1), 0), DropReason::kNoPort);
  bridge_.set_link(1, true);
  EXPECT_EQ(decide(host(2), host(1), 0).to, To::kAllOthers);
  EXPECT_EQ(bridge_.others_up(0, 0), 0b010u);
}

TEST_F(BridgeTest, AllLinksAreDownAtFirst) {
  Bridge bridge(config(), {own(0), own(1)});
  expect_drop(bridge.decide({.destination = kBroadcast, .source = host(1)}, 0, 0),
              DropReason::kNoPort);
  EXPECT_EQ(bridge.table().size(), 0u);
}

TEST_F(BridgeTest, AStormIsCutToItsLimit) {
  // 100 a second, of which 10 at once.
  const auto flooded = [this](uint32_t frames, Nanos begin, Nanos step, PortIndex ingress,
                              const wire::MacAddress& to) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < frames; ++i) {
      const Decision decision = decide(to, host(1), ingress, begin + i * step);
      if (decision.to == To::kAllOthers)
        ++count;
      else
        expect_drop(decision, DropReason::kStorm);
    }
    return count;
  };
  EXPECT_EQ(flooded(1000, 0, 0, 0, kBroadcast), 10u);
  // Dropped frames do not count: the limit is reached, no more and no less.
  EXPECT_EQ(flooded(1000, kSecondNs, kSecondNs / 1000, 0, kMulticast), 10u + 99u);
  // Below the limit nothing is lost, and each port has its own.
  EXPECT_EQ(flooded(50, 3 * kSecondNs, kSecondNs / 100, 0, host(9)), 50u);
  EXPECT_EQ(flooded(1000, 4 * kSecondNs, 0, 0, host(9)), 10u);
  EXPECT_EQ(flooded(1000, 4 * kSecondNs, 0, 1, host(9)), 10u);
}

TEST_F(BridgeTest, AStormLeavesKnownDestinationsAlone) {
  decide(kBroadcast, host(2), 1);
  for (int i = 0; i < 1000; ++i) decide(kBroadcast, host(1), 0);
  EXPECT_EQ(decide(host(2), host(1), 0).to, To::kPort);
}

TEST_F(BridgeTest, NoLimitFloodsAll) {
  BridgeConfig unlimited = config();
  unlimited.storm_limit_frames_per_s = 0;
  Bridge bridge(unlimited, {own(0), own(1)});
  for (const PortIndex port : {0, 1}) bridge.set_link(port, true);
  for (int i = 0; i < 100'000; ++i)
    ASSERT_EQ(bridge.decide({.destination = kBroadcast, .source = host(1)}, 0, 0).to,
              To::kAllOthers);
}

}  // namespace
}  // namespace ina::bridge
