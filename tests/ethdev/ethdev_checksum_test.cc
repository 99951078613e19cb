// Checksums that a device makes and verifies, on the tap driver, which does both. The other end of
// a tap is an interface of the kernel, in a network namespace of this program's own.
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <numeric>

#include "common/fd.h"
#include "io/ethdev/ethdev_port.h"
#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/frames.h"

namespace ina::io {
namespace {

constexpr size_t kUdpChecksumAt = 40;
constexpr size_t kElements = 256;

/// Sum of the whole datagram with its pseudo header: 0 if a checksum in it is right.
uint16_t udp_sum(const Bytes& frame) {
  Bytes sum(frame.begin() + 26, frame.begin() + 34);  // addresses
  sum.resize(12);
  sum[9] = std::byte{17};
  std::copy_n(frame.begin() + 38, 2, sum.begin() + 10);  // length
  sum.insert(sum.end(), frame.begin() + 34, frame.end());
  return internet_checksum(sum);
}

class EthdevChecksumTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "network namespaces need root";
    EthdevPortConfig config;
    config.name = "tap";
    config.device = "net_tap0,iface=ina-tap";
    config.ip = kSwitch.ip;
    config.rx_descriptors = 64;
    config.tx_descriptors = 64;
    auto port = EthdevPort::open(config);
    ASSERT_TRUE(port) << port.error().text;
    port_ = std::move(port->front());
    endpoint_ = port_->bind(kWorkers[0], kJob, kJobKey, 0, Rank{0}).value();
    kernel_ = Fd(::socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex("ina-tap"));
    ASSERT_EQ(::bind(kernel_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }

  void send(const Bytes& frame) {
    ASSERT_EQ(::send(kernel_.get(), frame.data(), frame.size(), 0),
              static_cast<ssize_t>(frame.size()));
  }

  /// Runs until the port has received so many, with any fate; returns how many were messages. The
  /// kernel's own frames there are not counted.
  size_t receive(uint64_t packets) {
    size_t messages = 0;
    std::array<RxPacket, 8> burst;
    const auto seen = [&] {
      return port_->ethdev_counters().delivered + dropped_on_receipt(port_->counters().drops) -
             port_->counters().drops[DropReason::kNotIna];
    };
    for (int i = 0; i < 5000 && seen() < packets; ++i, ::usleep(1000)) {
      messages += port_->rx_burst(burst);
      port_->rx_release();
    }
    EXPECT_EQ(seen(), packets);
    return messages;
  }

  /// The next IPv4 frame that the port has sent; empty after a second without any.
  Bytes sent() {
    pollfd readable{kernel_.get(), POLLIN, 0};
    while (::poll(&readable, 1, 1000) == 1) {
      Bytes frame(2000);
      sockaddr_ll from{};
      socklen_t bytes = sizeof from;
      const ssize_t got = ::recvfrom(kernel_.get(), frame.data(), frame.size(), 0,
                                     reinterpret_cast<sockaddr*>(&from), &bytes);
      if (got < 0 || from.sll_pkttype == PACKET_OUTGOING || from.sll_protocol != htons(ETH_P_IP))
        continue;
      frame.resize(static_cast<size_t>(got));
      return frame;
    }
    return {};
  }

  std::unique_ptr<EthdevPort> port_;
  EndpointIndex endpoint_ = 0;
  Fd kernel_;
};

Bytes grad() {
  std::vector<int32_t> values(kElements);
  std::iota(values.begin(), values.end(), 1);
  wire::Message m = message(wire::Type::kGrad, 1, kElements);
  m.bitmap = WorkerSet::of(Rank{0});
  return encode(envelope(kWorkers[0], kSwitch), m, std::as_bytes(std::span(values)));
}

TEST_F(EthdevChecksumTest, ResultsGetBoth) {
  std::vector<int32_t> values(kElements);
  for (const int32_t first : {0, 70'000, -5}) {
    std::iota(values.begin(), values.end(), first);
    wire::Message result = message(wire::Type::kResult, 1, kElements);
    result.origin = wire::Origin::kSwitch;
    const auto payload = std::as_bytes(std::span(values));
    ASSERT_TRUE(port_->tx(endpoint_, result, payload));
    port_->tx_flush();
    Bytes frame = sent();
    const Bytes expected = encode(envelope(port_->address(), kWorkers[0]), result, payload);
    ASSERT_EQ(frame.size(), expected.size());
    EXPECT_NE(frame[kUdpChecksumAt] | frame[kUdpChecksumAt + 1], std::byte{0});
    EXPECT_EQ(udp_sum(frame), 0);
    store(frame, kUdpChecksumAt, 0, 2);
    EXPECT_TRUE(frame == expected) << "and nothing else differs from what software writes";
  }
}

TEST_F(EthdevChecksumTest, WhatTheDeviceFindsWrongIsDropped) {
  const Bytes none = grad();
  Bytes right = none;
  store(right, kUdpChecksumAt, udp_sum(right), 2);
  ASSERT_EQ(udp_sum(right), 0);
  Bytes wrong = right;
  wrong[kUdpChecksumAt] ^= std::byte{1};
  Bytes wrong_ip = right;
  wrong_ip[24] ^= std::byte{1};
  for (const Bytes& frame : {none, right, wrong, wrong_ip, right}) send(frame);
  EXPECT_EQ(receive(5), 3u);
  EXPECT_EQ(port_->counters().drops[DropReason::kUdpChecksum], 1u);
  EXPECT_EQ(port_->counters().drops[DropReason::kIpChecksum], 1u);
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
