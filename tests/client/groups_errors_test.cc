// Groups of ranks when something goes wrong: workers that die, leave or do not come, and what the
// switch refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <barrier>
#include <latch>
#include <thread>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/client/group_ranks.h"
#include "tests/support/attendance.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using test::Attendance;
using test::expect_nothing_left;
using test::kLongUs;
using test::kShortUs;
using test::on_ranks;
using test::Outcome;
using test::shared_slots;
using test::SwitchOptions;
using test::SwitchProcess;
using test::TestSwitch;
using test::Worker;
using testing::HasSubstr;

#ifndef INA_UNDER_TSAN  // which cannot follow a child that makes threads
TEST(Groups, AWorkerThatDiesEndsItsGroupsAndNoOthers) {
  SwitchProcess sw(SWITCH_PROCESS, 10'000, 1, "esa");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // No thread runs beside: one might hold a lock, which the child would never get.
  const pid_t child = ::fork();
  if (child == 0) {
    Worker job, half;
    char go;
    const bool split = job.join(sw.url(), 3, 4).status == INA_OK &&
                       job.split(1, 0, half).status == INA_OK && half.sum(100).status == INA_OK &&
                       ::read(ends[0], &go, 1) == 1;
    ::_exit(split ? 0 : 1);
  }
  std::vector<std::thread> threads;
  std::barrier<> step(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Attendance attendance(step);
      Worker job, half;
      Outcome outcome = job.join(sw.url(), rank, 4);
      ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
      outcome = job.split(rank / 2, 0, half);
      ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
      outcome = half.sum(100);
      ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
      attendance.wait();
      if (rank == 0) {
        EXPECT_EQ(::write(ends[1], "", 1), 1);
      }
      outcome = job.sum(10);
      EXPECT_EQ(outcome.status, INA_ERR_PEER_LOST);
      EXPECT_THAT(outcome.text, HasSubstr("rank 3"));
      outcome = half.sum(10'000);
      if (rank == 2) {
        EXPECT_EQ(outcome.status, INA_ERR_PEER_LOST);
        EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
      } else {
        EXPECT_EQ(outcome.status, INA_OK) << "a group without it: " << outcome.text;
        EXPECT_EQ(half.leave().status, INA_OK);
      }
    });
  for (auto& thread : threads) thread.join();
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  expect_nothing_left(sw);
}
#endif

TEST(Groups, WhoLeavesOneWithOperationsUnderWayIsNamedAndTheJobGoesOn) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 2, [&](Worker& job, int rank) -> Outcome {
    Worker group;
    RETURN_IF_FAILED(job.split(0, 0, group));
    RETURN_IF_FAILED(job.barrier());  // both have it
    if (rank == 1) {
      float data[1] = {1};
      ina_request* request = nullptr;
      ina_allreduce_async(group.context(), data, data, 1, INA_FLOAT32, INA_SUM, &request);
      EXPECT_EQ(group.leave(50'000).status, INA_ERR_TIMEOUT);
    } else {
      RETURN_IF_FAILED(job.sum(1));  // the other has left then
      const Outcome outcome = group.sum(100'000);
      EXPECT_EQ(outcome.status, INA_ERR_PEER_LOST);
      EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
      return job.sum(10);
    }
    RETURN_IF_FAILED(job.sum(1));
    return job.sum(10);
  });
  expect_nothing_left(sw);
}

TEST(Groups, WhoLeavesTheJobWithOperationsOfAGroupUnderWayIsNamedInTime) {
  TestSwitch sw(shared_slots());
  std::latch split(2);  // one that still splits would hear of the end there
  on_ranks(sw.url(), 2, [&](Worker& job, int rank) -> Outcome {
    Worker group;
    const Outcome joined = job.split(0, 0, group);
    split.arrive_and_wait();
    RETURN_IF_FAILED(joined);
    const Nanos begun = now_ns();
    if (rank == 0) {
      std::vector<int32_t> data(1000);
      ina_request* request = nullptr;
      EXPECT_EQ(ina_allreduce_async(group.context(), data.data(), data.data(), data.size(),
                                    INA_INT32, INA_SUM, &request),
                INA_OK);
      const Outcome left = job.leave(50'000);
      EXPECT_EQ(left.status, INA_ERR_TIMEOUT);
      EXPECT_THAT(left.text, AllOf(HasSubstr("1 operations running"), HasSubstr("in a group")));
    } else {
      const Outcome other = job.barrier();
      EXPECT_EQ(other.status, INA_ERR_PEER_LOST) << other.text;
      EXPECT_EQ(job.leave().status, INA_ERR_PEER_LOST);
    }
    EXPECT_LT(now_ns() - begun, kLongUs * 1000 / 2);
    return {};
  });
  expect_nothing_left(sw);
}

TEST(Groups, WhoDoesNotSplitIsNamed) {
  TestSwitch sw(shared_slots());
  std::barrier<> step(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Worker job, group;
      ASSERT_EQ(job.join(sw.url(), rank, 3, kShortUs).status, INA_OK);
      step.arrive_and_wait();
      if (rank == 1) {
        step.arrive_and_wait();
        EXPECT_EQ(job.sum(1).status, INA_ERR_ABORTED);
        return;
      }
      const Outcome outcome = job.split(0, 0, group);
      EXPECT_THAT(outcome.status, testing::AnyOf(INA_ERR_TIMEOUT, INA_ERR_ABORTED));
      EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1 (pid "), HasSubstr(") has not")));
      step.arrive_and_wait();
    });
  for (auto& thread : threads) thread.join();
}

TEST(Groups, WhoLeavesInsteadOfSplittingIsNamedAtOnce) {
  TestSwitch sw(shared_slots());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Worker job, group;
      ASSERT_EQ(job.join(sw.url(), rank, 2).status, INA_OK);
      if (rank == 1) {
        EXPECT_EQ(job.leave().status, INA_OK);
        return;
      }
      const Outcome outcome = job.split(0, 0, group);
      EXPECT_EQ(outcome.status, INA_ERR_PEER_LOST);
      EXPECT_THAT(outcome.text, HasSubstr("rank 1 left"));
      EXPECT_EQ(job.leave().status, INA_OK);
    });
  for (auto& thread : threads) thread.join();
}

