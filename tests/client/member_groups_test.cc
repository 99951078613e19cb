// Groups that only their members make: ina_create_group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <thread>

#include "ina/ina.h"
#include "tests/client/group_ranks.h"
#include "tests/support/attendance.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Attendance;
using test::expect_nothing_left;
using test::kShortUs;
using test::on_ranks;
using test::Outcome;
using test::shared_slots;
using test::SwitchOptions;
using test::TestSwitch;
using test::Worker;
using testing::HasSubstr;

TEST(MemberGroups, AreInTheirOrderAndConcernNobodyElse) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 5, [&](Worker& job, int rank) -> Outcome {
    if (rank == 3) return job.sum(10);  // asks for none
    const std::vector<int> ranks = rank % 2 == 0 ? std::vector{4, 0, 2} : std::vector{1};
    Worker group, nested;
    RETURN_IF_FAILED(job.create(ranks, 7, group));
    EXPECT_EQ(group.world(), static_cast<int>(ranks.size()));
    EXPECT_EQ(ranks[static_cast<size_t>(group.rank())], rank);
    RETURN_IF_FAILED(group.sum(1000));
    if (group.rank() < 2 && group.world() == 3) {
      RETURN_IF_FAILED(group.create({1, 0}, 7, nested));
      EXPECT_EQ(nested.rank(), 1 - group.rank());
      RETURN_IF_FAILED(nested.sum(1000));
    }
    RETURN_IF_FAILED(group.sum(1000));
    return job.sum(10);
  });
  expect_nothing_left(sw);
}

TEST(MemberGroups, AreMadeInDifferentOrdersByThreads) {
  constexpr int kGroups = 6;
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 3, [&](Worker& job, int rank) -> Outcome {
    std::array<Outcome, kGroups> outcomes;
    std::vector<std::thread> threads;
    for (int i = 0; i < kGroups; ++i)
      threads.emplace_back([&, i] {
        const int tag = (i + rank * 2) % kGroups;
        Worker group;
        Outcome& outcome = outcomes[static_cast<size_t>(i)];
        outcome = job.create({0, 1, 2}, static_cast<uint64_t>(tag), group);
        if (outcome.status == INA_OK) outcome = group.sum(static_cast<size_t>(tag) * 100);
      });
    for (auto& thread : threads) thread.join();
    for (const Outcome& outcome : outcomes) RETURN_IF_FAILED(outcome);
    return {};
  });
  expect_nothing_left(sw);
}

TEST(MemberGroups, OfWrongRanksAreRefusedAtOnceAndTheJobGoesOn) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 2, [&](Worker& job, int rank) -> Outcome {
    Worker group;
    for (const std::vector<int>& wrong :
         {std::vector<int>{}, {1 - rank}, {0, 1, 2}, {rank, -1}, {0, 1, rank}})
      EXPECT_EQ(job.create(wrong, 0, group).status, INA_ERR_INVALID);
    ina_context* made = nullptr;
    EXPECT_EQ(ina_create_group(job.context(), nullptr, 1, 0, &made), INA_ERR_INVALID);
    EXPECT_EQ(ina_create_group(job.context(), &rank, 1, 0, nullptr), INA_ERR_INVALID);
    return job.sum(10);
  });
}

TEST(MemberGroups, OfDifferentRanksWithOneTagEndTheJobWithBothSides) {
  TestSwitch sw(shared_slots());
  std::vector<std::thread> threads;
  std::barrier<> step(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Attendance attendance(step);
      Worker job, group;
      ASSERT_EQ(job.join(sw.url(), rank, 3).status, INA_OK);
      attendance.wait();
      const Outcome outcome = rank == 0   ? job.create({0, 1}, 5, group)
                              : rank == 1 ? job.create({1, 2}, 5, group)
                                          : job.barrier();
      EXPECT_EQ(outcome.status, INA_ERR_MISMATCH);
      EXPECT_THAT(outcome.text, AllOf(HasSubstr("ranks 0, 1"), HasSubstr("ranks 1, 2")));
      attendance.wait();  // one that leaves would be named instead
    });
  for (auto& thread : threads) thread.join();
}

TEST(MemberGroups, WithAMemberThatDoesNotComeNameIt) {
  TestSwitch sw(shared_slots());
  std::barrier<> step(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Attendance attendance(step);
      Worker job, group;
      ASSERT_EQ(job.join(sw.url(), rank, 3, kShortUs).status, INA_OK);
      attendance.wait();
      if (rank == 0) {
        const Outcome outcome = job.create({2, 0}, 0, group);
        EXPECT_EQ(outcome.status, INA_ERR_TIMEOUT);
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 2 (pid "), HasSubstr(") has not")));
      }
      attendance.wait();
      if (rank != 0) {
        EXPECT_EQ(job.sum(1).status, INA_ERR_ABORTED);
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST(MemberGroups, WithAMemberThatLeavesAreRefusedAndOthersAreMade) {
  TestSwitch sw(shared_slots());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Worker job, group, pair;
      ASSERT_EQ(job.join(sw.url(), rank, 3).status, INA_OK);
      if (rank == 2) {
        EXPECT_EQ(job.leave().status, INA_OK);
        return;
      }
      // The other one knows by then, and asks for the next with the same tag.
      if (rank == 1) ::usleep(100'000);
      const Outcome outcome = job.create({0, 1, 2}, 0, group);
      EXPECT_EQ(outcome.status, INA_ERR_PEER_LOST);
      EXPECT_THAT(outcome.text, HasSubstr("rank 2 left"));
      const Outcome made = job.create({0, 1}, 0, pair);
      EXPECT_EQ(made.status, INA_OK) << made.text;
      EXPECT_EQ(pair.sum(100).status, INA_OK);
      EXPECT_EQ(pair.leave().status, INA_OK);
      EXPECT_EQ(job.leave().status, INA_OK);
    });
  for (auto& thread : threads) thread.join();
  expect_nothing_left(sw);
}

TEST(MemberGroups, BeyondWhatTheSwitchAllowsAreRefusedForAllMembers) {
  SwitchOptions options = shared_slots();
  const auto before = options.conductor;
  options.conductor = [before](switchd::ConductorConfig& config) {
    before(config);
    config.switchd.max_groups_per_job = 2;
  };
  TestSwitch sw(options);
  on_ranks(sw.url(), 2, [&](Worker& job, int) -> Outcome {
    Worker first, second, third;
    RETURN_IF_FAILED(job.create({0, 1}, 1, first));
    RETURN_IF_FAILED(job.create({1, 0}, 1, second));
    const Outcome refused = job.create({0, 1}, 1, third);
    EXPECT_EQ(refused.status, INA_ERR_REFUSED);
    EXPECT_THAT(refused.text, HasSubstr("switch.max_groups_per_job"));
    RETURN_IF_FAILED(first.leave());
    RETURN_IF_FAILED(job.create({0, 1}, 1, third));
    return third.sum(10);
  });
}

}  // namespace
}  // namespace ina
