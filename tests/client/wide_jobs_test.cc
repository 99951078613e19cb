// Jobs of more ranks than a switch has bits, through the public API, over the shm port of a whole
// switch: how they gather, are divided, restarted, explained and ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <barrier>
#include <set>

#include "control/messages.h"
#include "tests/support/client_ranks.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using control::Json;
using test::in_threads;
using test::on_joined_ranks;
using test::on_ranks;
using test::SwitchProcess;
using test::TestSwitch;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWide = 70;
#ifdef INA_SLOW_BUILD
constexpr int kMany = 130;
constexpr uint64_t kRunAheadBytes = 128 << 10;
#else
constexpr int kMany = 256;
constexpr uint64_t kRunAheadBytes = 1 << 20;
#endif

test::SwitchOptions options(uint32_t lanes = 1) {
  return {.slots = 64,
          .slot_bytes = 512,
          .lanes = lanes,
          .administered = true,
          .conductor = [](switchd::ConductorConfig& config) {
            config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
            config.jobs.window_bytes = 64 * 1024;
          }};
}

/// A sum of all ranks, which has as many different elements as bits.
void check_sum(Context& context, size_t count) {
  const int world = context.world_size();
  std::vector<int64_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<int64_t>(i) * (context.rank() + 1);
  context.allreduce<int64_t>(data);
  const int64_t factor = int64_t{world} * (world + 1) / 2;
  for (size_t i = 0; i < count; ++i)
    if (data[i] != static_cast<int64_t>(i) * factor)
      throw std::runtime_error("element " + std::to_string(i) + " is wrong");
}

template <class Switch>
Json job_of(const Switch& sw) {
  for (const Json& job : sw.status().value("jobs", Json::array()))
    if (job["name"] == "job") return job;
  return {};
}

TEST(WideJobs, HaveSumsOfManyRanks) {
  TestSwitch sw(options(2));
  on_ranks(sw, kMany, [&](Context& context, int rank) {
    for (const size_t count : {1, 100, 5000}) check_sum(context, count);
    // The receiver and the source of a move are in other domains than most.
    std::vector<int32_t> block(10, rank), all(rank == 100 ? 10 * kMany : 0);
    context.gather<int32_t>(block, all, 100);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] != static_cast<int32_t>(i / 10)) throw std::runtime_error("gather is wrong");
    context.broadcast<int32_t>(block, kMany - 1);
    if (block.back() != kMany - 1) throw std::runtime_error("broadcast is wrong");
  });
  EXPECT_EQ(sw.status()["jobs"].size(), 0u);
  EXPECT_EQ(sw.status()["aggregator"]["memory_used_bytes"], 0);
}

TEST(WideJobs, SplitIntoGroupsOfAnySize) {
  TestSwitch sw(options());
  on_ranks(sw, 2 * kWide, [&](Context& context, int rank) {
    // The first group is wide itself, the others are not.
    const int colour = rank < kWide ? 0 : 1 + rank % 3;
    Context group = context.split(colour, -rank).value();
    if ((group.world_size() == kWide) != (colour == 0))
      throw std::runtime_error("the group has another size");
    check_sum(group, 700);
    check_sum(context, 300);
    check_sum(group, 1);
    group.finalize();
  });
}

TEST(WideJobs, ReproducibleSumsAreThoseOfRankOrder) {
  TestSwitch sw(options());
  std::set<float> results;
  std::mutex lock;
  for (int round = 0; round < 2; ++round)
    on_ranks(
        sw, kWide,
        [&](Context& context, int rank) {
          std::vector<float> data(300, 1.0F / static_cast<float>(rank + 3));
          context.allreduce<float>(data);
          const std::lock_guard held(lock);
          results.insert(data.begin(), data.end());
        },
        [](ina_config& config) { config.numeric = INA_NUMERIC_REPRODUCIBLE; });
  EXPECT_EQ(results.size(), 1u);
}

TEST(WideJobs, AreExplainedByRank) {
  TestSwitch sw(options());
  std::atomic<bool> seen = false;
  on_ranks(sw, kWide, [&](Context& context, int rank) {
    check_sum(context, 10);
    if (rank == 3 || rank == 66) {
      while (!seen) ::usleep(1000);
    } else if (rank == 0) {
      std::vector<float> data(10);
      auto request = context.allreduce_async<float>(data);
      Json job;
      for (int attempt = 0; attempt < 5000; ++attempt, ::usleep(2000)) {
        const auto status = control::query_status(sw.socket_path(), 5'000'000'000);
        ASSERT_TRUE(status) << status.error().text;
        job = (*status)["jobs"][0];
        if (job.value("waiting_for", Json()) == Json({3, 66})) break;
      }
      EXPECT_EQ(job.value("waiting_for", Json()), Json({3, 66})) << job;
      EXPECT_EQ(job["home"], "tree");
      seen = true;
      request.wait();
      return;
    }
    std::vector<float> data(10);
    context.allreduce<float>(data);
  });
}

TEST(WideJobs, ThatDisagreeAreToldWho) {
  TestSwitch sw(options());
  std::atomic<int> told = 0;
  on_joined_ranks(sw, kWide, [&](Context& context, int rank) {
    std::vector<float> data(rank == 68 ? 11 : 10);
    try {
      context.allreduce<float>(data);
      ADD_FAILURE() << "rank " << rank << " got a result";
    } catch (const Exception& error) {
      EXPECT_EQ(error.status(), INA_ERR_MISMATCH) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("10 float32"));
      EXPECT_THAT(error.what(), HasSubstr("11 float32"));
      ++told;
    }
  });
  EXPECT_EQ(told, kWide);
}

