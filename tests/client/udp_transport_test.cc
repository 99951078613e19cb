// The udp: transport against a socket that plays the switch, over loopback.
#include "client/src/udp_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace ina::client {
namespace {

constexpr uint32_t kLoopback = 0x7f000001;
constexpr uint32_t kSlotBytes = 1024;
constexpr JobId kJobId{7};
constexpr uint64_t kKey = 0x1122334455667788;

struct Datagram {
  sockaddr_in from{};
  std::vector<std::byte> bytes;
};

/// A socket at 127.0.0.1 that the transport takes for (a lane of) the switch.
class Peer {
 public:
  Peer() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(kLoopback);
    socklen_t bytes = sizeof own;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), bytes), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &bytes), 0);
    port_ = ntohs(own.sin_port);
  }

  std::optional<Datagram> receive(int timeout_ms = 5'000) const {
    pollfd fds{fd_.get(), POLLIN, 0};
    if (::poll(&fds, 1, timeout_ms) <= 0) return std::nullopt;
    Datagram datagram;
    datagram.bytes.resize(65536);
    socklen_t bytes = sizeof datagram.from;
    const ssize_t got = ::recvfrom(fd_.get(), datagram.bytes.data(), datagram.bytes.size(), 0,
                                   reinterpret_cast<sockaddr*>(&datagram.from), &bytes);
    if (got < 0) return std::nullopt;
    datagram.bytes.resize(static_cast<size_t>(got));
    return datagram;
  }
  void send(uint16_t to_port, std::span<const std::byte> bytes) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(kLoopback);
    to.sin_port = htons(to_port);
    EXPECT_EQ(::sendto(fd_.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(bytes.size()));
  }
  uint16_t port() const { return port_; }

 private:
  Fd fd_;
  uint16_t port_ = 0;
};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

wire::Message message(wire::Type type, uint32_t seq, size_t payload_bytes) {
  wire::Message message;
  message.type = type;
  message.seq = seq;
  message.epoch = 1;
  message.elements = static_cast<uint16_t>(payload_bytes);
  message.operation_elements = payload_bytes;
  message.dtype = DType::kInt8;
  message.op = Op::kSum;
  message.collective = Collective::kAllReduce;
  message.origin = wire::Origin::kSwitch;
  message.bitmap = 1;
  return message;
}

std::vector<std::byte> datagram(uint32_t seq, std::span<const std::byte> payload,
                                JobId job = kJobId, uint64_t key = kKey) {
  std::vector<std::byte> bytes(wire::kInaHeaderBytes + payload.size());
  const wire::Envelope envelope{
      .source = {}, .destination = {}, .job = job, .job_key = key, .tag = 0};
  wire::encode_ina_header(envelope, message(wire::Type::kResult, seq, payload.size()), payload,
                          bytes);
  std::copy(payload.begin(), payload.end(), bytes.begin() + wire::kInaHeaderBytes);
  return bytes;
}

class UdpTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = UdpTransport::open(*parse_url("udp:127.0.0.1"));
    ASSERT_TRUE(opened) << opened.error().text;
    transport_ = std::move(*opened);
    bind();
  }
  void bind() {
    FrameBinding binding;
    binding.own = transport_->address();
    binding.switch_address = {{}, kLoopback, peer_.port()};
    binding.job = kJobId;
    binding.job_key = kKey;
    binding.lanes = 1;
    binding.slot_bytes = kSlotBytes;
    binding.tag_keys = tag_keys_;
    transport_->bind(binding);
  }
  /// What the transport makes of all that was sent to it: `count` datagrams.
  std::vector<RxPacket> receive(size_t count) {
    std::vector<RxPacket> packets(count);
    transport_->wait(5'000'000'000);
    size_t got = 0;
    // Loopback delivers within the call that sends, so everything is there.
    while (const size_t more = transport_->rx_burst(std::span(packets).subspan(got))) got += more;
    packets.resize(got);
    return packets;
  }

  Peer peer_;
  std::optional<wire::TagKeys> tag_keys_;
  std::unique_ptr<UdpTransport> transport_;
};

