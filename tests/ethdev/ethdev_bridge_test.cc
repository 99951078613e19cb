// Ethdev ports as ports of a learning switch, on the pcap driver: frames that come in by one
// capture go out into others.
#include <gtest/gtest.h>

#include "io/ethdev/ethdev_port.h"
#include "switchd/lanes/forwarding.h"
#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/frames.h"
#include "tests/support/temp_dir.h"

namespace ina::io {
namespace {

constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr uint32_t kOtherIp = 0x0a000002;  ///< of the last port
constexpr size_t kPorts = 3;

/// A frame of a protocol that nobody knows.
Bytes frame(const wire::MacAddress& to, const wire::MacAddress& from, size_t bytes = 60) {
  Bytes frame(bytes);
  store_mac(frame, 0, to);
  store_mac(frame, 6, from);
  store(frame, 12, 0x88b5, 2);
  for (size_t i = 14; i < bytes; ++i) frame[i] = static_cast<std::byte>(i * 7);
  return frame;
}

Bytes grad(const wire::Address& from, const wire::Address& to) {
  const std::vector<int32_t> values(8, 3);
  wire::Message m = message(wire::Type::kGrad, 1, values.size());
  m.bitmap = WorkerSet::of(Rank{0});
  return encode(envelope(from, to), m, std::as_bytes(std::span(values)));
}

class EthdevBridgeTest : public ::testing::Test {
 protected:
  /// Ports that read in[i] and write out(i). The last has another IP address than the others.
  void open(const std::array<std::vector<Bytes>, kPorts>& in,
            const std::array<uint32_t, kPorts>& mtu = {1500, 1500, 1500},
            const std::vector<bridge::HostAddress>& hosts_of_first = {}) {
    static int devices = 0;
    for (size_t i = 0; i < kPorts; ++i) {
      const std::string number = std::to_string(i);
      Capture::write(folder_ / ("in" + number), in[i]);
      EthdevPortConfig config;
      config.name = "port" + number;
      config.device = "net_pcap_bridge" + std::to_string(devices++) +
                      ",rx_pcap=" + (folder_ / ("in" + number)) +
                      ",tx_pcap=" + (folder_ / ("out" + number));
      config.ip = i + 1 == kPorts ? kOtherIp : kSwitch.ip;
      config.mtu = mtu[i];
      config.rx_descriptors = 128;
      config.tx_descriptors = 128;
      config.bridged = true;
      config.switch_addresses = {{kSwitch.ip}, {kOtherIp}};
      config.lent_buffers = 256;
      if (i == 0) config.hosts = hosts_of_first;
      auto port = EthdevPort::open(config);
      ASSERT_TRUE(port) << port.error().text;
      ports_[i] = std::move(port->front());
    }
  }

  /// Polls port after port until all captures are read.
  void run() {
    switchd::Forwarding<EthdevPort> forwarding(
        {.storm_limit_frames_per_s = 0, .loop_protection = false},
        {ports_[0].get(), ports_[1].get(), ports_[2].get()});
    forwarding.tick(0);
    std::array<RxPacket, 32> burst;
    for (bool more = true; more;) {
      more = false;
      for (size_t i = 0; i < kPorts; ++i) {
        const uint64_t before = ports_[i]->counters().rx_packets;
        ports_[i]->rx_burst(burst);
        ports_[i]->rx_release();
        forwarding.forward(static_cast<bridge::PortIndex>(i), 0);
        more |= ports_[i]->counters().rx_packets != before;
      }
      for (const auto& port : ports_) port->tx_flush();
    }
    uint64_t handed = 0;
    uint64_t taken = 0;
    for (const auto& port : ports_) {
      const EthdevCounters& own = port->ethdev_counters();
      EXPECT_EQ(port->counters().rx_packets, own.delivered + own.answered + own.forwarded +
                                                 own.flooded +
                                                 dropped_on_receipt(port->counters().drops))
          << port->config().name;
      handed += own.forwarded + own.flood_copies;
      taken += own.bridged_sent + own.bridged_lost;
    }
    EXPECT_EQ(handed, taken);
  }

