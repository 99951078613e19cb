// Ethdev ports in VLANs, on the pcap driver, which leaves tags where they are.
#include <gtest/gtest.h>

#include <array>

#include "io/ethdev/ethdev_port.h"
#include "switchd/lanes/forwarding.h"
#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/frames.h"
#include "tests/support/temp_dir.h"

namespace ina::io {
namespace {

constexpr uint32_t kOtherIp = 0x0a010001;  ///< of the second port, in VLAN 20

Bytes message_frame(const wire::Address& from, const wire::Address& to, wire::Type type,
                    uint32_t seq = 1) {
  const std::vector<int32_t> values(8, static_cast<int32_t>(seq));
  wire::Message m = message(type, seq, values.size());
  if (type == wire::Type::kGrad) m.bitmap = WorkerSet::of(Rank{0});
  if (type == wire::Type::kResult) m.origin = wire::Origin::kSwitch;
  return encode(envelope(from, to), m, std::as_bytes(std::span(values)));
}
Bytes grad(uint32_t seq = 1, uint16_t lane = 0) {
  wire::Address to = kSwitch;
  to.udp_port = static_cast<uint16_t>(to.udp_port + lane);
  return message_frame(kWorkers[0], to, wire::Type::kGrad, seq);
}

class EthdevVlanTest : public ::testing::Test {
 protected:
  /// A port that reads `in` and writes out(number).
  std::vector<std::unique_ptr<EthdevPort>> open(size_t number, const std::vector<Bytes>& in,
                                                EthdevPortConfig config) {
    static int devices = 0;
    const std::string suffix = std::to_string(number);
    Capture::write(folder_ / ("in" + suffix), in);
    config.name = "port" + suffix;
    config.device = "net_pcap_vlan" + std::to_string(devices++) +
                    ",rx_pcap=" + (folder_ / ("in" + suffix)) +
                    ",tx_pcap=" + (folder_ / ("out" + suffix));
    if (config.ip == 0) config.ip = kSwitch.ip;
    config.rx_descriptors = config.tx_descriptors = 128;
    auto port = EthdevPort::open(config);
    EXPECT_TRUE(port) << port.error().text;
    for (const auto& lane : *port)
      worker_ = lane->bind(kWorkers[0], kJob, kJobKey, 0, Rank{0}).value();
    return std::move(*port);
  }
  std::vector<Bytes> out(size_t number) const {
    return Capture::read(folder_ / ("out" + std::to_string(number)));
  }

  /// One turn; messages are answered.
  size_t turn(EthdevPort& port) {
    static const std::vector<int32_t> row(8, 1);
    std::array<RxPacket, 32> burst;
    const size_t count = port.rx_burst(burst);
    for (size_t i = 0; i < count; ++i) {
      wire::Message result = message(wire::Type::kResult, 1, row.size());
      result.origin = wire::Origin::kSwitch;
      EXPECT_TRUE(port.tx(worker_, result, std::as_bytes(std::span(row))));
    }
    port.rx_release();
    port.tx_flush();
    return count;
  }