TEST(WideJobs, EndWithAnyOfTheirRanks) {
  TestSwitch sw(options());
  on_joined_ranks(sw, kWide, [&](Context& context, int rank) {
    if (rank == 69) return;  // without a goodbye
    std::vector<float> data(1000);
    try {
      context.allreduce<float>(data);
      ADD_FAILURE() << "rank " << rank << " got a result";
    } catch (const Exception& error) {
      EXPECT_EQ(error.status(), INA_ERR_PEER_LOST) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 69"));
    }
  });
}

TEST(WideJobs, RunAheadOfAStraggler) {
  auto helps = options();
  helps.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.jobs.window_bytes = 32 * 1024;
    config.straggler = {config::Help::kLeader, kRunAheadBytes, 0, 1'000'000};
  };
  TestSwitch sw(helps);
  constexpr uint64_t kRunAhead = kRunAheadBytes / 512, kInSwitch = 64;
  on_ranks(
      sw, kWide,
      [&](Context& context, int rank) {
        check_sum(context, 1);
        if (rank == 3) {
          // The other ranks of its domain run ahead, and so does the other domain.
          constexpr uint64_t kWanted = 2 * (kRunAhead - kInSwitch);
          uint64_t parked = 0, held = 0;
          for (int attempt = 0; attempt < 60'000 && parked < kWanted; ++attempt, ::usleep(2000)) {
            const Json job = job_of(sw);
            if (!job.is_object()) continue;
            parked = job.value("parked_now", uint64_t{0});
            held = job.value("slots_held", uint64_t{999});
          }
          EXPECT_GE(parked, kWanted);
          EXPECT_LE(held, 2 * kInSwitch);
        }
        check_sum(context, kRunAheadBytes / 5);
        check_sum(context, 10'000);
      },
      [](ina_config& config) { config.timeout_us = 300'000'000; });
  EXPECT_EQ(sw.status()["aggregator"]["slots_used"], 0);
}

TEST(WideJobs, AreRefusedWherePoolsHaveABitForEach) {
  auto fixed = options();
  fixed.conductor = {};
  TestSwitch sw(fixed);
  try {
    test::join(sw, 0, kWide);
    ADD_FAILURE() << "joined";
  } catch (const Exception& error) {
    EXPECT_EQ(error.status(), INA_ERR_REFUSED);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("at most 64 workers, not 70"), HasSubstr("esa")));
  }
}

TEST(WideJobs, AreRefusedWhereTheirDomainsHaveNoPlaces) {
  auto few = options();
  few.max_jobs = 2;
  few.max_groups = 0;
  TestSwitch sw(few);
  try {
    test::join(sw, 0, kWide);
    ADD_FAILURE() << "joined";
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 of them free; it needs 3"));
  }
}

/// The switch is killed at any moment, and its successors know no fragment.
TEST(WideJobs, GoOnAfterARestart) {
  constexpr int kRestarts = 4;
  SwitchProcess sw(SWITCH_PROCESS, 30'000, 2, "esa");
  std::atomic<bool> done = false;
  std::atomic<int> sums = 0;
  std::thread killer([&] {
    for (int restart = 0; restart < kRestarts; ++restart) {
      const int before = sums;
      while (sums < before + 30 && !done) ::usleep(1000);
      if (done) return;
      sw.kill(SIGKILL);
      ::usleep(20'000);
      sw.start();
    }
    done = true;
  });
  const std::string url = sw.url();
  in_threads(kWide, [&](int rank) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "job";
    config.rank = rank;
    config.world_size = kWide;
    config.timeout_us = 60'000'000;
    config.rejoin_timeout_us = 60'000'000;
    Context context(config);
    for (bool last = false; !last;) {
      // All leave after the same sum.
      std::vector<int32_t> stop(1, rank == 0 && done ? 1 : 0);
      check_sum(context, 3000);
      std::vector<float> data(500, 1.0F / static_cast<float>(rank + 1));
      context.allreduce<float>(data);
      // The same bits everywhere, though some had them before the restart.
      std::vector<float> least = data, most = data;
      context.allreduce<float>(least, INA_MIN);
      context.allreduce<float>(most, INA_MAX);
      if (least != most) throw std::runtime_error("ranks have other bits");
      context.broadcast<int32_t>(stop, 0);
      last = stop[0] != 0;
      if (rank == 0) ++sums;
      if (rank == kWide - 1) sums += 10;
    }
    context.finalize();
  });
  done = true;
  killer.join();
  EXPECT_EQ(sw.status()["boots"], kRestarts + 1);
}

}  // namespace
}  // namespace ina
