// The client's dpdk: transport on interfaces of the kernel, in a network namespace with a veth
// pair: the worker has `near`, the test in the switch's place has `far`. Needs root.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "tests/support/packet_builder.h"
#include "transport/frame_transport.h"

extern "C" ina::client::FrameTransport* ina_dpdk_transport_open(const char* url, int64_t timeout_us,
                                                                int* status, char* error_text,
                                                                size_t error_text_bytes);

namespace ina::client {
namespace {

using namespace std::chrono_literals;
using ina::testing::Bytes;
using ina::testing::PacketBuilder;

constexpr uint32_t kOwnIp = 0x0a4e0001;     // 10.78.0.1
constexpr uint32_t kSwitchIp = 0x0a4e00fe;  // 10.78.0.254
constexpr JobId kJobId{7};
constexpr uint64_t kKey = 0x1122334455667788;
constexpr Nanos kLongNs = 20'000'000'000;

int run(const std::string& command) {
  return std::system((command + " >/dev/null").c_str());
}

wire::MacAddress mac_of(const std::string& interface) {
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  EXPECT_EQ(::ioctl(any.get(), SIOCGIFHWADDR, &request), 0);
  wire::MacAddress mac{};
  std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

struct Opened {
  std::unique_ptr<FrameTransport> transport;
  int status = INA_OK;
  std::string error;
};

Opened open(const std::string& url) {
  char text[1024] = "";
  Opened opened;
  opened.transport.reset(
      ina_dpdk_transport_open(url.c_str(), 5'000'000, &opened.status, text, sizeof text));
  opened.error = text;
  return opened;
}

/// Sends and receives whole frames at `far`.
class Far {
 public:
  Far() : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex("far"));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void send(const Bytes& frame) const {
    EXPECT_EQ(::send(socket_.get(), frame.data(), frame.size(), 0),
              static_cast<ssize_t>(frame.size()));
  }
  /// The next frame to the switch's address; empty if none comes.
  Bytes receive() const {
    Bytes frame(2048);
    pollfd fds{socket_.get(), POLLIN, 0};
    while (::poll(&fds, 1, 5'000) > 0) {
      const ssize_t bytes = ::recv(socket_.get(), frame.data(), frame.size(), 0);
      const auto parsed =
          wire::parse_frame({frame.data(), static_cast<size_t>(bytes)}, wire::kDefaultUdpPort, 1);
      if (parsed && parsed->envelope.destination.ip == kSwitchIp)
        return {frame.begin(), frame.begin() + bytes};
    }
    return {};
  }

 private:
  Fd socket_;
};

class DpdkUrl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    ASSERT_EQ(run("ip link add near type veth peer name far && ip link set lo up &&"
                  "ip address add 10.78.0.1/24 dev near && ip link set near up &&"
                  "ip link set far up && ethtool -K near gro off"),
              0);
  }
  void TearDown() override {
    if (::geteuid() == 0) run("ip link delete near");
  }
};

class OnInterface : public DpdkUrl, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string url() const {
    return std::string("dpdk:10.78.0.254?iface=near&driver=") + GetParam() + "&control=/unused";
  }

  FrameBinding binding(const FrameTransport& transport) const {
    return {.own = transport.address(),
            .switch_address = {mac_of("far"), kSwitchIp, wire::kDefaultUdpPort},
            .job = kJobId,
            .job_key = kKey,
            .lanes = 1,
            .slot_bytes = 1024};
  }

  /// A frame of the switch to the worker.
  PacketBuilder result(const FrameTransport& transport, uint32_t seq) const {
    const FrameBinding bound = binding(transport);
    return PacketBuilder()
        .type(wire::Type::kResult)
        .origin(wire::Origin::kSwitch)
        .seq(seq)
        .from(bound.switch_address)
        .to(bound.own)
        .job(kJobId, kKey);
  }

  /// Takes what the socket got before it was told what to take.
  void receive_early(FrameTransport& transport) const {
    RxPacket packets[16];
    for (int i = 0; i < 10; ++i) transport.rx_burst(packets);
    transport.rx_release();
  }

  std::vector<uint32_t> receive_now(FrameTransport& transport) const {
    RxPacket packets[16];
    std::vector<uint32_t> seqs(transport.rx_burst(packets));
    for (size_t i = 0; i < seqs.size(); ++i) seqs[i] = packets[i].message.seq;
    transport.rx_release();
    return seqs;
  }

  /// Sequence numbers of arrived packets, until there are `count`, or no more come.
  std::vector<uint32_t> receive(FrameTransport& transport, size_t count) const {
    std::vector<uint32_t> seqs;
    for (int i = 0; i < 100 && seqs.size() < count; ++i) {
      const std::vector<uint32_t> now = receive_now(transport);
      seqs.insert(seqs.end(), now.begin(), now.end());
      if (now.empty()) transport.wait(50'000'000);
    }
    return seqs;
  }
};

