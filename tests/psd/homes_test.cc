// Every policy with every home of the fallback, in whole: jobs compete for few slots, and all sums
// must be right.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Process;
using test::TestSwitch;

struct Case {
  scheduler::PolicyKind policy;
  Home home;
};

class Homes : public testing::TestWithParam<Case> {};

TEST_P(Homes, JobsThatCompeteGetTheirSums) {
  TestSwitch::Options options;
  options.slots = scheduler::traits(GetParam().policy).hashed ? 16 : 256;
  options.lanes = 2;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = GetParam().policy;
    config.rules.home = GetParam().home;
    config.jobs.window_bytes = 128 * 1024;
  };
  TestSwitch sw(options);
  Process server = GetParam().home == Home::kDedicated
                       ? Process({PSD, "--socket", sw.socket_path()})
                       : Process({"/bin/true"});
  std::vector<Process> workers;
  for (const char* job : {"one", "two", "three"})
    for (int rank = 0; rank < 3; ++rank)
      workers.emplace_back(std::vector<std::string>{LOAD_WORKER, sw.url(), job,
                                                    std::to_string(rank), "3", "30000", "10"});
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
  auto status = sw.status();
  // The fallback server hears later that a job has ended, and has its memory until then.
  for (int i = 0; i < 1000 && status["aggregator"]["memory_used_bytes"] != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = sw.status();
  }
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0);
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], 0);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& policy : scheduler::kPolicyNames)
    for (const auto& home : kHomeNames) cases.push_back({policy.value, home.value});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Homes, testing::ValuesIn(all_cases()), [](const auto& test) {
  return std::string(name(test.param.policy)) + "_" + std::string(name(test.param.home));
});

}  // namespace
}  // namespace ina