TEST(Groups, MoreThanTheSwitchAllowsAreRefusedForAllAndTheJobGoesOn) {
  SwitchOptions options = shared_slots();
  const auto before = options.conductor;
  options.conductor = [before](switchd::ConductorConfig& config) {
    before(config);
    config.switchd.max_groups_per_job = 3;
  };
  TestSwitch sw(options);
  on_ranks(sw.url(), 4, [&](Worker& job, int rank) -> Outcome {
    Worker halves, more;
    RETURN_IF_FAILED(job.split(rank / 2, 0, halves));
    const Outcome refused = job.split(rank / 2, 0, more);
    EXPECT_EQ(refused.status, INA_ERR_REFUSED);
    EXPECT_THAT(refused.text, HasSubstr("switch.max_groups_per_job"));
    RETURN_IF_FAILED(job.sum(100));
    RETURN_IF_FAILED(job.split(0, 0, more));
    RETURN_IF_FAILED(more.sum(100));
    return halves.sum(100);
  });
  expect_nothing_left(sw);
}

TEST(Groups, WithoutMemoryTheErrorSaysSo) {
  SwitchOptions options = shared_slots();
  const auto before = options.conductor;
  options.conductor = [before](switchd::ConductorConfig& config) {
    before(config);
    config.jobs.window_bytes = 64 << 10;
    config.jobs.memory_bytes = 2 << 20;
  };
  TestSwitch sw(options);
  on_ranks(sw.url(), 2, [&](Worker& job, int) -> Outcome {
    std::vector<Worker> groups;
    Outcome outcome;
    for (int i = 0; i < 100 && outcome.status == INA_OK; ++i)
      outcome = job.split(0, 0, groups.emplace_back());
    EXPECT_EQ(outcome.status, INA_ERR_REFUSED);
    EXPECT_THAT(outcome.text, HasSubstr("bytes of memory"));
    EXPECT_GT(groups.size(), 2u);
    return job.sum(100);
  });
}

TEST(Groups, UnderStaticEachTakesAPoolAndTheLastIsRefused) {
  SwitchOptions options;
  options.slots = 64;
  options.slots_per_job = 32;
  TestSwitch sw(options);
  on_ranks(sw.url(), 2, [&](Worker& job, int) -> Outcome {
    std::vector<Worker> groups;
    Outcome outcome;
    for (int i = 0; i < 100 && outcome.status == INA_OK; ++i) {
      outcome = job.split(0, 0, groups.emplace_back());
      if (outcome.status == INA_OK) RETURN_IF_FAILED(groups.back().sum(3000));
    }
    EXPECT_EQ(outcome.status, INA_ERR_REFUSED);
    EXPECT_THAT(outcome.text, HasSubstr("policy static"));
    return job.sum(100);
  });
  expect_nothing_left(sw);
}

}  // namespace
}  // namespace ina