TEST_F(UdpTransportTest, SendsWhatTheSpecificationSays) {
  const auto payload = bytes_of("gradient");
  const TxPacket packets[] = {{message(wire::Type::kGrad, 5, payload.size()), payload.data(),
                               static_cast<uint32_t>(payload.size())},
                              {message(wire::Type::kQuery, 6, 0), nullptr, 0}};
  EXPECT_EQ(transport_->tx_burst(packets), 2u);
  const auto first = peer_.receive();
  ASSERT_TRUE(first);
  EXPECT_EQ(ntohs(first->from.sin_port), transport_->address().udp_port);
  const auto parsed = wire::parse_datagram(first->bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->envelope.job, kJobId);
  EXPECT_EQ(parsed->envelope.job_key, kKey);
  EXPECT_EQ(parsed->message.type, wire::Type::kGrad);
  EXPECT_EQ(parsed->message.seq, 5u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(parsed->payload), parsed->payload_bytes),
            "gradient");
  const auto second = peer_.receive();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->bytes.size(), wire::kInaHeaderBytes);
}

TEST_F(UdpTransportTest, TakesResultsOfItsJob) {
  std::vector<std::byte> whole(kSlotBytes / 4, std::byte{3});  // summed in int32
  const std::vector<std::byte> sent[] = {datagram(1, bytes_of("one")), datagram(2, whole)};
  for (const auto& bytes : sent) peer_.send(transport_->address().udp_port, bytes);
  const auto packets = receive(8);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].message.seq, 1u);
  EXPECT_EQ(packets[0].payload_bytes, 3u);
  EXPECT_EQ(packets[1].payload_bytes, whole.size());
  EXPECT_EQ(std::memcmp(packets[1].payload, whole.data(), whole.size()), 0);
  EXPECT_EQ(transport_->counters().dropped, 0u);
}

TEST_F(UdpTransportTest, DatagramsCarryTagsBothWays) {
  const wire::TagKeys keys = {{1, 2}, {3, 4}};
  tag_keys_ = keys;
  bind();
  const wire::Address own = transport_->address();
  const wire::Address far = {{}, kLoopback, peer_.port()};
  const auto payload = bytes_of("gradient");
  const TxPacket packet = {message(wire::Type::kGrad, 5, payload.size()), payload.data(),
                           static_cast<uint32_t>(payload.size())};
  EXPECT_EQ(transport_->tx_burst({&packet, 1}), 1u);
  const auto sent = peer_.receive();
  ASSERT_TRUE(sent);
  auto parsed = wire::parse_datagram(sent->bytes);
  ASSERT_TRUE(parsed);
  parsed->envelope.source = own;
  parsed->envelope.destination = far;
  EXPECT_TRUE(wire::tag_matches(*parsed, wire::make_seal(keys, payload)));

  const auto answer = [&](uint32_t seq, const wire::TagKeys& with) {
    std::vector<std::byte> bytes(wire::kInaHeaderBytes + payload.size());
    const wire::Envelope envelope{
        .source = far, .destination = own, .job = kJobId, .job_key = kKey, .tag = 0};
    const wire::Seal seal = wire::make_seal(with, payload);
    wire::encode_ina_header(envelope, message(wire::Type::kResult, seq, payload.size()), payload,
                            bytes, &seal);
    std::copy(payload.begin(), payload.end(), bytes.begin() + wire::kInaHeaderBytes);
    return bytes;
  };
  peer_.send(own.udp_port, answer(1, keys));
  peer_.send(own.udp_port, answer(2, {{1, 2}, {3, 5}}));
  peer_.send(own.udp_port, answer(3, {{0, 2}, {3, 4}}));
  peer_.send(own.udp_port, datagram(4, payload));
  peer_.send(own.udp_port, sent->bytes);  // its own, sent back
  const auto packets = receive(8);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].message.seq, 1u);
  EXPECT_EQ(transport_->counters().dropped, 4u);
}

