// The udp: transport against a socket that plays the switch, over loopback.
#include "transport/udp_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/udp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace {

/// The transport's messages to the kernel, and the kernel's answers.
struct Kernel {
  std::vector<size_t> datagrams;  ///< of each message that was taken
  int refuse_segmented = 0;       ///< error for messages of several datagrams
  int refuse_port = 0;            ///< no room for messages to this port
} kernel;

size_t datagrams_of(const msghdr& message) {
  size_t bytes = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) bytes += message.msg_iov[i].iov_len;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at;
       at = CMSG_NXTHDR(const_cast<msghdr*>(&message), at)) {
    if (at->cmsg_level != SOL_UDP || at->cmsg_type != UDP_SEGMENT) continue;
    uint16_t segment = 0;
    std::memcpy(&segment, CMSG_DATA(at), sizeof segment);
    return (bytes + segment - 1) / segment;
  }
  return 1;
}

}  // namespace

/// In the place of the C library's.
extern "C" int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  unsigned taken = 0;
  for (; taken < count; ++taken) {
    const msghdr& message = messages[taken].msg_hdr;
    const size_t datagrams = datagrams_of(message);
    errno = 0;
    if (datagrams > 1) errno = kernel.refuse_segmented;
    if (ntohs(static_cast<const sockaddr_in*>(message.msg_name)->sin_port) == kernel.refuse_port)
      errno = EAGAIN;
    if (errno != 0 || ::sendmsg(fd, &message, flags) < 0) break;
    kernel.datagrams.push_back(datagrams);
  }
  return taken == 0 && count != 0 ? -1 : static_cast<int>(taken);
}

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
  /// At this port, or any.
  explicit Peer(uint16_t port = 0) : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(kLoopback);
    own.sin_port = htons(port);
    socklen_t bytes = sizeof own;
    if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), bytes) != 0) return;
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
  /// Several datagrams of `segment_bytes` in one piece.
  void send_segmented(uint16_t to_port, std::span<const std::byte> bytes, int segment_bytes) const {
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes),
              0);
    send(to_port, bytes);
    segment_bytes = 0;
    ::setsockopt(fd_.get(), SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes);
  }
  uint16_t port() const { return port_; }  ///< 0: it was taken

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
  message.bitmap = WorkerSet::of(Rank{0});
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
  void SetUp() override { open("udp:127.0.0.1"); }
  void open(const char* url) {
    kernel = {};
    auto opened = UdpTransport::open(*parse_url(url));
    ASSERT_TRUE(opened) << opened.error().text;
    transport_ = std::move(*opened);
    bind();
  }
  void bind(uint16_t lanes = 1) {
    FrameBinding binding;
    binding.own = transport_->address();
    binding.switch_address = {{}, kLoopback, peer_.port()};
    binding.job = kJobId;
    binding.job_key = kKey;
    binding.lanes = lanes;
    binding.slot_bytes = kSlotBytes;
    binding.tag_keys = tag_keys_;
    transport_->bind(binding);
  }
  /// The packets that the transport makes of all datagrams sent to it: `count` datagrams.
  std::vector<RxPacket> receive(size_t count) {
    std::vector<RxPacket> packets(count);
    transport_->wait(5'000'000'000);
    size_t got = 0;
    // Loopback delivers within the call that sends, so everything is there.
    while (const size_t more = transport_->rx_burst(std::span(packets).subspan(got))) got += more;
    packets.resize(got);
    return packets;
  }

  /// Packets with these payloads, numbered from 0; bytes of the payload are the number.
  std::vector<TxPacket> packets_of(const std::vector<size_t>& payload_bytes) {
    std::vector<TxPacket> packets;
    payloads_.clear();
    payloads_.reserve(payload_bytes.size());
    for (const size_t bytes : payload_bytes) {
      const auto seq = static_cast<uint32_t>(packets.size());
      payloads_.emplace_back(bytes, static_cast<std::byte>(seq));
      const auto type = bytes == 0 ? wire::Type::kQuery : wire::Type::kGrad;
      packets.push_back({message(type, seq, bytes), bytes == 0 ? nullptr : payloads_.back().data(),
                         static_cast<uint32_t>(bytes)});
    }
    return packets;
  }
  /// That `peer` gets packet `seq` with a payload of so many bytes.
  static void expect(const Peer& peer, uint32_t seq, size_t payload_bytes) {
    const auto datagram = peer.receive();
    ASSERT_TRUE(datagram) << seq;
    const auto parsed = wire::parse_datagram(datagram->bytes);
    ASSERT_TRUE(parsed) << seq;
    EXPECT_EQ(parsed->message.seq, seq);
    ASSERT_EQ(parsed->payload_bytes, payload_bytes) << seq;
    for (const std::byte byte : std::span(parsed->payload, payload_bytes))
      ASSERT_EQ(byte, static_cast<std::byte>(seq));
  }

  void expect_all(const std::vector<size_t>& payload_bytes) {
    for (uint32_t i = 0; i < payload_bytes.size() && !HasFatalFailure(); ++i)
      expect(peer_, i, payload_bytes[i]);
  }

  Peer peer_;
  std::optional<wire::TagKeys> tag_keys_;
  std::unique_ptr<UdpTransport> transport_;
  std::vector<std::vector<std::byte>> payloads_;
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

TEST_F(UdpTransportTest, FragmentsOfOneLengthAreOneMessage) {
  std::vector<size_t> sizes(40, 256);
  sizes.push_back(12);  // the tensor's last
  const auto packets = packets_of(sizes);
  EXPECT_EQ(transport_->tx_burst(packets), sizes.size());
  EXPECT_EQ(kernel.datagrams, std::vector<size_t>{41});
  expect_all(sizes);
  EXPECT_EQ(transport_->counters().bytes_copied, 40 * 256 + 12);
}

TEST_F(UdpTransportTest, LengthsThatDoNotFollowEachOtherAreApart) {
  const std::vector<size_t> sizes = {0, 0, 100, 100, 40, 100, 100, 100, 0, 200};
  const auto packets = packets_of(sizes);
  EXPECT_EQ(transport_->tx_burst(packets), sizes.size());
  EXPECT_EQ(kernel.datagrams, (std::vector<size_t>{2, 3, 4, 1}));
  expect_all(sizes);
}

TEST_F(UdpTransportTest, MessagesAreOfLimitedLength) {
  const std::vector<size_t> sizes(64, kSlotBytes);  // 70,144 bytes, more than the kernel takes
  EXPECT_EQ(transport_->tx_burst(packets_of(sizes)), sizes.size());
  EXPECT_EQ(kernel.datagrams, (std::vector<size_t>{15, 15, 15, 15, 4}));
  expect_all(sizes);
}

TEST_F(UdpTransportTest, FragmentsForALaneAreOneMessage) {
  std::optional<Peer> second;
  for (int tries = 0; tries < 100 && (!second || second->port() == 0); ++tries) {
    peer_ = Peer();
    second.emplace(static_cast<uint16_t>(peer_.port() + 1));
  }
  ASSERT_NE(second->port(), 0);
  bind(2);
  auto packets = packets_of(std::vector<size_t>(20, 64));
  for (uint32_t i = 0; i < packets.size(); ++i) packets[i].message.lane = i % 2;
  EXPECT_EQ(transport_->tx_burst(packets), packets.size());
  EXPECT_EQ(kernel.datagrams, (std::vector<size_t>{10, 10}));
  for (uint32_t i = 0; i < packets.size() && !HasFatalFailure(); ++i)
    expect(i % 2 == 0 ? peer_ : *second, i, 64);

  // Not taken is from the first on for which there was no room.
  kernel.refuse_port = second->port();
  EXPECT_EQ(transport_->tx_burst(packets), 1u);
}

TEST_F(UdpTransportTest, WithoutGsoEachFragmentIsAMessage) {
  open("udp:127.0.0.1?gso=off");
  const auto packets = packets_of(std::vector<size_t>(5, 64));
  EXPECT_EQ(transport_->tx_burst(packets), packets.size());
  EXPECT_EQ(kernel.datagrams, std::vector<size_t>(5, 1));
  expect_all(std::vector<size_t>(5, 64));
}

TEST_F(UdpTransportTest, GoesOnOneByOneWhereTheKernelRefusesMessagesOfSeveral) {
  for (const int error : {EIO, EINVAL}) {
    open("udp:127.0.0.1");
    kernel.refuse_segmented = error;
    const std::vector<size_t> sizes = {64, 0, 0, 64};
    const auto packets = packets_of(sizes);
    EXPECT_EQ(transport_->tx_burst(packets), 0u);
    EXPECT_EQ(transport_->tx_burst(packets), packets.size());
    EXPECT_EQ(kernel.datagrams, std::vector<size_t>(4, 1));
    expect_all(sizes);
  }
}

TEST_F(UdpTransportTest, TakesTheGoodOnesOfWhatCameInOnePiece) {
  std::vector<std::byte> piece;
  for (uint32_t seq = 0; seq < 5; ++seq) {
    auto bytes = datagram(seq, std::vector<std::byte>(100, std::byte{7}));
    if (seq == 2) bytes[wire::kInaHeaderBytes] ^= std::byte{1};
    piece.insert(piece.end(), bytes.begin(), bytes.end());
  }
  peer_.send_segmented(transport_->address().udp_port, piece, wire::kInaHeaderBytes + 100);
  const auto packets = receive(8);
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[1].message.seq, 1u);
  EXPECT_EQ(packets[2].message.seq, 3u);
  EXPECT_EQ(packets[3].payload_bytes, 100u);
  EXPECT_EQ(transport_->counters().dropped, 1u);
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
  EXPECT_NE(refused("udp:127.0.0.1?gso=on").find("gso=on"), std::string::npos);
}

}  // namespace
}  // namespace ina::client
