// Workers that die at any moment, by SIGKILL, harm neither the switch nor other jobs, and their
// peers are told whom they lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ina/ina.hpp"
#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Process;
using test::TestSwitch;
using testing::HasSubstr;

TEST(Kills, AtAnyMomentHarmNobodyElse) {
  constexpr int kKills = 300;
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
    // Some die while joining, most in the middle of the traffic.
    ::usleep(static_cast<useconds_t>(random() % 25'000));
    const bool was_joining = [&] {
      for (const auto& known : sw.status()["jobs"])
        if (known["name"] == job) return known["state"] == "joining";
      return true;
    }();
    doomed.kill(SIGKILL);
    EXPECT_EQ(doomed.wait(), -SIGKILL);
    if (was_joining) {
      // It may or may not have begun meanwhile; a peer that still gathers is ended here.
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
  EXPECT_GE(killed_under_load, 200) << "the others died while their job still gathered";

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