  uint64_t drops(size_t port, DropReason reason) const {
    return ports_[port]->counters().drops[reason];
  }
  const EthdevCounters& counters(size_t port) const { return ports_[port]->ethdev_counters(); }

  /// The frames that left by a port; closes all ports.
  std::vector<Bytes> out(size_t port) {
    for (auto& each : ports_) each.reset();
    return Capture::read(folder_ / ("out" + std::to_string(port)));
  }

  /// The port's MAC address: the driver counts them up.
  wire::MacAddress mac(size_t port) const { return ports_[port]->address().mac; }

  test::TempDir folder_;
  std::array<std::unique_ptr<EthdevPort>, kPorts> ports_;
};

constexpr wire::MacAddress kA = kWorkers[0].mac;
constexpr wire::MacAddress kB = kWorkers[1].mac;
constexpr wire::MacAddress kC = kWorkers[2].mac;

TEST_F(EthdevBridgeTest, FramesPassUntouched) {
  const Bytes hello = frame(kBroadcast, kA);
  const Bytes back = frame(kA, kB, 1514);
  // With a VLAN tag, and as long as that allows; with two.
  Bytes tagged = frame(kA, kB, 1518);
  store(tagged, 12, 0x8100'6007'88b5, 6);
  Bytes twice = frame(kA, kB, 1522);
  store(twice, 12, 0x88a8'0001'8100'0007, 8);
  // A tagged ARP request for the switch is not looked into.
  Bytes tagged_arp = arp_request(kWorkers[1], kSwitch.ip);
  const std::array<std::byte, 4> tag = {std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{7}};
  tagged_arp.insert(tagged_arp.begin() + 12, tag.begin(), tag.end());
  open({{{hello}, {back, tagged, twice, tagged_arp}, {}}});
  run();
  EXPECT_EQ(counters(0).flooded, 1u);
  EXPECT_EQ(counters(0).flood_copies, 2u);
  EXPECT_EQ(counters(1).forwarded, 2u);
  EXPECT_EQ(counters(1).flooded, 2u) << "nobody is known in VLAN 7 yet";
  EXPECT_EQ(counters(0).bridged_sent, 4u);
  EXPECT_EQ(counters(0).bridged_sent_bytes, 1514u + 1518 + 1522 + tagged_arp.size());
  EXPECT_EQ(ports_[0]->counters().tx_packets, 0u) << "others' frames are no messages";
  EXPECT_EQ(out(0), (std::vector<Bytes>{back, tagged, twice, tagged_arp}));
  EXPECT_EQ(out(1), std::vector<Bytes>{hello});
  EXPECT_EQ(out(2), (std::vector<Bytes>{hello, tagged, tagged_arp}));
}

TEST_F(EthdevBridgeTest, FloodedFramesAreOneBufferThatComesBack) {
  // Many times the buffers that there are.
  std::vector<Bytes> in;
  for (uint32_t i = 0; i < 3000; ++i) {
    in.push_back(frame(kBroadcast, kA));
    store(in.back(), 20, i, 4);
  }
  open({{in, {}, {}}});
  run();
  EXPECT_EQ(counters(0).flooded, in.size());
  EXPECT_EQ(out(1), in);
  EXPECT_EQ(out(2), in);
}

TEST_F(EthdevBridgeTest, WhatIsForTheSwitchStaysThere) {
  // The device's address is not known before it is open, but the first port's can be told.
  open({{{}, {}, {}}});
  const wire::Address own = ports_[0]->address();
  const wire::Address last = ports_[2]->address();
  for (auto& port : ports_) port.reset();

  const wire::Address renamed = {kB, kSwitch.ip, kSwitch.udp_port};
  Bytes ip6 = frame(own.mac, kA);
  store(ip6, 12, 0x86dd, 2);
  open({{{arp_request(kWorkers[0], kSwitch.ip), echo(kWorkers[0], own, 8, 5),
          arp_request(kWorkers[0], kOtherIp),  // of another port: answered here with this one's MAC
          echo(kWorkers[0], {own.mac, kOtherIp, 0}, 8, 6),
          grad(kWorkers[0], own),      // of nobody who is bound, but the switch's
          grad(kWorkers[0], renamed),  // the IP address decides
          grad(kWorkers[0], last),     // the last port's worker, at the wrong port
          frame(kB, kA)},              // b is unknown: flooded
         {},
         {}}});
  run();
  EXPECT_EQ(counters(0).answered, 4u);
  EXPECT_EQ(drops(0, DropReason::kUnknownSource), 2u);
  EXPECT_EQ(drops(0, DropReason::kNotIna), 1u);
  EXPECT_EQ(counters(0).flooded, 1u);
  EXPECT_EQ(counters(0).forwarded, 0u);
  const wire::MacAddress mac0 = mac(0);
  EXPECT_EQ(out(0), (std::vector<Bytes>{arp_reply({mac0, kSwitch.ip, 0}, kWorkers[0]),
                                        echo({mac0, kSwitch.ip, 0}, kWorkers[0], 0, 5),
                                        arp_reply({mac0, kOtherIp, 0}, kWorkers[0]),
                                        echo({mac0, kOtherIp, 0}, kWorkers[0], 0, 6)}));
  EXPECT_EQ(out(1), std::vector<Bytes>{frame(kB, kA)});
}

TEST_F(EthdevBridgeTest, WhoWasAnsweredIsKnown) {
  open({{{frame(kC, kA)}, {frame(kA, kB)}, {}}});
  run();
  EXPECT_EQ(counters(1).forwarded, 1u);
  EXPECT_EQ(out(2), std::vector<Bytes>{frame(kC, kA)});

  open({{{arp_request(kWorkers[0], kSwitch.ip)}, {frame(kA, kB)}, {}}});
  run();
  EXPECT_EQ(counters(1).forwarded, 1u);
  EXPECT_EQ(counters(1).flooded, 0u);
  EXPECT_TRUE(out(2).empty());
}

TEST_F(EthdevBridgeTest, MessagesOfWorkersPassBetweenOthersToo) {
  const Bytes other = grad(kWorkers[0], kWorkers[1]);
  open({{{frame(kBroadcast, kA)}, {frame(kBroadcast, kB)}, {}}});
  for (auto& port : ports_) port.reset();
  open({{{other}, {}, {}}});
  ASSERT_TRUE(ports_[0]->bind(kWorkers[0], kJob, kJobKey, 0, Rank{0}));
  run();
  EXPECT_EQ(counters(0).delivered, 0u);
  EXPECT_EQ(counters(0).flooded, 1u);
  EXPECT_EQ(out(1), std::vector<Bytes>{other});
}

TEST_F(EthdevBridgeTest, BoundWorkersAreServed) {
  open({{{grad(kWorkers[0], kSwitch), frame(kB, kA), grad(kWorkers[0], kSwitch)}, {}, {}}});
  ASSERT_TRUE(ports_[0]->bind(kWorkers[0], kJob, kJobKey, 0, Rank{0}));
  run();
  EXPECT_EQ(counters(0).delivered, 2u);
  EXPECT_EQ(counters(0).flooded, 1u);
}

TEST_F(EthdevBridgeTest, NobodySendsInTheSwitchsName) {
  open({{{echo({kA, kSwitch.ip, 0}, kWorkers[1], 8, 1), arp_reply({kA, kOtherIp, 0}, kWorkers[1]),
          arp_request({kA, kSwitch.ip, 0}, kSwitch.ip), echo(kWorkers[0], kWorkers[1], 8, 1)},
         {},
         {}}});
  run();
  EXPECT_EQ(drops(0, DropReason::kForeignSource), 3u);
  EXPECT_EQ(counters(0).answered, 0u);
  EXPECT_EQ(out(1), std::vector<Bytes>{echo(kWorkers[0], kWorkers[1], 8, 1)});
}

TEST_F(EthdevBridgeTest, APortWithAListIsForItsHostsAlone) {
  const std::vector<bridge::HostAddress> hosts = {{kA, kWorkers[0].ip}};
  open({{{echo(kWorkers[0], kWorkers[2], 8, 1), arp_request(kWorkers[0], kSwitch.ip),
          // The second host's addresses, whole and in part.
          echo(kWorkers[1], kWorkers[2], 8, 1), arp_request(kWorkers[1], kSwitch.ip),
          frame(kBroadcast, kB), arp_reply({kA, kWorkers[1].ip, 0}, kWorkers[2]),
          grad(kWorkers[0], kSwitch)},
         {frame(kB, kC)},
         {}}},
       {1500, 1500, 1500}, hosts);
  ASSERT_TRUE(ports_[0]->bind(kWorkers[0], kJob, kJobKey, 0, Rank{0}));
  wire::Address renamed = kWorkers[0];
  renamed.mac = kB;
  for (const wire::Address& other : {renamed, kWorkers[1]}) {
    const auto refused = ports_[0]->bind(other, kJob, kJobKey, 0, Rank{1});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text.find("hosts"), std::string::npos) << refused.error().text;
  }
  run();
  EXPECT_EQ(drops(0, DropReason::kForeignSource), 4u);
  EXPECT_EQ(counters(0).delivered, 1u);
  EXPECT_EQ(counters(0).answered, 1u);
  EXPECT_EQ(counters(0).flooded, 1u);
  // b was not learned at the first port, and its frames come by the second as ever.
  EXPECT_EQ(counters(1).flooded, 1u);
  EXPECT_EQ(drops(1, DropReason::kForeignSource), 0u);
}

TEST_F(EthdevBridgeTest, WhatThePortCannotCarryIsLostThere) {
  const Bytes longest = frame(kBroadcast, kA, 9014);
  open({{{frame(kBroadcast, kA), longest}, {}, {}}}, {9000, 1500, 9000});
  run();
  EXPECT_EQ(drops(1, DropReason::kTooLong), 1u);
  EXPECT_EQ(counters(1).bridged_lost, 1u);
  EXPECT_EQ(counters(1).bridged_sent, 1u);
  EXPECT_EQ(out(2), (std::vector<Bytes>{frame(kBroadcast, kA), longest}));
}

TEST_F(EthdevBridgeTest, WhoeverAsksTooOftenGetsNoAnswer) {
  constexpr uint64_t kQuestions = 3000;
  const std::vector<Bytes> questions(kQuestions, arp_request(kWorkers[0], kSwitch.ip));
  open({{questions, {}, {}}});
  run();
  EXPECT_GE(counters(0).answered, 100u);
  EXPECT_GT(drops(0, DropReason::kAsked), 0u);
  EXPECT_EQ(counters(0).answered + drops(0, DropReason::kAsked), kQuestions);
}

TEST_F(EthdevBridgeTest, RandomFramesHaveOneFateToo) {
  std::array<std::vector<Bytes>, kPorts> in;
  uint32_t state = 1;
  const auto random = [&state] { return state = state * 1664525 + 1013904223, state >> 8; };
  for (int i = 0; i < 3000; ++i) {
    const wire::Address& from = kWorkers[random() % 3];
    const wire::Address& to = random() % 2 == 0 ? kSwitch : kWorkers[random() % 3];
    Bytes bytes = i % 3 == 0   ? grad(from, to)
                  : i % 3 == 1 ? echo(from, to, 8, 1)
                               : arp_request(from, to.ip);
    for (uint32_t flips = random() % 4; flips != 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
    if (random() % 4 == 0) bytes.resize(1 + random() % bytes.size());
    in[random() % kPorts].push_back(std::move(bytes));
  }
  const std::array<size_t, kPorts> sizes = {in[0].size(), in[1].size(), in[2].size()};
  open(in);
  run();  // checks the books
  for (size_t i = 0; i < kPorts; ++i) {
    EXPECT_EQ(ports_[i]->counters().rx_packets, sizes[i]);
    EXPECT_GT(counters(i).answered, 0u);
    EXPECT_GT(counters(i).forwarded, 0u);
  }
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