TEST_P(OnInterface, HasItsAddressAndAPortOfItsOwn) {
  const Opened opened = open(url());
  ASSERT_TRUE(opened.transport) << opened.error;
  const wire::Address own = opened.transport->address();
  EXPECT_EQ(own.ip, kOwnIp);
  EXPECT_EQ(own.mac, mac_of("near"));
  EXPECT_EQ(opened.transport->max_slot_bytes(), 1500 - 100);
  // Nobody else on the host gets the port.
  const Fd other(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(kOwnIp);
  address.sin_port = htons(own.udp_port);
  EXPECT_NE(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

TEST_P(OnInterface, SendsAndReceives) {
  const Opened opened = open(url());
  ASSERT_TRUE(opened.transport) << opened.error;
  FrameTransport& transport = *opened.transport;
  transport.bind(binding(transport));
  const Far far;
  const PacketBuilder grad;
  const std::vector<std::byte> payload(32, std::byte{5});
  const TxPacket packet{.message = grad.message(), .payload = payload.data(), .payload_bytes = 32};
  ASSERT_EQ(transport.tx_burst({&packet, 1}), 1u);
  const Bytes sent = far.receive();
  EXPECT_EQ(sent, PacketBuilder()
                      .from(transport.address())
                      .to(binding(transport).switch_address)
                      .job(kJobId, kKey)
                      .payload(payload)
                      .build());
  for (uint32_t seq = 0; seq < 200; ++seq) far.send(result(transport, seq).build());
  std::vector<uint32_t> expected(200);
  for (uint32_t seq = 0; seq < 200; ++seq) expected[seq] = seq;
  EXPECT_EQ(receive(transport, 200), expected);
}

TEST_P(OnInterface, OnlyWhatIsForItReachesIt) {
  const Opened opened = open(url());
  ASSERT_TRUE(opened.transport) << opened.error;
  FrameTransport& transport = *opened.transport;
  transport.bind(binding(transport));
  receive_early(transport);
  const uint64_t dropped = transport.counters().dropped;
  const Far far;
  wire::Address elsewhere = transport.address();
  elsewhere.ip += 1;
  wire::Address other_port = transport.address();
  other_port.udp_port ^= 1;
  using ina::testing::kIpFragmentAt;
  using ina::testing::kIpProtocolAt;
  far.send(result(transport, 1).to(elsewhere).build());
  far.send(result(transport, 2).to(other_port).build());
  far.send(result(transport, 3).set_be16(kIpFragmentAt, 0x2000).fix_ip_checksum().build());
  far.send(result(transport, 4).set_byte(kIpProtocolAt, 6).fix_ip_checksum().build());
  far.send(result(transport, 5).vlan(9).build());
  far.send(result(transport, 6).truncate(20).build());
  far.send(result(transport, 7).ip_options(3).build());
  far.send(result(transport, 8).build());
  EXPECT_EQ(receive(transport, 2), (std::vector<uint32_t>{7, 8}));
  EXPECT_EQ(transport.counters().dropped, dropped) << "the kernel kept the others";
}

TEST_P(OnInterface, ANewPortKeepsOutWhatWasForTheOld) {
  const Opened opened = open(url());
  ASSERT_TRUE(opened.transport) << opened.error;
  FrameTransport& transport = *opened.transport;
  const Far far;
  const Bytes late = result(transport, 1).build();
  const uint16_t port = transport.address().udp_port;
  receive_early(transport);
  const uint64_t dropped = transport.counters().dropped;
  ASSERT_TRUE(transport.reopen(1'000'000'000));
  EXPECT_NE(transport.address().udp_port, port);
  transport.bind(binding(transport));
  far.send(late);
  far.send(result(transport, 2).build());
  EXPECT_EQ(receive(transport, 1), std::vector<uint32_t>{2});
  EXPECT_EQ(transport.counters().dropped, dropped);
}

TEST_P(OnInterface, SleepsUntilAFrameComesOrItIsWoken) {
  const Opened opened = open(url());
  ASSERT_TRUE(opened.transport) << opened.error;
  FrameTransport& transport = *opened.transport;
  transport.bind(binding(transport));
  receive_early(transport);
  const Far far;
  const auto sleeps = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  for (const bool by_frame : {true, false}) {
    std::thread other([&] {
      std::this_thread::sleep_for(200ms);
      if (by_frame)
        far.send(result(transport, 1).build());
      else
        transport.wake();
    });
    const auto before = sleeps();
    transport.wait(kLongNs);  // or the test is over in 20 s
    // A thread that looked each millisecond would have slept 200 times.
    EXPECT_LT(sleeps() - before, 20);
    other.join();
    RxPacket packet;
    EXPECT_EQ(transport.rx_burst({&packet, 1}), by_frame ? 1u : 0u);
    transport.rx_release();
  }
}

TEST_P(OnInterface, SleepsWhileTheInterfaceIsDownAndGoesOnAfterwards) {
  const Opened opened = open(url());
  ASSERT_TRUE(opened.transport) << opened.error;
  FrameTransport& transport = *opened.transport;
  transport.bind(binding(transport));
  receive_early(transport);
  ASSERT_EQ(run("ip link set near down"), 0);
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const auto before_us = used();
  transport.wait(400'000'000);
  EXPECT_LT(used() - before_us, 100'000) << "it spins";
  ASSERT_EQ(run("ip link set near up"), 0);
  const Far far;
  std::vector<uint32_t> seqs;
  for (int i = 0; i < 100 && seqs.empty(); ++i) {  // the link takes its time
    far.send(result(transport, 1).build());
    transport.wait(100'000'000);
    seqs = receive_now(transport);
  }
  EXPECT_FALSE(seqs.empty());
}

TEST_P(OnInterface, OneContextAtATimeUsesAnInterface) {
  Opened first = open(url());
  ASSERT_TRUE(first.transport) << first.error;
  const Opened second = open(url());
  EXPECT_FALSE(second.transport);
  EXPECT_EQ(second.status, INA_ERR_REFUSED);
  EXPECT_NE(second.error.find("Interface near"), std::string::npos) << second.error;
  for (int i = 0; i < 5; ++i) {
    first.transport.reset();
    first = open(url());
    ASSERT_TRUE(first.transport) << first.error;
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, OnInterface, ::testing::Values("af_packet", "af_xdp"),
                         [](const auto& driver) { return std::string(driver.param); });

TEST_F(DpdkUrl, FindsInterfaceAndAddressByTheWayToTheSwitch) {
  const Opened opened = open("dpdk:10.78.0.254");
  ASSERT_TRUE(opened.transport) << opened.error;
  EXPECT_EQ(opened.transport->address().ip, kOwnIp);
  EXPECT_EQ(opened.transport->address().mac, mac_of("near"));
}

TEST_F(DpdkUrl, TakesTheArgumentsOfADevice) {
  const Opened opened = open(
      "dpdk:10.78.0.254?device=net_af_packet77,iface=near,qpairs=1,blocksz=8192,framesz=2048,"
      "framecnt=64&mtu=1200");
  ASSERT_TRUE(opened.transport) << opened.error;
  EXPECT_EQ(opened.transport->address().ip, kOwnIp);
  EXPECT_EQ(opened.transport->max_slot_bytes(), 1100u);
}

TEST_F(DpdkUrl, ErrorsSayWhatIsWrong) {
  ASSERT_EQ(run("ip link add idle type veth peer name bare && ip link set bare up && "
                "ip address add 10.79.0.1/24 dev idle"),
            0);
  const std::pair<const char*, const char*> cases[] = {
      {"dpdk:switch?iface=near", "\"switch\" is not an IPv4 address"},
      {"dpdk:10.78.0.254?iface=gone", "there is no interface 'gone'"},
      {"dpdk:10.78.0.254?iface=idle", "interface idle is down"},
      {"dpdk:10.78.0.254?iface=bare", "interface bare has no IPv4 address"},
      {"dpdk:10.78.0.254?iface=near&ip=10.78.0.9", "interface near has no address 10.78.0.9"},
      {"dpdk:10.78.0.254?iface=near&driver=dpdk", "neither af_packet nor af_xdp"},
      {"dpdk:10.78.0.254?iface=near&device=net_af_xdp0", "it names a device"},
      {"dpdk:10.78.0.254?iface=near&udp_port=9", "the kernel chooses the UDP port"},
      {"dpdk:10.78.0.254?iface=near&mtu=12", "mtu=12"},
      {"dpdk:10.78.0.254?interface=near", "\"interface\" is not known to dpdk"},
      {"dpdk:192.0.2.1", "no way to 192.0.2.1"},
      {"dpdk:10.78.0.254?device=0000:ff:1f.7", "\"ip\" is missing"},
  };
  for (const auto& [url, part] : cases) {
    const Opened opened = open(url);
    EXPECT_FALSE(opened.transport) << url;
    EXPECT_NE(opened.error.find(part), std::string::npos) << url << ": " << opened.error;
  }
  run("ip link delete idle");
}

TEST_F(DpdkUrl, APciDeviceComesFirstOrNotAtAll) {
  ASSERT_TRUE(open("dpdk:10.78.0.254?iface=near").transport);  // DPDK starts here, without PCI
  const Opened opened = open("dpdk:10.78.0.254?device=0000:ff:1f.7&ip=10.78.0.1");
  EXPECT_FALSE(opened.transport);
  EXPECT_EQ(opened.status, INA_ERR_UNSUPPORTED);
  EXPECT_NE(opened.error.find("Open the context of PCI device 0000:ff:1f.7 first"),
            std::string::npos)
      << opened.error;
}

}  // namespace
}  // namespace ina::client
