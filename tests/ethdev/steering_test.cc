// Which lane a frame is for, as software and as a device's flow rules see it. No virtual driver has
// flow rules that do not depend on the kernel, so this program stands in for one.
#include "io/ethdev/steering.h"

#include <gtest/gtest.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include "io/ethdev/ethdev_port.h"
#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/frames.h"

namespace ina::io {
namespace {

constexpr Steering kSteering = {.ip = kSwitch.ip, .udp_port = kSwitch.udp_port, .lanes = 4};

/// A rule that the driver was asked for.
struct Rule {
  uint32_t ip = 0;
  uint16_t udp_port = 0;
  uint16_t queue = 0;
  uint16_t vlan = 0;
  friend bool operator==(const Rule&, const Rule&) = default;
};
struct Driver {
  std::vector<Rule> validated;
  std::vector<Rule> created;
  size_t valid = 0;      ///< how many rules it takes to be possible
  size_t room = 0;       ///< for rules
  bool complete = true;  ///< all rules had the form that is expected
};
Driver driver;

Rule read(const rte_flow_attr* attributes, const rte_flow_item pattern[],
          const rte_flow_action actions[]) {
  Rule rule;
  const bool in_vlan = pattern[1].type == RTE_FLOW_ITEM_TYPE_VLAN;
  if (in_vlan) {
    const auto* tag = static_cast<const rte_flow_item_vlan*>(pattern[1].spec);
    const auto* mask = static_cast<const rte_flow_item_vlan*>(pattern[1].mask);
    rule.vlan = rte_be_to_cpu_16(tag->hdr.vlan_tci & mask->hdr.vlan_tci);
    driver.complete &= pattern[0].type == RTE_FLOW_ITEM_TYPE_ETH;
    ++pattern;  // what follows is the same
  }
  driver.complete &=
      attributes->ingress == 1 && (in_vlan || pattern[0].type == RTE_FLOW_ITEM_TYPE_ETH) &&
      pattern[1].type == RTE_FLOW_ITEM_TYPE_IPV4 && pattern[2].type == RTE_FLOW_ITEM_TYPE_UDP &&
      pattern[3].type == RTE_FLOW_ITEM_TYPE_END && actions[0].type == RTE_FLOW_ACTION_TYPE_QUEUE &&
      actions[1].type == RTE_FLOW_ACTION_TYPE_END;
  if (!driver.complete) return rule;
  const auto* ip = static_cast<const rte_flow_item_ipv4*>(pattern[1].spec);
  const auto* ip_mask = static_cast<const rte_flow_item_ipv4*>(pattern[1].mask);
  const auto* udp = static_cast<const rte_flow_item_udp*>(pattern[2].spec);
  const auto* udp_mask = static_cast<const rte_flow_item_udp*>(pattern[2].mask);
  rule.ip = rte_be_to_cpu_32(ip->hdr.dst_addr & ip_mask->hdr.dst_addr);
  rule.udp_port = rte_be_to_cpu_16(udp->hdr.dst_port & udp_mask->hdr.dst_port);
  rule.queue = static_cast<const rte_flow_action_queue*>(actions[0].conf)->index;
  return rule;
}

}  // namespace
}  // namespace ina::io

// These come before the library's.
extern "C" {
int rte_flow_validate(uint16_t, const rte_flow_attr* attributes, const rte_flow_item pattern[],
                      const rte_flow_action actions[], rte_flow_error*) {
  auto& driver = ina::io::driver;
  driver.validated.push_back(ina::io::read(attributes, pattern, actions));
  return driver.validated.size() <= driver.valid ? 0 : -ENOTSUP;
}
rte_flow* rte_flow_create(uint16_t, const rte_flow_attr* attributes, const rte_flow_item pattern[],
                          const rte_flow_action actions[], rte_flow_error*) {
  auto& driver = ina::io::driver;
  driver.created.push_back(ina::io::read(attributes, pattern, actions));
  return driver.created.size() <= driver.room ? reinterpret_cast<rte_flow*>(&driver) : nullptr;
}
int rte_flow_flush(uint16_t, rte_flow_error*) {
  ina::io::driver.created.clear();
  return 0;
}
}

namespace ina::io {
namespace {

class FlowRulesTest : public ::testing::Test {
 protected:
  /// A port of a device that has more queue pairs than anybody asks for.
  std::unique_ptr<EthdevPort> open(size_t valid, size_t room) {
    static int devices = 0;
    driver = {.validated = {}, .created = {}, .valid = valid, .room = room};
    EthdevPortConfig config;
    config.name = "test";
    config.device = "net_null" + std::to_string(20 + devices++) + ",no-rx=1";
    config.ip = kSwitch.ip;
    config.lanes = kSteering.lanes;
    config.rx_descriptors = 64;
    config.tx_descriptors = 64;
    auto port = EthdevPort::open(config);
    EXPECT_TRUE(port) << port.error().text;
    EXPECT_EQ(port->front()->queues(), kSteering.lanes);
    EXPECT_TRUE(driver.complete);
    return std::move(port->front());
  }