  test::TempDir folder_;
  EndpointIndex worker_ = 0;
};

TEST_F(EthdevVlanTest, TheSwitchIsInItsVlanAlone) {
  const wire::Address asker = kWorkers[1];
  EthdevPortConfig config;
  config.vlan = 10;
  const std::vector<Bytes> foreign = {
      grad(),
      tagged(grad(), 20),
      tagged(tagged(grad(), 10), 10),
      arp_request(asker, kSwitch.ip),
      tagged(arp_request(asker, kSwitch.ip), 20),
      echo(asker, kSwitch, 8, 1),
      tagged(arp_request(asker, asker.ip), 10),
  };
  std::vector<Bytes> in = foreign;
  in.push_back(tagged(grad(), 10));
  in.push_back(tagged(grad(), 10, 7));
  in.push_back(tagged(arp_request(asker, kSwitch.ip), 10));
  in.push_back(tagged(echo(asker, kSwitch, 8, 9), 10));
  Bytes cut = tagged(grad(), 10);
  for (const size_t bytes : {17, 18, 30}) {
    cut.resize(bytes);
    in.push_back(cut);
  }
  auto port = open(0, in, config);
  EXPECT_EQ(turn(*port[0]), 2u);
  const wire::Address own = port[0]->address();
  const PortCounters counters = port[0]->counters();
  EXPECT_EQ(counters.drops[DropReason::kNotIna], foreign.size() + 1);
  EXPECT_EQ(counters.drops[DropReason::kTruncated], 2u);
  EXPECT_EQ(counters.rx_packets, in.size());
  EXPECT_EQ(counters.tx_packets, 2u);
  EXPECT_EQ(counters.tx_bytes, 2u * 8 * sizeof(int32_t));
  port.clear();
  const Bytes result = tagged(message_frame(own, kWorkers[0], wire::Type::kResult), 10);
  EXPECT_EQ(out(0), (std::vector<Bytes>{tagged(arp_reply(own, asker), 10),
                                        tagged(echo(own, asker, 0, 9), 10), result, result}));
}

TEST_F(EthdevVlanTest, WithoutAVlanTagsAreSomebodyElses) {
  auto port = open(0, {tagged(grad(), 10), tagged(arp_request(kWorkers[1], kSwitch.ip), 10)}, {});
  EXPECT_EQ(turn(*port[0]), 0u);
  EXPECT_EQ(port[0]->counters().drops[DropReason::kNotIna], 2u);
}

TEST_F(EthdevVlanTest, LanesGetTheirsFromBehindTheTag) {
  EthdevPortConfig config;
  config.vlan = 10;
  config.lanes = 3;
  auto port = open(0,
                   {tagged(grad(1, 1), 10), tagged(grad(2, 2), 10), tagged(grad(2, 2), 20),
                    tagged(arp_request(kWorkers[1], kSwitch.ip), 10)},
                   config);
  EXPECT_EQ(turn(*port[0]), 0u);
  EXPECT_EQ(turn(*port[1]), 1u);
  EXPECT_EQ(turn(*port[2]), 1u);
  port[0]->tx_flush();
  EXPECT_EQ(port[0]->ethdev_counters().handed_over, 2u);
  EXPECT_EQ(port[0]->ethdev_counters().answered, 1u);
  EXPECT_EQ(port[0]->counters().drops[DropReason::kNotIna], 1u);
  EXPECT_EQ(port[0]->counters().tx_packets, 2u);
  EXPECT_EQ(port[0]->counters().tx_bytes, 2u * 8 * sizeof(int32_t)) << "the tag is no payload";
}

TEST(EthdevVlan, ReservedNumbersAreRefused) {
  EthdevPortConfig config;
  config.name = "p0";
  config.device = "net_null30,";
  config.ip = kSwitch.ip;
  config.vlan = 4095;
  const auto port = EthdevPort::open(config);
  ASSERT_FALSE(port);
  EXPECT_NE(port.error().text.find("VLAN 4095 is not within"), std::string::npos);
}

/// Ports of the same switch: in VLAN 10, in VLAN 20 under another address, and in none.
class BridgedVlanTest : public EthdevVlanTest {
 protected:
  void open_all(const std::array<std::vector<Bytes>, 3>& in) {
    for (size_t i = 0; i < 3; ++i) {
      EthdevPortConfig config;
      config.bridged = true;
      config.switch_addresses = {{kSwitch.ip, 10}, {kOtherIp, 20}, {kSwitch.ip, 0}};
      config.ip = config.switch_addresses[i].ip;
      config.vlan = config.switch_addresses[i].vlan;
      config.lent_buffers = 256;
      ports_[i] = std::move(open(i, in[i], config).front());
    }
  }

  void run() {
    switchd::Forwarding<EthdevPort> forwarding(
        {.storm_limit_frames_per_s = 0, .loop_protection = false},
        {ports_[0].get(), ports_[1].get(), ports_[2].get()});
    forwarding.tick(0);
    for (uint64_t before = UINT64_MAX; before != received();) {
      before = received();
      for (size_t i = 0; i < ports_.size(); ++i) {
        turn(*ports_[i]);
        forwarding.forward(static_cast<bridge::PortIndex>(i), 0);
      }
      for (const auto& port : ports_) port->tx_flush();
    }
    for (const auto& port : ports_) {
      const EthdevCounters& own = port->ethdev_counters();
      EXPECT_EQ(port->counters().rx_packets, own.delivered + own.answered + own.forwarded +
                                                 own.flooded +
                                                 dropped_on_receipt(port->counters().drops));
    }
  }
  uint64_t received() const {
    uint64_t sum = 0;
    for (const auto& port : ports_) sum += port->counters().rx_packets;
    return sum;
  }

