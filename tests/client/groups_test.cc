// Groups of ranks: ina_split and every call on the contexts that it gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/client/group_ranks.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::expect_nothing_left;
using test::kLongUs;
using test::on_ranks;
using test::Outcome;
using test::shared_slots;
using test::TestSwitch;
using test::Worker;
using testing::HasSubstr;

TEST(Groups, HalvesSumApartAndTheJobGoesOn) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 4, [&](Worker& job, int rank) -> Outcome {
    RETURN_IF_FAILED(job.sum(1000));
    Worker half;
    RETURN_IF_FAILED(job.split(rank / 2, 0, half));
    EXPECT_EQ(half.world(), 2);
    EXPECT_EQ(half.rank(), rank % 2);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{257}, size_t{100'000}}) {
      RETURN_IF_FAILED(half.sum(count));
      RETURN_IF_FAILED(job.sum(count));
    }
    RETURN_IF_FAILED(half.barrier());
    EXPECT_EQ(half.stats().operations, 5u);
    // One half leaves its group, the other is left with the job.
    if (rank < 2) return half.leave();
    return job.leave();
  });
  expect_nothing_left(sw);
}

TEST(Groups, ThatAreLeftWithTheirJobAreOnlyToBeFreed) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 2, [&](Worker& job, int) -> Outcome {
    Worker group;
    RETURN_IF_FAILED(job.split(0, 0, group));
    RETURN_IF_FAILED(job.leave());
    const Outcome late = group.sum(1);
    EXPECT_EQ(late.status, INA_ERR_ABORTED);
    EXPECT_THAT(late.text, HasSubstr("ina_finalize"));
    EXPECT_EQ(group.leave().status, INA_ERR_ABORTED);
    return {};
  });
  expect_nothing_left(sw);
}

TEST(Groups, AreRankedByKeyAndThenByRank) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 5, [&](Worker& job, int rank) -> Outcome {
    Worker group;
    RETURN_IF_FAILED(job.split(rank == 3 ? -1 : 7, rank < 2 ? 9 : -rank, group));
    if (rank == 3) {
      EXPECT_FALSE(group);
    } else {
      EXPECT_EQ(group.world(), 4);
      const int expected[] = {2, 3, 1, -1, 0};
      EXPECT_EQ(group.rank(), expected[rank]);
      RETURN_IF_FAILED(group.sum(10'000));
    }
    Worker none;
    RETURN_IF_FAILED(job.split(-1, 0, none));
    EXPECT_FALSE(none);
    return job.barrier();
  });
}

struct Grid {
  int rows, columns;
  Home home;
};
class GroupsOfAGrid : public testing::TestWithParam<Grid> {};

TEST_P(GroupsOfAGrid, RowsAndColumnsSumAtTheSameTime) {
  const auto [rows, columns, home] = GetParam();
  TestSwitch sw(shared_slots(64, home));
  on_ranks(sw.url(), rows * columns,
           [&, columns = columns, rows = rows](Worker& job, int rank) -> Outcome {
             Worker row, column;
             RETURN_IF_FAILED(job.split(rank / columns, rank, row));
             RETURN_IF_FAILED(job.split(rank % columns, rank, column));
             EXPECT_EQ(row.world(), columns);
             EXPECT_EQ(column.world(), rows);
             constexpr size_t kCount = 30'000;
             for (int round = 0; round < 5; ++round) {
               std::vector<float> of_row(kCount, static_cast<float>(rank));
               std::vector<float> of_column(kCount, static_cast<float>(rank));
               ina_request* requests[2];
               if (ina_allreduce_async(row.context(), of_row.data(), of_row.data(), kCount,
                                       INA_FLOAT32, INA_SUM, &requests[0]) != INA_OK ||
                   ina_allreduce_async(column.context(), of_column.data(), of_column.data(), kCount,
                                       INA_FLOAT32, INA_SUM, &requests[1]) != INA_OK)
                 return {INA_ERR_INTERNAL, "not started"};
               // Rows and columns are waited for in different orders.
               for (int i = 0; i < 2; ++i)
                 if (ina_wait(requests[(i + rank) % 2], kLongUs) != INA_OK)
                   return {INA_ERR_INTERNAL,
                           ina_last_error((i + rank) % 2 == 0 ? row.context() : column.context())};
               const int first = rank / columns * columns;
               const float row_sum =
                   static_cast<float>(columns * first + columns * (columns - 1) / 2);
               const float column_sum =
                   static_cast<float>(rows * (rank % columns) + columns * (rows * (rows - 1) / 2));
               for (size_t i = 0; i < kCount; ++i)
                 if (of_row[i] != row_sum || of_column[i] != column_sum)
                   return {INA_ERR_INTERNAL, "wrong sum at " + std::to_string(i)};
             }
             RETURN_IF_FAILED(row.leave());
             return column.leave();
           });
  expect_nothing_left(sw);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GroupsOfAGrid,
                         testing::Values(Grid{2, 2, Home::kWorkers}, Grid{4, 2, Home::kWorkers},
                                         Grid{4, 2, Home::kSpill}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.rows) + "x" +
                                  std::to_string(shape.param.columns) +
                                  std::string(name(shape.param.home));
                         });