  /// Queues of the first entries of the table by which a hash chooses the queue.
  static std::vector<uint16_t> table() {
    const auto port_id = static_cast<uint16_t>(rte_eth_find_next(0));
    rte_eth_rss_reta_entry64 entries[2] = {};
    entries[0].mask = entries[1].mask = UINT64_MAX;
    EXPECT_EQ(rte_eth_dev_rss_reta_query(port_id, entries, 128), 0);
    return {std::begin(entries[0].reta), std::end(entries[0].reta)};
  }
};

const std::vector<Rule> kRules = {{kSwitch.ip, 7584, 0, 0},
                                  {kSwitch.ip, 7585, 1, 0},
                                  {kSwitch.ip, 7586, 2, 0},
                                  {kSwitch.ip, 7587, 3, 0}};

TEST_F(FlowRulesTest, ARuleALane) {
  const auto port = open(4, 4);
  EXPECT_TRUE(port->steered());
  EXPECT_EQ(driver.validated, kRules);
  EXPECT_EQ(driver.created, kRules);
  EXPECT_EQ(table(), std::vector<uint16_t>(64, 0)) << "the rest is for lane 0";
}

TEST_F(FlowRulesTest, AllOrNone) {
  auto port = open(3, 4);
  EXPECT_FALSE(port->steered());
  EXPECT_TRUE(driver.created.empty());
  port.reset();
  port = open(4, 3);
  EXPECT_FALSE(port->steered());
  EXPECT_TRUE(driver.created.empty()) << "those that there was room for are removed";
}

TEST_F(FlowRulesTest, FewerQueuesThanLanesAreShared) {
  driver = {.validated = {}, .created = {}, .valid = 4, .room = 4};
  EXPECT_TRUE(steer_by_rules(RTE_MAX_ETHPORTS, 3, kSteering));
  ASSERT_EQ(driver.created.size(), 4u);
  EXPECT_EQ(driver.created[2].queue, 2);
  EXPECT_EQ(driver.created[3].queue, 0);
}

TEST_F(FlowRulesTest, TheTagIsLookedAt) {
  driver = {.validated = {}, .created = {}, .valid = 4, .room = 4};
  Steering steering = kSteering;
  steering.vlan = 10;
  EXPECT_TRUE(steer_by_rules(RTE_MAX_ETHPORTS, 4, steering));
  EXPECT_TRUE(driver.complete);
  EXPECT_EQ(driver.created[3], (Rule{kSwitch.ip, 7587, 3, 10}));
}

Bytes datagram(uint32_t ip, uint16_t udp_port) {
  return encode(envelope(kWorkers[0], {kSwitch.mac, ip, udp_port}),
                message(wire::Type::kQuery, 0, 0), {});
}

TEST(LaneOf, IsTheUdpPortsAtTheSwitchsAddress) {
  for (uint16_t lane = 0; lane < 4; ++lane)
    EXPECT_EQ(lane_of(datagram(kSwitch.ip, kSwitch.udp_port + lane), kSteering), lane);
  EXPECT_EQ(lane_of(datagram(kSwitch.ip, kSwitch.udp_port + 4), kSteering), 0);
  EXPECT_EQ(lane_of(datagram(kSwitch.ip, kSwitch.udp_port - 1), kSteering), 0);
  EXPECT_EQ(lane_of(datagram(kWorkers[1].ip, kSwitch.udp_port + 1), kSteering), 0);
}

TEST(LaneOf, WhatIsNoDatagramIsForLane0) {
  const Bytes good = datagram(kSwitch.ip, kSwitch.udp_port + 3);
  ASSERT_EQ(lane_of(good, kSteering), 3);
  const auto changed = [&](size_t at, uint64_t value, size_t bytes) {
    Bytes frame = good;
    store(frame, at, value, bytes);
    return lane_of(frame, kSteering);
  };
  EXPECT_EQ(changed(12, 0x86dd, 2), 0) << "IPv6";
  EXPECT_EQ(changed(23, 6, 1), 0) << "TCP";
  EXPECT_EQ(changed(20, 0x0001, 2), 0) << "a later fragment has no UDP header";
  EXPECT_EQ(changed(20, 0x2000, 2), 3) << "the first one has, and is dropped by its lane";
  EXPECT_EQ(lane_of(arp_request(kWorkers[0], kSwitch.ip), kSteering), 0);
  for (size_t bytes = 0; bytes < 42; ++bytes)
    EXPECT_EQ(lane_of(std::span(good).first(bytes), kSteering), 0) << bytes;
}

TEST(LaneOf, OptionsAreSkipped) {
  Bytes frame = datagram(kSwitch.ip, kSwitch.udp_port + 3);
  frame.insert(frame.begin() + 34, 8, std::byte{1});
  EXPECT_EQ(lane_of(frame, kSteering), 0) << "now it looks like port 257";
  store(frame, 14, 0x47, 1);
  EXPECT_EQ(lane_of(frame, kSteering), 3);
  store(frame, 14, 0x4f, 1);
  EXPECT_EQ(lane_of(std::span(frame).first(60), kSteering), 0) << "longer than the frame";
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
