// A switch that is killed at any moment, in the middle of its traffic, and started again: every sum
// stays right and no worker hears of it. Needs a policy that recovers what the switch held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "tests/support/switch_process.h"

namespace ina {
namespace {

using test::Process;
using test::SwitchProcess;

uint64_t results_of(const SwitchProcess& sw) {
  return sw.status()["aggregator"]["results"].get<uint64_t>();
}

class RestartUnderLoad : public testing::TestWithParam<int> {};

TEST_P(RestartUnderLoad, EverySumStaysRight) {
  constexpr int kWorld = 4;
  constexpr int kRestarts = 20;
  constexpr int kSums = 2000;
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 2);
  std::vector<Process> workers;
  for (int rank = 0; rank < kWorld; ++rank)
    workers.emplace_back(std::vector<std::string>{LOAD_WORKER, sw.url(), "job",
                                                  std::to_string(rank), std::to_string(kWorld),
                                                  "30011", std::to_string(kSums)});
  std::mt19937 random(2026);
  int restarts = 0;
  for (; restarts < kRestarts; ++restarts) {
    // While sums complete, or, every third time, while the workers are still coming back.
    const bool gathering = restarts % 3 == 2;
    for (int polls = 0; !gathering && results_of(sw) < 200 && polls < 20'000; ++polls)
      ::usleep(500);
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    if (sw.status()["jobs"].empty()) break;  // they were done already
    EXPECT_EQ(sw.kill(GetParam()), GetParam() == SIGKILL ? -SIGKILL : 0);
    sw.start();
  }
  for (Process& worker : workers) {
    EXPECT_EQ(worker.output(), "INA_OK \n");
    EXPECT_EQ(worker.wait(), 0);
  }
  EXPECT_GE(restarts, kRestarts / 2) << "more sums are needed for so many restarts";
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, RestartUnderLoad, testing::Values(SIGKILL, SIGTERM),
                         [](const auto& param_info) {
                           return param_info.param == SIGKILL ? "Killed" : "Stopped";
                         });

}  // namespace
}  // namespace ina
