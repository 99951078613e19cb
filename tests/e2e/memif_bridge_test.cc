// Workers on memif behind ina-memif, as their users meet them: real processes and DPDK. The switch
// goes on when any of the processes dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/e2e/memif_bridge.h"
#include "tests/support/process.h"

namespace ina {
namespace {

using control::Json;
using test::full;
using test::kDeadlineNs;
using test::MemifBridge;
using test::Process;
using testing::StartsWith;

struct Rules {
  const char* policy;
  const char* home;
};

class MemifBridgePolicies : public MemifBridge, public testing::WithParamInterface<Rules> {};

TEST_P(MemifBridgePolicies, MixedJobsGetEverySumRight) {
  start_switch(GetParam().policy, GetParam().home);
  start_bridge();
  expect_job("mixed", 30'011, 40);
  EXPECT_TRUE(status()["jobs"].empty());
  const Json port = status()["ports"][0];
  EXPECT_GE(port["rx_bytes"], 3u * 40 * 30'011 * 4) << "all of it came by the shm port";
  if (GetParam().policy != std::string("static")) {
    EXPECT_GT(status()["aggregator"]["fallback_results"], 0) << "slots were not few";
  }
  bridge_->kill(SIGUSR1);
  EXPECT_TRUE(await([&] {
    return read("bridge.log").find("interface=\"1\" rx_") != std::string::npos;
  })) << read("bridge.log");
  bridge_->kill(SIGTERM);
  EXPECT_EQ(bridge_->wait(), 0) << read("bridge.log");
  for (const char* name : {"control.sock", "memif.sock"}) {
    struct stat left {};
    EXPECT_NE(::stat((dir_ / name).c_str(), &left), 0) << name << " is left behind";
  }
}

INSTANTIATE_TEST_SUITE_P(All, MemifBridgePolicies,
                         testing::Values(Rules{"static", "workers"}, Rules{"fcfs", "workers"},
                                         Rules{"fcfs", "spill"}, Rules{"esa", "workers"},
                                         Rules{"esa", "spill"}),
                         [](const auto& test) {
                           return std::string(test.param.policy) + "_" + test.param.home;
                         });

/// `urls`: of the ranks. The counts are those of tests/net/wire_test.py.
void expect_every_collective(const std::vector<std::string>& urls, const std::string& job,
                             const std::vector<std::string>& more, const std::string& done) {
  std::vector<Process> workers;
  for (size_t rank = 0; rank < urls.size(); ++rank) {
    std::vector<std::string> command = {GRID_WORKER, urls[rank], job, std::to_string(rank),
                                        std::to_string(urls.size())};
    command.insert(command.end(), more.begin(), more.end());
    workers.emplace_back(command);
  }
  for (Process& one : workers) EXPECT_EQ(one.output(), done) << job;
}

TEST_F(MemifBridge, EveryCollectiveByEveryTypeAndOperation) {
  start_switch("esa", "spill");
  start_bridge();
  const std::vector<std::string> two = {memif_url(0), memif_url(1)};
  const std::vector<std::string> three = {memif_url(0), shm_url(), memif_url(1)};
  expect_every_collective(two, "two", {}, "ok 2629\n");
  expect_every_collective(three, "three", {}, "ok 2629\n");
  expect_every_collective(two, "two-uneven", {"uneven"}, "ok 1828\n");
  expect_every_collective(three, "three-uneven", {"uneven"}, "ok 1828\n");
  EXPECT_TRUE(status()["jobs"].empty());
}

TEST_F(MemifBridge, WorkersThatAreKilledUnderLoadHarmNobodyElse) {
  const int kills = full() ? 300 : 25;
  start_switch("esa");
  start_bridge();
  Bystanders others = bystanders();
  std::mt19937 random(2026);
  int crashes = 0;
  for (int i = 0; i < kills; ++i) {
    const std::string job = "victim-" + std::to_string(i);
    Process doomed = worker(memif_url(i % 3), job, 0, 2, 60'000, -1);
    Process peer = worker(shm_url(), job, 1, 2, 60'000, -1);
    ASSERT_TRUE(await_sums(job)) << read("bridge.log");
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    expect_loss(peer, 0, [&] { doomed.kill(SIGKILL); });
    EXPECT_EQ(doomed.wait(), -SIGKILL);
    if (!bridge_->ended()) continue;
    ++crashes;
    bridge_->wait();
    start_bridge();
  }
  EXPECT_TRUE(await_results(100));
  others.finish();
  EXPECT_FALSE(switch_->ended());
  EXPECT_TRUE(await([&] { return status()["jobs"].empty(); }));
  EXPECT_EQ(status()["aggregator"]["slots_used"], 0);
  RecordProperty("bridge_crashes", crashes);
}

/// The driver aborts its process when a connection ends before it has said hello (DPDK 22.11).
TEST_F(MemifBridge, ADriverThatCrashesTakesItsProcessAlone) {
  start_switch("esa");
  start_bridge();
  Bystanders others = bystanders();
  const auto crash = [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (dir_ / "memif.sock").c_str(), sizeof(address.sun_path) - 1);
    for (const Nanos deadline = now_ns() + kDeadlineNs; now_ns() < deadline && !bridge_->ended();) {
      const Fd peer(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      (void)::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    }
  };
  for (int i = 0; i < 3; ++i) {
    const std::string job = "job-" + std::to_string(i);
    ::setenv("INA_REJOIN_TIMEOUT_US", "300000", 1);
    Process remote = worker(memif_url(0), job, 0, 2, 60'000, -1);
    ::unsetenv("INA_REJOIN_TIMEOUT_US");
    Process local = worker(shm_url(), job, 1, 2, 60'000, -1);
    ASSERT_TRUE(await_sums(job));
    crash();
    ASSERT_TRUE(bridge_->ended()) << "the driver does not crash any more: nothing was tested";
    EXPECT_THAT(local.output(), StartsWith("INA_ERR_PEER_LOST rank 0"));
    EXPECT_THAT(remote.output(), StartsWith("INA_ERR_SWITCH_LOST"));
    EXPECT_EQ(bridge_->wait(), -SIGABRT);
    EXPECT_FALSE(switch_->ended());
    start_bridge();
  }
  expect_job("after", 20'000, 5);
  others.finish();
  EXPECT_FALSE(switch_->ended());
}

TEST_F(MemifBridge, ABridgeThatIsKilledIsALostPeerAndANewOneServesNewJobs) {
  start_switch();
  start_bridge();
  Bystanders others = bystanders();
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
    const std::string job = "job-" + std::to_string(signal);
    Process remote = worker(memif_url(0), job, 0, 2, 60'000, -1);
    Process local = worker(shm_url(), job, 1, 2, 60'000, -1);
    ASSERT_TRUE(await_sums(job));
    expect_loss(local, 0, [&] { bridge_->kill(signal); });
    EXPECT_EQ(bridge_->wait(), signal == SIGTERM ? 0 : -signal);
    start_bridge();
    // It comes back to a job that has ended, and says so; it does not wait for ever.
    EXPECT_THAT(remote.output(), StartsWith("INA_ERR_SWITCH_LOST"));
    expect_job("after-" + std::to_string(signal), 20'000, 5);
  }
  others.finish();
  EXPECT_FALSE(switch_->ended());
}

TEST_F(MemifBridge, RestartsOfTheSwitchGoUnnoticed) {
  start_switch("esa");
  start_bridge();
  std::vector<Process> workers;
  for (const int id : {0, 1}) workers.push_back(worker(memif_url(id), "mixed", id, 3, 30'011, -1));
  workers.push_back(worker(shm_url(), "mixed", 2, 3, 30'011, -1));
  std::mt19937 random(2026);
  for (int restart = 0; restart < (full() ? 40 : 6); ++restart) {
    ASSERT_TRUE(await_sums("mixed")) << "restart " << restart << "\n" << read("bridge.log");
    ASSERT_TRUE(await_results(200)) << "restart " << restart;
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    const int signal = restart % 2 == 0 ? SIGKILL : SIGTERM;
    switch_->kill(signal);
    EXPECT_EQ(switch_->wait(), signal == SIGKILL ? -SIGKILL : 0);
    start_switch("esa");
  }
  ASSERT_TRUE(await_sums("mixed"));
  workers[0].kill(SIGTERM);
  for (Process& one : workers) EXPECT_EQ(one.output(), "INA_OK \n") << read("bridge.log");
  EXPECT_FALSE(bridge_->ended()) << "it is the same bridge";
  EXPECT_TRUE(status()["jobs"].empty());
}

/// ina_alloc_result() on all ranks, one of which cannot have the switch write into it.
TEST_F(MemifBridge, ResultBuffersAreOrdinaryMemoryInAMixedJob) {
  start_switch();
  start_bridge();
  const auto run = [](const std::string& url, int rank) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "buffers";
    config.rank = rank;
    config.world_size = 2;
    config.timeout_us = 20'000'000;
    ina_context* context = nullptr;
    ASSERT_EQ(ina_init(&config, &context), INA_OK) << ina_last_error(nullptr);
    constexpr size_t kElements = 50'000;
    void* send = nullptr;
    void* recv = nullptr;
    ASSERT_EQ(ina_alloc(context, kElements * 4, &send), INA_OK) << ina_last_error(context);
    ASSERT_EQ(ina_alloc_result(context, kElements * 4, &recv), INA_OK) << ina_last_error(context);
    for (int times = 0; times < 5; ++times) {
      for (size_t i = 0; i < kElements; ++i)
        static_cast<int32_t*>(send)[i] = static_cast<int32_t>(i) * (rank + 1) + times;
      ASSERT_EQ(ina_allreduce(context, send, recv, kElements, INA_INT32, INA_SUM, 0), INA_OK)
          << ina_last_error(context);
      for (size_t i = 0; i < kElements; ++i)
        ASSERT_EQ(static_cast<const int32_t*>(recv)[i], static_cast<int32_t>(i) * 3 + 2 * times);
    }
    EXPECT_EQ(ina_finalize(context, 0), INA_OK);
  };
  std::thread remote(run, memif_url(0), 0);
  run(shm_url(), 1);
  remote.join();
}

/// DPDK has 32 ports, and the memory asked of it must suffice.
TEST_F(MemifBridge, ManyInterfacesShareOneSocket) {
  start_switch();
  start_bridge("--workers 32 --mtu 16000");
  Process first = worker(memif_url(0), "job", 0, 2, 20'000, 3);
  Process last = worker(memif_url(31), "job", 1, 2, 20'000, 3);
  EXPECT_EQ(first.output(), "INA_OK \n") << read("bridge.log");
  EXPECT_EQ(last.output(), "INA_OK \n");
}

}  // namespace
}  // namespace ina