TEST(Groups, OfGroups) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 8, [&](Worker& job, int rank) -> Outcome {
    Worker half, quarter;
    RETURN_IF_FAILED(job.split(rank / 4, -rank, half));
    EXPECT_EQ(half.rank(), 3 - rank % 4);
    RETURN_IF_FAILED(half.split(half.rank() % 2, 0, quarter));
    EXPECT_EQ(quarter.world(), 2);
    EXPECT_EQ(quarter.rank(), half.rank() / 2);
    RETURN_IF_FAILED(quarter.sum(5000));
    RETURN_IF_FAILED(half.leave());  // they do not need each other
    RETURN_IF_FAILED(quarter.sum(5000));
    RETURN_IF_FAILED(job.sum(5000));
    return quarter.leave();
  });
  expect_nothing_left(sw);
}

TEST(Groups, OthersCallsWorkOnThem) {
  TestSwitch sw(shared_slots());
  on_ranks(sw.url(), 4, [&](Worker& job, int rank) -> Outcome {
    Worker half;
    RETURN_IF_FAILED(job.split(rank / 2, 0, half));
    constexpr size_t kCount = 4096;
    void* send = nullptr;
    void* recv = nullptr;
    if (ina_alloc(half.context(), kCount * 4, &send) != INA_OK ||
        ina_alloc_result(half.context(), kCount * 4, &recv) != INA_OK)
      return {INA_ERR_INTERNAL, ina_last_error(half.context())};
    std::fill_n(static_cast<float*>(send), kCount, static_cast<float>(rank + 1));
    if (ina_allreduce(half.context(), send, recv, kCount, INA_FLOAT32, INA_SUM, 0) != INA_OK)
      return {INA_ERR_INTERNAL, ina_last_error(half.context())};
    const float expected = rank < 2 ? 3 : 7;
    for (size_t i = 0; i < kCount; ++i)
      if (static_cast<float*>(recv)[i] != expected) return {INA_ERR_INTERNAL, "wrong sum"};
    if (ina_free(half.context(), recv) != INA_OK || ina_free(half.context(), send) != INA_OK)
      return {INA_ERR_INTERNAL, ina_last_error(half.context())};
    // Errors are the group's own.
    EXPECT_EQ(ina_allreduce(half.context(), nullptr, nullptr, 1, INA_FLOAT32, INA_SUM, 0),
              INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(half.context()), HasSubstr("send is NULL"));
    EXPECT_STREQ(ina_last_error(job.context()), "");
    return job.barrier();
  });
}

/// Counters of all jobs and groups together, from the status: why the switch did not make all sums.
struct WhyNotAll {
  uint64_t fallback_results = 0, bypassed = 0, preempted = 0;
  uint64_t memory_bytes = 0;  ///< of all together
};
WhyNotAll why_not_all(const Json& status) {
  WhyNotAll sum;
  sum.memory_bytes = status["aggregator"]["memory_used_bytes"].get<uint64_t>();
  for (const Json& job : status["jobs"]) {
    sum.fallback_results += job["fallback_results"].get<uint64_t>();
    sum.bypassed += job["bypassed"].get<uint64_t>();
    sum.preempted += job["preempted"].get<uint64_t>();
  }
  return sum;
}

// On an array that has not a slot for each of them. Sanitizers take minutes for as many.
class ManyGroups : public testing::TestWithParam<Home> {};

