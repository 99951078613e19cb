// The client's memif transport against an ethdev port in another process, bound by hand.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "tests/ethdev/memif_peer.h"
#include "tests/ethdev/peer.h"
#include "tests/support/temp_dir.h"
#include "transport/frame_transport.h"

extern "C" ina::client::FrameTransport* ina_dpdk_transport_open(const char* url, int64_t timeout_us,
                                                                int* status, char* error_text,
                                                                size_t error_text_bytes);

namespace ina::io {
namespace {

constexpr int64_t kOpenTimeoutUs = 10'000'000;
constexpr Nanos kTestTimeoutNs = 30'000'000'000;

using Transport = std::unique_ptr<client::FrameTransport>;

Transport open(const std::string& url, std::string* error = nullptr,
               int64_t timeout_us = kOpenTimeoutUs) {
  char text[512] = "";
  Transport transport(
      ina_dpdk_transport_open(url.c_str(), timeout_us, nullptr, text, sizeof(text)));
  if (error != nullptr) {
    *error = text;
  } else {
    EXPECT_TRUE(transport) << text;
  }
  return transport;
}

struct Server {
  Server(const test::TempDir& folder, uint32_t mtu_bytes, uint32_t slot, int number = 0)
      : socket(folder / ("memif" + std::to_string(number) + ".sock")),
        mtu(mtu_bytes),
        slot_bytes(slot),
        peer({MEMIF_PEER, "server", socket, std::to_string(mtu), std::to_string(slot)}) {
    EXPECT_TRUE(peer.ask(address));
  }
  std::string url() const {
    return "memif:" + socket + "?id=0&ip=10.0.0.2&udp_port=9000&mtu=" + std::to_string(mtu) +
           "&control=/unused";
  }
  client::FrameBinding binding(const wire::Address& own) const {
    return {.own = own,
            .switch_address = address,
            .job = kMemifJob,
            .job_key = kMemifJobKey,
            .lanes = 1,
            .slot_bytes = slot_bytes,
            .tag_keys = tags ? std::optional(kMemifTagKeys) : std::nullopt};
  }
  Transport connect() {
    Transport transport = open(url());
    if (transport == nullptr) return transport;
    bind(*transport);
    return transport;
  }
  /// Returns once the switch has bound the worker: frames before that are a stranger's.
  void bind(const wire::Address& worker) {
    EndpointIndex endpoint = 0;
    EXPECT_TRUE(peer.tell(MemifWorker{worker, tags}));
    EXPECT_TRUE(peer.ask(endpoint));
  }
  void bind(client::FrameTransport& transport) {
    bind(transport.address());
    transport.bind(binding(transport.address()));
  }

