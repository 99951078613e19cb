// The gate that keeps pollers out of a memif device while its connection is torn down.
#include "io/ethdev/poll_gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "common/clock.h"
#include "io/ethdev/ethdev_port.h"
#include "tests/ethdev/eal_fixture.h"
#include "tests/ethdev/peer.h"
#include "tests/support/temp_dir.h"

namespace ina::io {
namespace {

/// Memory of memif peers that this process has mapped.
int mapped_regions() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memif") != line.npos;
  return count;
}

template <class Condition>
bool comes_true(Condition condition) {
  for (const Nanos end = now_ns() + 10'000'000'000; now_ns() < end; ::usleep(1000))
    if (condition()) return true;
  return false;
}

TEST(PollGate, MemoryOfADeadPeerStaysWhileAPollerIsInside) {
  const test::TempDir folder;
  const std::string socket = (folder / "memif.sock");
  EthdevPortConfig config;
  config.name = "gate";
  config.device = "net_memif0,role=server,id=0,socket-abstract=no,socket=" + socket;
  config.ip = 0x0a000001;
  config.rx_descriptors = 128;
  config.tx_descriptors = 128;
  const auto port = EthdevPort::open(config);
  ASSERT_TRUE(port) << port.error().text;
  const int before = mapped_regions();
  PollGate poller;

  for (int round = 0; round < 3; ++round) {
    Peer client({MEMIF_PEER, "client", "memif:" + socket + "?ip=10.0.0.2", "1024"});
    wire::Address address;
    ASSERT_TRUE(client.ask(address));
    ASSERT_TRUE(comes_true([&] { return port->front()->link_up() && mapped_regions() > before; }));
    ASSERT_TRUE(comes_true([&] { return poller.enter(); }));

    client.kill();
    // Inside, a poller may read the peer's memory for as long as a burst takes, and far longer.
    for (int i = 0; i < 100; ++i, ::usleep(1000)) ASSERT_GT(mapped_regions(), before);
    PollGate other;
    EXPECT_FALSE(other.enter()) << "nobody else gets in meanwhile";
    poller.leave();
    EXPECT_TRUE(comes_true([&] { return mapped_regions() == before; })) << "torn down in the end";
    EXPECT_TRUE(comes_true([&] { return other.enter(); })) << "and open again";
    other.leave();
  }
}

[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new EalEnvironment);

}  // namespace
}  // namespace ina::io