TEST_P(ManyGroups, TwoHundredAtOnceOn128Slots) {
  constexpr int kWorld = 4;
#ifdef INA_SLOW_BUILD
  constexpr int kSplits = 40;
#else
  constexpr int kSplits = 100;
#endif
  constexpr size_t kCount = 3000;
  TestSwitch sw(shared_slots(kSplits * 128 / 100, GetParam()));
  std::atomic<uint64_t> by_switch{0}, by_fallback{0};
  WhyNotAll why;
  on_ranks(sw.url(), kWorld, [&](Worker& job, int rank) -> Outcome {
    std::vector<Worker> groups(kSplits);
    for (int i = 0; i < kSplits; ++i)
      RETURN_IF_FAILED(
          job.split(i % 2 == 0 ? rank / 2 : rank % 2, 0, groups[static_cast<size_t>(i)]));
    RETURN_IF_FAILED(job.barrier());
    if (rank == 0) {
      EXPECT_EQ(sw.status()["jobs"].size(), 2u * kSplits + 1);
    }
    std::vector<std::vector<int32_t>> data(kSplits, std::vector<int32_t>(kCount, rank + 1));
    std::vector<ina_request*> requests(kSplits);
    for (size_t i = 0; i < kSplits; ++i)
      if (ina_allreduce_async(groups[i].context(), data[i].data(), data[i].data(), kCount,
                              INA_INT32, INA_SUM, &requests[i]) != INA_OK)
        return {INA_ERR_INTERNAL, ina_last_error(groups[i].context())};
    for (size_t i = kSplits; i-- > 0;)
      if (ina_wait(requests[i], kLongUs) != INA_OK)
        return {INA_ERR_INTERNAL, ina_last_error(groups[i].context())};
    for (size_t i = 0; i < kSplits; ++i) {
      const int32_t expected = i % 2 == 0 ? (rank < 2 ? 3 : 7) : (rank % 2 == 0 ? 4 : 6);
      for (const int32_t value : data[i])
        if (value != expected) return {INA_ERR_INTERNAL, "wrong sum in group " + std::to_string(i)};
      const ina_stats stats = groups[i].stats();
      EXPECT_EQ(stats.bytes_by_switch + stats.bytes_by_fallback, kCount * 4);
      by_switch += stats.bytes_by_switch;
      by_fallback += stats.bytes_by_fallback;
    }
    RETURN_IF_FAILED(job.barrier());
    if (rank == 0) why = why_not_all(sw.status());
    return job.barrier();
  });
  EXPECT_GT(by_switch.load(), 0u);
  // Fragments that the switch did not sum found no slot, or lost it to another group.
  if (by_fallback != 0) {
    EXPECT_GT(why.bypassed + why.preempted, 0u);
    EXPECT_GT(why.fallback_results, 0u);
  }
  RecordProperty("memory_bytes_of_a_group", std::to_string(why.memory_bytes / (2 * kSplits + 1)));
  RecordProperty("bypassed", std::to_string(why.bypassed));
  RecordProperty("preempted", std::to_string(why.preempted));
  RecordProperty("share_of_the_switch",
                 std::to_string(static_cast<double>(by_switch) /
                                static_cast<double>(by_switch + by_fallback)));
  expect_nothing_left(sw);
}

INSTANTIATE_TEST_SUITE_P(Homes, ManyGroups, testing::Values(Home::kWorkers, Home::kSpill),
                         [](const auto& home) { return std::string(name(home.param)); });

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// The use of the switch, after it has noticed that nobody has the memory of groups any more, for
/// which it looks once a second.
Json once_nothing_is_held(const TestSwitch& sw) {
  for (const Nanos deadline = now_ns() + kLongUs * 1000;;) {
    const Json status = sw.status();
    const Json& use = status["aggregator"];
    if ((use["memory_held_bytes"] == 0 && status["jobs"].size() == 1) || now_ns() > deadline)
      return use;
    ::usleep(20'000);
  }
}

TEST(Groups, AreMadeAndFreedOverAndOverWithoutLeaks) {
#ifdef INA_SLOW_BUILD
  constexpr int kTimes = 60;
#else
  constexpr int kTimes = 210;
#endif
  TestSwitch sw(shared_slots());
  Json before;
  size_t descriptors = 0;
  on_ranks(sw.url(), 2, [&](Worker& job, int rank) -> Outcome {
    for (int i = 0; i < kTimes; ++i) {
      Worker group;
      RETURN_IF_FAILED(job.split(i % 3, 0, group));
      if (i % 20 == 0) RETURN_IF_FAILED(group.sum(300));
      RETURN_IF_FAILED(group.leave());
      if (i != 9 && i != kTimes - 1) continue;
      RETURN_IF_FAILED(job.barrier());
      if (rank == 0) {
        const Json now = once_nothing_is_held(sw);
        if (i == 9) {
          before = now;
          descriptors = open_descriptors();
        } else {
          for (const char* what : {"memory_used_bytes", "mappings_used", "descriptors_used"})
            EXPECT_EQ(now[what], before[what]) << what;
          // Threads of the switch close theirs when they next run.
          const Nanos deadline = now_ns() + kLongUs * 1000;
          while (open_descriptors() > descriptors + 8 && now_ns() < deadline) ::usleep(20'000);
          EXPECT_LE(open_descriptors(), descriptors + 8);
        }
      }
      RETURN_IF_FAILED(job.barrier());
    }
    return {};
  });
  expect_nothing_left(sw);
}

}  // namespace
}  // namespace ina