  std::array<std::unique_ptr<EthdevPort>, 3> ports_;
};

TEST_F(BridgedVlanTest, EachPortAnswersForAllAddressesInTheirVlans) {
  const wire::Address asker = kWorkers[1];
  open_all({{{tagged(arp_request(asker, kSwitch.ip), 10), tagged(arp_request(asker, kOtherIp), 20),
              arp_request(asker, kSwitch.ip),
              // Not an address of the switch in that VLAN.
              tagged(arp_request(asker, kOtherIp), 10), tagged(arp_request(asker, kSwitch.ip), 20)},
             {},
             {}}});
  run();
  EXPECT_EQ(ports_[0]->ethdev_counters().answered, 3u);
  EXPECT_EQ(ports_[0]->ethdev_counters().flooded, 2u);
  const wire::Address own = {ports_[0]->address().mac, kSwitch.ip, 0};
  const wire::Address other = {own.mac, kOtherIp, 0};
  for (auto& port : ports_) port.reset();
  EXPECT_EQ(out(0),
            (std::vector<Bytes>{tagged(arp_reply(own, asker), 10),
                                tagged(arp_reply(other, asker), 20), arp_reply(own, asker)}));
}

TEST_F(BridgedVlanTest, MessagesAreTakenInThePortsOwnVlanAlone) {
  open_all({{{tagged(grad(), 10), grad()}, {}, {}}});
  run();
  EXPECT_EQ(ports_[0]->ethdev_counters().delivered, 1u);
  EXPECT_EQ(ports_[0]->counters().drops[DropReason::kNotIna], 1u);
}

TEST_F(BridgedVlanTest, WhoWasAnsweredIsKnownInTheVlanOfTheQuestion) {
  Bytes frame(60);
  store_mac(frame, 0, kWorkers[1].mac);
  store_mac(frame, 6, kWorkers[2].mac);
  store(frame, 12, 0x88b5, 2);
  open_all({{{tagged(arp_request(kWorkers[1], kSwitch.ip), 10)},
             {tagged(frame, 10, 5), tagged(frame, 20)},
             {}}});
  run();
  EXPECT_EQ(ports_[1]->ethdev_counters().forwarded, 1u);
  EXPECT_EQ(ports_[1]->ethdev_counters().flooded, 1u);
  for (auto& port : ports_) port.reset();
  EXPECT_EQ(out(2), std::vector<Bytes>{tagged(frame, 20)});
  EXPECT_EQ(out(0).size(), 3u);
  EXPECT_EQ(out(0)[1], tagged(frame, 10, 5)) << "unchanged";
}

TEST_F(BridgedVlanTest, RandomFramesHaveOneFateToo) {
  std::array<std::vector<Bytes>, 3> in;
  uint32_t state = 1;
  const auto random = [&state] { return state = state * 1664525 + 1013904223, state >> 8; };
  constexpr uint16_t kVlans[] = {0, 10, 20, 4095};
  for (int i = 0; i < 3000; ++i) {
    Bytes bytes = i % 3 == 0   ? grad()
                  : i % 3 == 1 ? echo(kWorkers[1], kSwitch, 8, 1)
                               : arp_request(kWorkers[random() % 3], kSwitch.ip);
    for (uint32_t tags = random() % 3; tags != 0; --tags)
      bytes = tagged(bytes, kVlans[random() % 4], static_cast<uint16_t>(random() % 8));
    for (uint32_t flips = random() % 3; flips != 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
    if (random() % 4 == 0) bytes.resize(1 + random() % std::min<size_t>(bytes.size(), 40));
    in[random() % 3].push_back(std::move(bytes));
  }
  open_all(in);
  run();  // checks the books
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ports_[i]->counters().rx_packets, in[i].size());
    EXPECT_GT(ports_[i]->ethdev_counters().answered, 0u);
    EXPECT_GT(ports_[i]->counters().drops[DropReason::kVlan], 0u);
  }
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