TEST_F(UdpTransportTest, StrangersDoNotReachTheSocket) {
  const uint16_t port = transport_->address().udp_port;
  const auto good = datagram(1, bytes_of("good"));
  const Peer stranger;
  // More than the socket's buffer holds.
  for (int i = 0; i < 100'000; ++i) stranger.send(port, good);
  peer_.send(port, datagram(1, bytes_of("other"), JobId{8}));
  peer_.send(port, datagram(1, bytes_of("key"), kJobId, kKey + 1));
  peer_.send(port, datagram(1, bytes_of("key"), kJobId, kKey ^ uint64_t{1} << 40));
  peer_.send(port, {});
  peer_.send(port, std::vector<std::byte>(16, std::byte{'I'}));
  peer_.send(port, datagram(9, bytes_of("mine")));
  std::vector<RxPacket> packets(64);
  transport_->wait(5'000'000'000);
  ASSERT_EQ(transport_->rx_burst(packets), 1u);
  EXPECT_EQ(packets[0].message.seq, 9u);
  EXPECT_EQ(transport_->counters().dropped, 0u);
}

TEST_F(UdpTransportTest, DropsAndCountsWhatIsNotItsOwn) {
  const uint16_t port = transport_->address().udp_port;
  const auto good = datagram(1, bytes_of("good"));
  auto corrupt = good;
  corrupt.back() ^= std::byte{1};
  peer_.send(port, corrupt);
  peer_.send(port, std::span(good).first(20));
  peer_.send(port, datagram(1, std::vector<std::byte>(kSlotBytes + 1)));
  peer_.send(port, datagram(9, bytes_of("mine")));
  // Those that are dropped leave room, so that one call may bring nothing though more is there.
  std::vector<RxPacket> packets(64);
  transport_->wait(5'000'000'000);
  ASSERT_EQ(transport_->rx_burst(packets), 1u);
  EXPECT_EQ(packets[0].message.seq, 9u);
  EXPECT_EQ(transport_->counters().dropped, 3u);
}

TEST_F(UdpTransportTest, SendsManyAtOnceAndToTheLanesPort) {
  std::vector<TxPacket> packets(200, {message(wire::Type::kQuery, 0, 0), nullptr, 0});
  for (uint32_t i = 0; i < packets.size(); ++i) packets[i].message.seq = i;
  size_t sent = 0;
  while (sent < packets.size()) sent += transport_->tx_burst(std::span(packets).subspan(sent));
  for (uint32_t i = 0; i < packets.size(); ++i) {
    const auto datagram = peer_.receive();
    ASSERT_TRUE(datagram) << i;
    EXPECT_EQ(wire::parse_datagram(datagram->bytes)->message.seq, i);
  }
}

TEST_F(UdpTransportTest, WakeEndsAWait) {
  std::thread waker([&] { transport_->wake(); });
  const Nanos before = now_ns();
  transport_->wait(30'000'000'000);
  EXPECT_LT(now_ns() - before, 20'000'000'000);
  waker.join();
}

TEST_F(UdpTransportTest, AfterReopenItIsSomebodyElse) {
  const uint16_t before = transport_->address().udp_port;
  ASSERT_TRUE(transport_->reopen(0));
  EXPECT_NE(transport_->address().udp_port, before);
  const TxPacket packet{message(wire::Type::kQuery, 1, 0), nullptr, 0};
  EXPECT_EQ(transport_->tx_burst({&packet, 1}), 0u) << "not bound yet";
  bind();
  EXPECT_EQ(transport_->tx_burst({&packet, 1}), 1u);
  const auto datagram = peer_.receive();
  ASSERT_TRUE(datagram);
  EXPECT_EQ(ntohs(datagram->from.sin_port), transport_->address().udp_port);
}

TEST(UdpUrl, WhatIsWrongIsNamed) {
  const auto refused = [](const char* text) {
    const auto opened = UdpTransport::open(*parse_url(text));
    EXPECT_FALSE(opened) << text;
    return opened ? std::string() : opened.error().text;
  };
  EXPECT_NE(refused("udp:switch.example").find("switch.example"), std::string::npos);
  EXPECT_NE(refused("udp:127.0.0.1?mtu=9000").find("mtu"), std::string::npos);
  EXPECT_NE(refused("udp:127.0.0.1?ip=192.0.2.77").find("192.0.2.77"), std::string::npos);
  EXPECT_NE(refused("udp:127.0.0.1?ip=1.2.3").find("ip"), std::string::npos);
}

}  // namespace
}  // namespace ina::client
