// A switch that is killed at any moment, in the middle of its traffic, and started again: every sum
// stays right and no worker notices, under every policy and for every home of the fallback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "tests/support/switch_process.h"

namespace ina {
namespace {

using test::Process;
using test::SwitchProcess;

struct Case {
  const char* policy;
  const char* home;
  int signal;
};

struct Results {
  uint64_t all = 0;
  uint64_t recovered = 0;  ///< by the fallback
};

/// Fragments that completed in this life of the switch.
Results results_of(const SwitchProcess& sw) {
  const auto status = sw.status();
  const auto recovered = status["aggregator"]["fallback_results"].get<uint64_t>();
  return {status["aggregator"]["results"].get<uint64_t>() + recovered, recovered};
}

class RestartUnderLoad : public testing::TestWithParam<Case> {};

TEST_P(RestartUnderLoad, EverySumStaysRight) {
  constexpr int kWorld = 4;
  constexpr int kRestarts = 24;
  const auto [policy, home, signal] = GetParam();
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 2, policy, home);
  // They sum until they are told to end, so that there is traffic at every restart.
  std::vector<Process> workers;
  for (int rank = 0; rank < kWorld; ++rank)
    workers.emplace_back(std::vector<std::string>{
        LOAD_WORKER, sw.url(), "job", std::to_string(rank), std::to_string(kWorld), "30011"});
  std::mt19937 random(2026);
  uint64_t recovered = 0;
  for (int restart = 0; restart < kRestarts; ++restart) {
    // While sums complete, or, every third time, while the workers are still coming back.
    const bool gathering = restart % 3 == 2;
    for (int polls = 0; !gathering && results_of(sw).all < 200 && polls < 20'000; ++polls)
      ::usleep(500);
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    ASSERT_EQ(sw.status()["jobs"].size(), 1u) << "after " << restart << " restarts";
    recovered += results_of(sw).recovered;
    EXPECT_EQ(sw.kill(signal), signal == SIGKILL ? -SIGKILL : 0);
    sw.start();
  }
  workers[0].kill(SIGTERM);
  for (Process& worker : workers) {
    EXPECT_EQ(worker.output(), "INA_OK \n");
    EXPECT_EQ(worker.wait(), 0);
  }
  EXPECT_TRUE(sw.status()["jobs"].empty());
  EXPECT_GT(recovered, 0u) << "no restart met a sum half-way: nothing was tested";
}

INSTANTIATE_TEST_SUITE_P(
    All, RestartUnderLoad,
    testing::Values(Case{"static", "workers", SIGKILL}, Case{"static", "spill", SIGKILL},
                    Case{"fcfs", "workers", SIGKILL}, Case{"fcfs", "spill", SIGKILL},
                    Case{"esa", "workers", SIGKILL}, Case{"esa", "spill", SIGKILL},
                    Case{"static", "workers", SIGTERM}, Case{"esa", "spill", SIGTERM}),
    [](const auto& test) {
      return std::string(test.param.policy) + "_" + test.param.home +
             (test.param.signal == SIGKILL ? "_killed" : "_stopped");
    });

}  // namespace
}  // namespace ina
