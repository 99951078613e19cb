// The lane's side of the bridge, over ports that only record their calls.
#include "switchd/lanes/forwarding.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

namespace ina::switchd {
namespace {

constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr Nanos kSecondNs = 1'000'000'000;

wire::MacAddress host(uint8_t number) {
  return {0x02, 0, 0, 0, 1, number};
}

struct FakePort {
  struct Transit {
    bridge::Addresses addresses;
    const char* buffer = nullptr;
    std::optional<bridge::LoopProbe> probe = std::nullopt;
  };
  wire::Address own;
  bool link = true;
  std::vector<Transit> received;
  std::vector<std::string> sent;
  std::map<DropReason, int> drops;
  std::vector<std::vector<std::byte>> probes;
  std::vector<uint16_t> copies;  ///< of each frame handed over

  std::span<const Transit> transit() const { return received; }
  void drop_transit(const Transit&, DropReason reason) { ++drops[reason]; }
  void hand_over(const Transit&) { copies.push_back(1); }
  void hand_over_to_all(const Transit&, uint16_t ports) { copies.push_back(ports); }
  void send_transit(const Transit& frame) { sent.emplace_back(frame.buffer); }
  void send_probe(std::span<const std::byte> frame) {
    probes.emplace_back(frame.begin(), frame.end());
  }
  bool link_up() const { return link; }
  wire::Address address() const { return own; }
};

class ForwardingTest : public testing::Test {
 protected:
  using Sent = std::vector<std::string>;

  ForwardingTest() { forwarding_.tick(0); }
  static std::array<FakePort, 4> make_ports() {
    std::array<FakePort, 4> ports;
    for (uint8_t i = 0; i < 4; ++i) ports[i].own.mac = {0x02, 0, 0, 0, 0, i};
    return ports;
  }
  /// One burst.
  void receive(bridge::PortIndex ingress, std::vector<FakePort::Transit> frames, Nanos now = 0) {
    const size_t count = frames.size();
    ports_[ingress].received = std::move(frames);
    EXPECT_EQ(forwarding_.forward(ingress, now), count);
    ports_[ingress].received.clear();
  }

  std::array<FakePort, 4> ports_ = make_ports();
  Forwarding<FakePort> forwarding_{{}, {&ports_[0], &ports_[1], &ports_[2], &ports_[3]}};
};

TEST_F(ForwardingTest, FramesGoWhereTheBridgeSays) {
  receive(2, {{{host(1), host(2)}, "unknown"}});
  for (const int other : {0, 1, 3}) EXPECT_EQ(ports_[other].sent, Sent{"unknown"});
  receive(0, {{{host(2), host(1)}, "a"}, {{host(9), host(1)}, "b"}, {{host(2), host(1)}, "c"}});
  EXPECT_EQ(ports_[2].sent, (Sent{"a", "b", "c"}));
  EXPECT_EQ(ports_[1].sent, (Sent{"unknown", "b"}));
  EXPECT_EQ(ports_[0].sent, Sent{"unknown"}) << "never back";
  EXPECT_EQ(ports_[0].copies, (std::vector<uint16_t>{1, 3, 1}));
}

TEST_F(ForwardingTest, FloodedFramesStayWithinTheirVlan) {
  bridge::BridgeConfig config;
  config.vlans = {{10}, {10, 20}, {20}, {}};
  forwarding_ = Forwarding<FakePort>(config, {&ports_[0], &ports_[1], &ports_[2], &ports_[3]});
  forwarding_.tick(0);
  receive(3, {{{host(1), host(2), 10}, "ten"},
              {{kBroadcast, host(2), 20}, "twenty"},
              {{kBroadcast, host(2)}, "untagged"}});
  EXPECT_EQ(ports_[0].sent, Sent{"ten"});
  EXPECT_EQ(ports_[1].sent, (Sent{"ten", "twenty"}));
  EXPECT_EQ(ports_[2].sent, Sent{"twenty"});
  EXPECT_EQ(ports_[3].copies, (std::vector<uint16_t>{2, 2}));
  EXPECT_EQ(ports_[3].drops, (std::map<DropReason, int>{{DropReason::kNoPort, 1}}));
}

TEST_F(ForwardingTest, DropsAreThoseOfThePortThatReceived) {
  receive(1, {{{host(1), kBroadcast}, "bad"}, {{ports_[3].own.mac, host(2)}, "own"}});
  EXPECT_EQ(ports_[1].drops,
            (std::map<DropReason, int>{{DropReason::kBadMac, 1}, {DropReason::kNotIna, 1}}));
  for (const FakePort& port : ports_) EXPECT_TRUE(port.sent.empty());
}

TEST_F(ForwardingTest, WhatWasAnsweredTellsWhereItsSenderIs) {
  receive(3, {{{ports_[3].own.mac, host(7)}, nullptr}});
  receive(0, {{{host(7), host(1)}, "frame"}});
  EXPECT_EQ(ports_[3].sent, Sent{"frame"});
  EXPECT_TRUE(ports_[1].sent.empty());
}

TEST_F(ForwardingTest, LinksAreLookedAfter) {
  receive(1, {{{kBroadcast, host(1)}, "hello"}});
  ports_[1].link = false;
  forwarding_.tick(kSecondNs);
  receive(0, {{{host(1), host(2)}, "lost"}}, kSecondNs);
  EXPECT_TRUE(ports_[1].sent.empty());
  EXPECT_EQ(ports_[0].copies, std::vector<uint16_t>{2});
  for (const int other : {2, 3}) EXPECT_EQ(ports_[other].sent, (Sent{"hello", "lost"}));
  ports_[1].link = true;
  forwarding_.tick(2 * kSecondNs);
  receive(0, {{{host(1), host(2)}, "found"}}, 2 * kSecondNs);
  EXPECT_EQ(ports_[1].sent, Sent{"found"});
}

TEST_F(ForwardingTest, ProbesLeaveByAllPortsWithALinkAndBlockTheirPort) {
  ports_[2].link = false;
  forwarding_.tick(kSecondNs);
  for (const int port : {0, 1, 3}) EXPECT_GE(ports_[port].probes.size(), 2u);
  EXPECT_EQ(ports_[2].probes.size(), 1u) << "before its link went";
  const bridge::ProbeFrames frames({});
  const auto probe = frames.read(ports_[0].probes.back());
  ASSERT_TRUE(probe);
  EXPECT_EQ(probe->port, 0);
  receive(
      3,
      {{{kBroadcast, host(1)}, "before"}, {{}, nullptr, probe}, {{kBroadcast, host(1)}, "after"}},
      kSecondNs);
  EXPECT_EQ(ports_[0].sent, Sent{"before"});
  EXPECT_EQ(ports_[3].drops, (std::map<DropReason, int>{{DropReason::kBlocked, 1}}));
  receive(0, {{{kBroadcast, host(2)}, "around"}}, kSecondNs);
  EXPECT_TRUE(ports_[3].sent.empty());
  EXPECT_EQ(ports_[1].sent, (Sent{"before", "around"}));
}

}  // namespace
}  // namespace ina::switchd
