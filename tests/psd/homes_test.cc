// Every policy with every home of the fallback, in whole: jobs compete for few slots, and all sums
// must be right.
#include <gtest/gtest.h>

#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Process;
using test::TestSwitch;

struct Case {
  const char* policy;
  Home home;
};

class Homes : public testing::TestWithParam<Case> {};

TEST_P(Homes, JobsThatCompeteGetTheirSums) {
  const bool fixed = std::string(GetParam().policy) == "static";
  TestSwitch::Options options;
  options.slots = fixed ? 256 : 16;
  options.lanes = 2;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.policy = value_in(scheduler::kPolicyNames, GetParam().policy).value();
    config.home = GetParam().home;
    config.window_bytes = 128 * 1024;
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
  const auto status = sw.status();
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0);
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], 0);
}

INSTANTIATE_TEST_SUITE_P(All, Homes,
                         testing::Values(Case{"static", Home::kWorkers},
                                         Case{"static", Home::kDedicated},
                                         Case{"static", Home::kSpill}, Case{"fcfs", Home::kWorkers},
                                         Case{"fcfs", Home::kDedicated}, Case{"fcfs", Home::kSpill},
                                         Case{"esa", Home::kWorkers}, Case{"esa", Home::kDedicated},
                                         Case{"esa", Home::kSpill}),
                         [](const auto& test) {
                           return std::string(test.param.policy) + "_" +
                                  std::string(name(test.param.home));
                         });

}  // namespace
}  // namespace ina