  std::string socket;
  uint32_t mtu;
  uint32_t slot_bytes;
  bool tags = false;
  Peer peer;
  wire::Address address;
};

/// Sends fragments 0..count-1 and checks every element of every result. Returns how many were
/// right.
uint32_t exchange(client::FrameTransport& transport, uint32_t slot_bytes, uint32_t count) {
  constexpr uint32_t kWindow = 64;
  static_assert(kWindow <= kMemifRows / 2);
  const Nanos deadline = now_ns() + kTestTimeoutNs;
  std::vector<client::RxPacket> received(16);
  std::vector<std::vector<int32_t>> gradients(kWindow);
  uint32_t sent = 0;
  uint32_t right = 0;
  while (right < count && now_ns() < deadline) {
    std::vector<client::TxPacket> packets;
    for (uint32_t seq = sent; seq < count && seq < right + kWindow; ++seq) {
      std::vector<int32_t>& gradient = gradients[seq % kWindow];
      gradient = memif_gradient(seq, slot_bytes);
      packets.push_back({.message = memif_message(wire::Type::kGrad, seq, slot_bytes),
                         .payload = reinterpret_cast<const std::byte*>(gradient.data()),
                         .payload_bytes = slot_bytes});
    }
    sent += static_cast<uint32_t>(transport.tx_burst(packets));
    const size_t filled = transport.rx_burst(received);
    for (size_t i = 0; i < filled; ++i) {
      const client::RxPacket& packet = received[i];
      std::vector<int32_t> expected = memif_gradient(right, slot_bytes);
      for (int32_t& element : expected) element *= 2;
      if (packet.message.type != wire::Type::kResult || packet.message.seq != right ||
          packet.payload_bytes != slot_bytes ||
          std::memcmp(packet.payload, expected.data(), slot_bytes) != 0) {
        ADD_FAILURE() << "fragment " << right << " is wrong";
        return right;
      }
      ++right;
    }
    transport.rx_release();
    if (filled == 0) transport.wait(1'000'000);
  }
  return right;
}

class MemifSizes : public ::testing::TestWithParam<std::pair<uint32_t, uint32_t>> {};

TEST_P(MemifSizes, EveryElementOfThousandsOfFragmentsIsRight) {
  const auto [mtu, slot_bytes] = GetParam();
  constexpr uint32_t kFragments = 5000;
  const test::TempDir folder;
  Server server(folder, mtu, slot_bytes);
  const Transport transport = server.connect();
  ASSERT_TRUE(transport);
  EXPECT_GE(transport->max_slot_bytes(), slot_bytes);
  EXPECT_EQ(transport->address().ip, 0x0a000002u);
  EXPECT_EQ(transport->address().udp_port, 9000);
  EXPECT_EQ(exchange(*transport, slot_bytes, kFragments), kFragments);
  EXPECT_EQ(transport->counters().dropped, 0u);

  server.peer.close_stdin();
  MemifReport report;
  ASSERT_TRUE(server.peer.ask(report));
  EXPECT_EQ(server.peer.wait(), 0);
  EXPECT_EQ(report.results, kFragments);
  EXPECT_EQ(report.counters.rx_packets, kFragments);
  EXPECT_EQ(report.counters.rx_bytes, uint64_t{kFragments} * slot_bytes);
  EXPECT_EQ(report.counters.tx_packets, kFragments);
  for (size_t i = 0; i < kDropReasons; ++i)
    EXPECT_EQ(report.counters.drops.count[i], 0u) << name(static_cast<DropReason>(i));
}

INSTANTIATE_TEST_SUITE_P(Slots, MemifSizes,
                         ::testing::Values(std::pair{1500u, 1024u}, std::pair{9000u, 8192u}));

TEST(Memif, TwoTransportsInOneProcess) {
  const test::TempDir folder;
  Server first(folder, 1500, 1024, 0);
  Server second(folder, 9000, 8192, 1);
  const Transport to_first = first.connect();
  const Transport to_second = second.connect();
  ASSERT_TRUE(to_first && to_second);
  EXPECT_FALSE(to_first->address().mac == to_second->address().mac);
  for (int round = 0; round < 3; ++round) {
    // Fragments start at 0 again, which neither side minds.
    EXPECT_EQ(exchange(*to_first, 1024, 200), 200u);
    EXPECT_EQ(exchange(*to_second, 8192, 200), 200u);
  }
}

TEST(Memif, MayStartBeforeTheSwitch) {
  const test::TempDir folder;
  std::unique_ptr<Server> server;
  std::thread late([&] {
    ::usleep(100'000);
    server = std::make_unique<Server>(folder, 1500, 1024);
  });
  const Transport transport =
      open("memif:" + (folder / "memif0.sock") + "?ip=10.0.0.2&udp_port=9000");
  late.join();
  ASSERT_TRUE(transport);
  server->bind(*transport);
  EXPECT_EQ(exchange(*transport, 1024, 10), 10u);
}

TEST(Memif, TakesOnlyWhatItsSwitchSends) {
  const test::TempDir folder;
  Server server(folder, 1500, 1024);
  const Transport transport = server.connect();
  ASSERT_TRUE(transport);
  const std::vector<int32_t> gradient = memif_gradient(0, 1024);
  const client::TxPacket packet{.message = memif_message(wire::Type::kGrad, 0, 1024),
                                .payload = reinterpret_cast<const std::byte*>(gradient.data()),
                                .payload_bytes = 1024};
  // Each binding is wrong in one thing that the answer will show; the server's own answers go on.
  std::vector<client::FrameBinding> wrong(4, server.binding(transport->address()));
  ++wrong[0].switch_address.ip;
  ++wrong[1].switch_address.mac[5];
  wrong[2].switch_address.udp_port =
      static_cast<uint16_t>(wrong[2].switch_address.udp_port + 1);  // lanes begin above it
  wrong[3].slot_bytes = 512;
  uint64_t dropped = 0;
  for (const client::FrameBinding& binding : wrong) {
    transport->bind(server.binding(transport->address()));
    ASSERT_EQ(transport->tx_burst({&packet, 1}), 1u);
    transport->bind(binding);
    ++dropped;
    const Nanos deadline = now_ns() + kTestTimeoutNs;
    while (transport->counters().dropped < dropped && now_ns() < deadline) {
      client::RxPacket received;
      EXPECT_EQ(transport->rx_burst({&received, 1}), 0u);
      transport->rx_release();
    }
    EXPECT_EQ(transport->counters().dropped, dropped);
  }
  transport->bind(server.binding(transport->address()));
  EXPECT_EQ(exchange(*transport, 1024, 10), 10u);
}

TEST(Memif, FramesCarryTagsBothWays) {
  const test::TempDir folder;
  Server server(folder, 1500, 1024);
  server.tags = true;
  const Transport transport = server.connect();
  ASSERT_TRUE(transport);
  EXPECT_EQ(exchange(*transport, 1024, 200), 200u);
  // An answer to a right frame, looked at with wrong keys.
  const std::vector<int32_t> gradient = memif_gradient(0, 1024);
  const client::TxPacket packet{.message = memif_message(wire::Type::kGrad, 0, 1024),
                                .payload = reinterpret_cast<const std::byte*>(gradient.data()),
                                .payload_bytes = 1024};
  ASSERT_EQ(transport->tx_burst({&packet, 1}), 1u);
  client::FrameBinding wrong = server.binding(transport->address());
  ++wrong.tag_keys->frame.k0;
  transport->bind(wrong);
  const Nanos deadline = now_ns() + kTestTimeoutNs;
  while (transport->counters().dropped == 0 && now_ns() < deadline) {
    client::RxPacket received;
    EXPECT_EQ(transport->rx_burst({&received, 1}), 0u);
    transport->rx_release();
  }
  EXPECT_EQ(transport->counters().dropped, 1u);
  // The switch drops messages sent with them, and goes on with later ones.
  ASSERT_EQ(transport->tx_burst({&packet, 1}), 1u);
  transport->bind(server.binding(transport->address()));
  EXPECT_EQ(exchange(*transport, 1024, 1), 1u);
  server.peer.close_stdin();
  MemifReport report;
  ASSERT_TRUE(server.peer.ask(report));
  EXPECT_EQ(report.counters.drops[DropReason::kBadTag], 1u);
  EXPECT_EQ(report.results, 202u);
}

TEST(Memif, WaitEndsByWakeAndByTime) {
  const test::TempDir folder;
  Server server(folder, 1500, 1024);
  const Transport transport = server.connect();
  ASSERT_TRUE(transport);
  transport->wake();
  transport->wait(kTestTimeoutNs);  // a hang here is the failure
  EXPECT_EQ(transport->counters().sleeps, 0u) << "woken before it slept";
  transport->wait(2'000'000);
  EXPECT_EQ(transport->counters().sleeps, 1u);
  const std::vector<int32_t> gradient = memif_gradient(0, 1024);
  const client::TxPacket packet{.message = memif_message(wire::Type::kGrad, 0, 1024),
                                .payload = reinterpret_cast<const std::byte*>(gradient.data()),
                                .payload_bytes = 1024};
  ASSERT_EQ(transport->tx_burst({&packet, 1}), 1u);
  transport->wait(kTestTimeoutNs);
  client::RxPacket received;
  EXPECT_EQ(transport->rx_burst({&received, 1}), 1u) << "wait() ends when a packet is there";
}

TEST(Memif, LeavesTheHostsThreadAndSignalsAlone) {
  const test::TempDir folder;
  Server server(folder, 1500, 1024);
  const auto state = [] {
    struct State {
      cpu_set_t cpus;
      sigset_t mask;
      std::vector<void (*)(int)> handlers;
    } now;
    CPU_ZERO(&now.cpus);
    ::sched_getaffinity(0, sizeof(now.cpus), &now.cpus);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now.mask);
    for (int number = 1; number < SIGRTMIN; ++number) {
      struct sigaction action {};
      ::sigaction(number, nullptr, &action);
      now.handlers.push_back(action.sa_handler);
    }
    return now;
  };
  cpu_set_t before_cpus;
  CPU_ZERO(&before_cpus);
  ::sched_getaffinity(0, sizeof(before_cpus), &before_cpus);
  int first = 0;
  while (!CPU_ISSET(first, &before_cpus)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  const auto before = state();
  Transport transport = server.connect();
  ASSERT_TRUE(transport);
  EXPECT_EQ(exchange(*transport, 1024, 100), 100u);
  server.peer.kill();
  transport.reset();
  const auto after = state();
  ::sched_setaffinity(0, sizeof(before_cpus), &before_cpus);
  EXPECT_TRUE(CPU_EQUAL(&before.cpus, &after.cpus));
  EXPECT_EQ(before.handlers, after.handlers);
  for (int number = 1; number < SIGRTMIN; ++number)
    EXPECT_EQ(sigismember(&before.mask, number), sigismember(&after.mask, number)) << number;
}

TEST(Memif, LeavesNoFilesEvenIfKilled) {
  const test::TempDir folder;
  Server server(folder, 1500, 1024);
  const Transport transport = server.connect();
  ASSERT_TRUE(transport);
  for (const char* base : {"/var/run/dpdk/ina-", "/tmp/dpdk/ina-"})
    EXPECT_FALSE(std::filesystem::exists(base + std::to_string(::getpid())));
}

TEST(Memif, ErrorsSayWhat) {
  const test::TempDir folder;
  std::string error;
  EXPECT_FALSE(open("memif:" + (folder / "nobody.sock") + "?ip=10.0.0.2", &error, 200'000));
  EXPECT_NE(error.find("nobody.sock"), std::string::npos) << error;
  EXPECT_FALSE(open("memif:/a?ip=10.0.0", &error));
  EXPECT_NE(error.find("10.0.0"), std::string::npos) << error;
  EXPECT_FALSE(open("memif:/a", &error));
  EXPECT_NE(error.find("\"ip\" is missing"), std::string::npos) << error;
  EXPECT_FALSE(open("memif:/a?ip=10.0.0.2&bsize=1", &error));
  EXPECT_NE(error.find("bsize"), std::string::npos) << error;
  EXPECT_FALSE(open("memif:/a,b?ip=10.0.0.2", &error));
  EXPECT_NE(error.find("comma"), std::string::npos) << error;
  EXPECT_FALSE(open("shm:/a?ip=10.0.0.2", &error));
  EXPECT_NE(error.find("memif:"), std::string::npos) << error;
  char tiny[8] = "xxxxxxx";
  EXPECT_EQ(ina_dpdk_transport_open(nullptr, 0, nullptr, tiny, sizeof(tiny)), nullptr);
  EXPECT_EQ(std::strlen(tiny), 7u) << "cut, and ended";
  EXPECT_EQ(ina_dpdk_transport_open("memif:", 0, nullptr, nullptr, 0), nullptr);
}

TEST(Memif, ClientSurvivesDeathOfTheSwitch) {
  for (int round = 0; round < 5; ++round) {
    const test::TempDir folder;
    Server server(folder, 1500, 1024);
    const Transport transport = server.connect();
    ASSERT_TRUE(transport);
    EXPECT_EQ(exchange(*transport, 1024, 100), 100u);
    const std::vector<int32_t> gradient = memif_gradient(0, 1024);
    const std::vector<client::TxPacket> packets(
        32, {.message = memif_message(wire::Type::kGrad, 0, 1024),
             .payload = reinterpret_cast<const std::byte*>(gradient.data()),
             .payload_bytes = 1024});
    std::vector<client::RxPacket> received(32);
    const auto run = [&](Nanos duration) {
      for (const Nanos end = now_ns() + duration; now_ns() < end;) {
        transport->tx_burst(packets);
        transport->rx_burst(received);
        transport->rx_release();
      }
    };
    run(2'000'000);
    server.peer.kill();
    run(20'000'000);
    EXPECT_EQ(transport->rx_burst(received), 0u);
  }
}

TEST(Memif, SwitchSurvivesDeathOfClients) {
  const test::TempDir folder;
  Server server(folder, 1500, 1024);
  for (int round = 0; round < 5; ++round) {
    Peer client({MEMIF_PEER, "client", server.url(), "1024"});
    wire::Address address;
    ASSERT_TRUE(client.ask(address));
    server.bind(address);
    ASSERT_TRUE(client.tell(server.address));
    ::usleep(20'000);
    client.kill();
    ::usleep(5'000);
    ASSERT_EQ(server.peer.status(), -1) << "the switch died with client " << round;
  }
  const Transport transport = server.connect();
  ASSERT_TRUE(transport) << "a new client is served";
  EXPECT_EQ(exchange(*transport, 1024, 500), 500u);
}

}  // namespace
}  // namespace ina::io
