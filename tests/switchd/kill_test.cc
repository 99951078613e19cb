// Workers that die at any moment, by SIGKILL, harm neither the switch nor other jobs, and their
// peers are told whom they lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ina/ina.hpp"
#include "tests/support/process.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Process;
using test::TestSwitch;
using testing::HasSubstr;

/// State of a job by the switch's word, empty if it has none of that name.
std::string state_of(const TestSwitch& sw, const std::string& job) {
  const auto status = sw.status();
  for (const auto& known : status["jobs"])
    if (known["name"] == job) return known["state"];
  return "";
}

TEST(Kills, AtAnyMomentHarmNobodyElse) {
#ifdef INA_SLOW_BUILD
  constexpr int kKills = 80;
#else
  constexpr int kKills = 268;
#endif
  TestSwitch sw({.slots = 1024, .slot_bytes = 4096, .slots_per_job = 64});

  // A job in this process goes on all the while, and its sums must stay right.
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> bystander_sums{0};
  std::thread bystander([&] {
    ina_config config;
    ina_config_init(&config);
    const std::string url = sw.url();
    config.url = url.c_str();
    config.job = "bystander";
    config.rank = 0;
    config.world_size = 1;
    Context context(config);
    while (!stop) {
      std::vector<int32_t> data(50'000, 3);
      context.allreduce<int32_t>(data);
      for (const int32_t element : data) ASSERT_EQ(element, 3);
      ++bystander_sums;
    }
    context.finalize();
  });

  std::mt19937 random(2026);
  int killed_under_load = 0;
  for (int i = 0; i < kKills; ++i) {
    const std::string job = "victim-" + std::to_string(i);
    Process doomed({LOAD_WORKER, sw.url(), job, "1", "2"});
    Process peer({LOAD_WORKER, sw.url(), job, "0", "2"});
    ASSERT_TRUE(doomed.started() && peer.started());
    // Every fourth dies at any moment from its start on, the others in the middle of the traffic.
    const bool while_joining = i % 4 == 3;
    for (int polls = 0; !while_joining && state_of(sw, job) != "running" && polls < 20'000; ++polls)
      ::usleep(500);
    ::usleep(static_cast<useconds_t>(random() % 10'000));
    doomed.kill(SIGKILL);
    EXPECT_EQ(doomed.wait(), -SIGKILL);
    if (while_joining) {
      // Its peer may be told, or gather for ever; both are right.
      peer.kill(SIGKILL);
      peer.wait();
      continue;
    }
    ++killed_under_load;
    const std::string said = peer.output();
    EXPECT_EQ(peer.wait(), 0) << said;
    EXPECT_THAT(said, HasSubstr("INA_ERR_PEER_LOST rank 1")) << "kill " << i;
  }
  stop = true;
  bystander.join();
  EXPECT_GT(bystander_sums, 0u);
  EXPECT_GE(killed_under_load, kKills * 3 / 4);

  for (int i = 0; i < 500 && !sw.status()["jobs"].empty(); ++i) ::usleep(10'000);
  const auto status = sw.status();
  EXPECT_EQ(status["jobs"].size(), 0u);
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0);
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["aggregator"]["absorbed"].get<uint64_t>(),
            status["aggregator"]["contributions_in_results"].get<uint64_t>() +
                status["aggregator"]["contributions_discarded"].get<uint64_t>())
      << "I5: contributions";
}

}  // namespace
}  // namespace ina
