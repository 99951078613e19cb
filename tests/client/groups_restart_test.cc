// Groups of ranks when the switch is restarted: those that are there, and those that are being
// made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <barrier>
#include <cerrno>
#include <random>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/client/group_ranks.h"
#include "tests/support/attendance.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using control::Json;
using test::Attendance;
using test::on_ranks;
using test::Outcome;
using test::SwitchProcess;
using test::Worker;
using testing::HasSubstr;

Json job_named(const Json& status, const std::string& name) {
  for (const Json& job : status.value("jobs", Json::array()))
    if (job["name"] == name) return job;
  return {};
}

class GroupsOverARestart : public testing::TestWithParam<const char*> {};

TEST_P(GroupsOverARestart, GoOnWithTheirJob) {
  constexpr int kWorld = 4;
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 2, "esa", GetParam());
  std::atomic<bool> stop{false};
  std::atomic<int> ready{0};
  on_ranks(
      sw.url(), kWorld,
      [&](Worker& job, int rank) -> Outcome {
        Worker row, column, nested;
        RETURN_IF_FAILED(job.split(rank / 2, 0, row));
        RETURN_IF_FAILED(job.split(rank % 2, 0, column));
        RETURN_IF_FAILED(column.split(0, -rank, nested));
        ++ready;
        // All stop after the same round.
        for (int32_t last = 0; last == 0;) {
          RETURN_IF_FAILED(row.sum(20'000));
          RETURN_IF_FAILED(nested.sum(3000));
          RETURN_IF_FAILED(column.sum(100));
          last = stop.load() ? 1 : 0;
          if (ina_allreduce(job.context(), &last, &last, 1, INA_INT32, INA_MIN, 0) != INA_OK)
            return {INA_ERR_INTERNAL, ina_last_error(job.context())};
        }
        Worker again;
        RETURN_IF_FAILED(job.split(0, 0, again));
        RETURN_IF_FAILED(again.sum(1000));
        RETURN_IF_FAILED(row.leave());
        return column.leave();
      },
      [&] {
        while (ready.load() < kWorld) ::usleep(10'000);
        for (int round = 0; round < 3; ++round) {
          ::usleep(200'000);
          EXPECT_EQ(sw.kill(SIGKILL), -SIGKILL);
          sw.start();
          const Nanos deadline = now_ns() + 20'000'000'000;
          size_t running = 0;
          while (running < 6 && now_ns() < deadline) {
            running = 0;
            for (const Json& job : sw.status().value("jobs", Json::array()))
              running += job["state"] == "running";
            ::usleep(5000);
          }
          // The job, two rows, two columns, and two groups of the columns.
          EXPECT_EQ(sw.status().value("jobs", Json::array()).size(), 7u);
        }
        stop = true;
      });
  EXPECT_EQ(sw.status()["jobs"].size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Homes, GroupsOverARestart, testing::Values("workers", "spill"),
                         [](const auto& home) { return std::string(home.param); });

/// Which group a rank asks for: one, two of neighbours, two of every second, or none for rank 0.
int colour_of(uint32_t seed, int rank) {
  switch (seed % 4) {
    case 0:
      return 0;
    case 1:
      return rank / 2;
    case 2:
      return rank % 2;
    default:
      return rank == 0 ? -1 : 0;
  }
}

std::atomic<bool> held{false};

/// A signal's handler: keeps its thread where it is.
void hold_still(int) {
  const int before = errno;
  const timespec pause{0, 100'000};
  while (held.load()) ::nanosleep(&pause, nullptr);
  errno = before;
}

/// Until the job runs again, or somebody who is held still is in its way.
void await_job(const SwitchProcess& sw) {
  const Nanos deadline = now_ns() + 200'000'000;
  while (now_ns() < deadline && job_named(sw.status(), "job")["state"] != "running") ::usleep(2000);
}

class SplitsOverARestart : public testing::TestWithParam<const char*> {};

/// The switch dies at a seeded moment after ranks have begun to split.
TEST_P(SplitsOverARestart, EndWithAGroupOrOneErrorAndTheNextOneWorks) {
  constexpr int kWorld = 4;
#ifdef INA_SLOW_BUILD
  constexpr uint32_t kSeeds = 8;
#else
  constexpr uint32_t kSeeds = 60;
#endif
  // Over how long ranks begin, and how long after that the switch may die.
  constexpr uint32_t kBeginUs = 1000, kEndUs = 4000;
  struct Ended {
    Outcome outcome;
    bool in_group = false;
  };
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 2, "esa", GetParam());
  std::array<Ended, kWorld> ended;
  std::atomic<int> splitting{0};
  std::barrier<> step(kWorld + 1);
  std::array<pthread_t, kWorld> threads;
  struct sigaction holds = {};
  holds.sa_handler = hold_still;
  holds.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &holds, nullptr), 0);
  const auto split_and_sum = [&](Worker& job, int rank) -> Outcome {
    Attendance attendance(step);
    threads[static_cast<size_t>(rank)] = ::pthread_self();
    for (uint32_t seed = 0; seed < kSeeds; ++seed) {
      std::mt19937 random(seed * (kWorld + 1) + static_cast<uint32_t>(rank));
      attendance.wait();
      ::usleep(random() % kBeginUs);
      ++splitting;
      Worker group;
      Ended& own = ended[static_cast<size_t>(rank)];
      own.outcome = job.split(colour_of(seed, rank), -rank, group);
      own.in_group = static_cast<bool>(group);
      --splitting;
      attendance.wait();
      attendance.wait();
      if (group) {
        RETURN_IF_FAILED(group.sum(1000));
        RETURN_IF_FAILED(group.leave());
      }
      Worker next;
      RETURN_IF_FAILED(job.split(colour_of(seed + 1, rank), 0, next));
      if (next) {
        RETURN_IF_FAILED(next.sum(1000));
        RETURN_IF_FAILED(next.leave());
      }
      RETURN_IF_FAILED(job.sum(100));
    }
    return {};
  };
  uint32_t met = 0, lost = 0;
  on_ranks(sw.url(), kWorld, split_and_sum, [&] {
    Attendance attendance(step);
    for (uint32_t seed = 0; seed < kSeeds; ++seed) {
      std::mt19937 random(seed * (kWorld + 1) + kWorld);
      const int signal = random() % 4 == 0 ? SIGTERM : SIGKILL;
      const auto still = static_cast<uint32_t>(random() % 2 == 0 ? random() % (1 << kWorld) : 0);
      attendance.wait();
      ::usleep(random() % kEndUs);
      met += splitting.load() > 0;
      // Some callers are kept where they are, while all others see the new switch.
      held = still != 0;
      for (int rank = 0; rank < kWorld; ++rank)
        if (still >> rank & 1) ::pthread_kill(threads[static_cast<size_t>(rank)], SIGUSR1);
      EXPECT_EQ(sw.kill(signal), signal == SIGKILL ? -SIGKILL : 0);
      sw.start();
      if (still != 0) await_job(sw);
      held = false;
      attendance.wait();
      for (int rank = 0; rank < kWorld; ++rank) {
        const auto& [outcome, in_group] = ended[static_cast<size_t>(rank)];
        const int colour = colour_of(seed, rank);
        SCOPED_TRACE("seed " + std::to_string(seed) + ", rank " + std::to_string(rank) + ": " +
                     outcome.text);
        EXPECT_EQ(in_group, outcome.status == INA_OK && colour >= 0);
        if (outcome.status != INA_OK) {
          ++lost;
          EXPECT_EQ(outcome.status, INA_ERR_SWITCH_LOST);
          EXPECT_THAT(outcome.text, HasSubstr("the switch "));
        }
        // Nobody has a group that others of it have not.
        for (int other = 0; other < rank; ++other) {
          if (colour_of(seed, other) != colour) continue;
          EXPECT_EQ(ended[static_cast<size_t>(other)].in_group, in_group) << "rank " << other;
        }
      }
      attendance.wait();
    }
  });
  EXPECT_GT(met, 0u) << "no restart met a split: nothing was tested";
  RecordProperty("restarts_during_a_split", static_cast<int>(met));
  RecordProperty("ranks_without_a_group", static_cast<int>(lost));
  EXPECT_EQ(sw.status()["jobs"].size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Homes, SplitsOverARestart, testing::Values("workers", "spill"),
                         [](const auto& home) { return std::string(home.param); });

class MemberGroupsOverARestart : public testing::TestWithParam<const char*> {};

/// The switch dies at a seeded moment while members make groups, which all get nonetheless.
TEST_P(MemberGroupsOverARestart, AreMadeAllTheSame) {
  constexpr int kWorld = 4;
#ifdef INA_SLOW_BUILD
  constexpr uint32_t kSeeds = 6;
#else
  constexpr uint32_t kSeeds = 40;
#endif
  constexpr uint32_t kBeginUs = 1000, kEndUs = 4000;
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 2, "esa", GetParam());
  std::atomic<int> creating{0};
  std::barrier<> step(kWorld + 1);
  const auto create_and_sum = [&](Worker& job, int rank) -> Outcome {
    Attendance attendance(step);
    for (uint32_t seed = 0; seed < kSeeds; ++seed) {
      std::mt19937 random(seed * (kWorld + 1) + static_cast<uint32_t>(rank));
      attendance.wait();
      ::usleep(random() % kBeginUs);
      const std::vector<int> ranks = seed % 2 == 0   ? std::vector{3, 1, 2, 0}
                                     : rank % 2 == 0 ? std::vector{0, 2}
                                                     : std::vector{3, 1};
      Worker group;
      ++creating;
      const Outcome made = job.create(ranks, seed % 3, group);
      --creating;
      RETURN_IF_FAILED(made);
      RETURN_IF_FAILED(group.sum(1000));
      RETURN_IF_FAILED(group.leave());
      RETURN_IF_FAILED(job.sum(100));
      attendance.wait();
    }
    return {};
  };
  uint32_t met = 0;
  on_ranks(sw.url(), kWorld, create_and_sum, [&] {
    Attendance attendance(step);
    for (uint32_t seed = 0; seed < kSeeds; ++seed) {
      std::mt19937 random(seed * (kWorld + 1) + kWorld);
      attendance.wait();
      ::usleep(random() % kEndUs);
      met += creating.load() > 0;
      sw.kill(SIGKILL);
      sw.start();
      attendance.wait();
    }
  });
  EXPECT_GT(met, 0u) << "no restart met a request: nothing was tested";
  RecordProperty("restarts_during_a_request", static_cast<int>(met));
  EXPECT_EQ(sw.status()["jobs"].size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Homes, MemberGroupsOverARestart, testing::Values("workers", "spill"),
                         [](const auto& home) { return std::string(home.param); });

TEST(Groups, ThatOneHasLeftDoNotComeBackAndTheOthersDo) {
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 1, "esa");
  std::barrier<> step(3);
  on_ranks(
      sw.url(), 2,
      [&](Worker& job, int) -> Outcome {
        Worker freed, kept;
        RETURN_IF_FAILED(job.split(0, 0, freed));
        RETURN_IF_FAILED(job.split(0, 0, kept));
        RETURN_IF_FAILED(freed.leave());
        step.arrive_and_wait();
        step.arrive_and_wait();
        RETURN_IF_FAILED(kept.sum(1000));
        return job.sum(1000);
      },
      [&] {
        step.arrive_and_wait();
        sw.kill(SIGKILL);
        sw.start();
        const Json status = sw.status();
        EXPECT_EQ(status["jobs"].size(), 2u);
        const Json job = job_named(status, "job");
        for (const Json& other : status["jobs"])
          EXPECT_TRUE(other["name"] == "job" || other["group_of"] == job["id"]);
        step.arrive_and_wait();
      });
}

}  // namespace
}  // namespace ina
