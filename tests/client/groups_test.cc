// Groups of ranks: ina_split and every call on the contexts that it gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <barrier>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using control::Json;
using test::SwitchOptions;
using test::SwitchProcess;
using test::TestSwitch;
using testing::HasSubstr;

constexpr int64_t kLongUs = 600'000'000;
/// That is to pass; joining takes less.
#ifdef INA_SLOW_BUILD
constexpr int64_t kShortUs = 10'000'000;
#else
constexpr int64_t kShortUs = 2'000'000;
#endif

struct Outcome {
  int status = INA_OK;
  std::string text;
};

/// A worker's context: of a job, or of one of its groups.
class Worker {
 public:
  Worker() = default;
  explicit Worker(ina_context* context) : context_(context) {}
  Worker(Worker&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  Worker& operator=(Worker&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~Worker() {
    if (context_) ina_finalize(context_, 100'000);
  }

  Outcome join(const std::string& url, int rank, int world, int64_t timeout_us = kLongUs) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "job";
    config.rank = rank;
    config.world_size = world;
    config.timeout_us = timeout_us;
    config.rejoin_timeout_us = kLongUs;
    const int status = ina_init(&config, &context_);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  /// `group`: empty if this worker is in none.
  Outcome split(int colour, int key, Worker& group) {
    ina_context* made = nullptr;
    const int status = ina_split(context_, colour, key, &made);
    group = Worker(made);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  Outcome create(const std::vector<int>& ranks, uint64_t tag, Worker& group) {
    ina_context* made = nullptr;
    const int status = ina_create_group(context_, ranks.data(), ranks.size(), tag, &made);
    group = Worker(made);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  /// All elements of the result are checked: rank r gives i + r * 1000.
  Outcome sum(size_t count) {
    const int n = world();
    std::vector<int32_t> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = static_cast<int32_t>(i) + rank() * 1000;
    const int status =
        ina_allreduce(context_, data.data(), data.data(), count, INA_INT32, INA_SUM, 0);
    if (status != INA_OK) return {status, ina_last_error(context_)};
    for (size_t i = 0; i < count; ++i)
      if (data[i] != n * static_cast<int32_t>(i) + 1000 * (n * (n - 1) / 2))
        return {INA_ERR_INTERNAL, "wrong element " + std::to_string(i)};
    return {};
  }
  Outcome barrier() {
    const int status = ina_barrier(context_, 0);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  Outcome leave(int64_t timeout_us = 0) {
    const int status = ina_finalize(std::exchange(context_, nullptr), timeout_us);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  ina_stats stats() const {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    ina_get_stats(context_, &stats);
    return stats;
  }
  int rank() const { return ina_rank(context_); }
  int world() const { return ina_world_size(context_); }
  explicit operator bool() const { return context_ != nullptr; }
  ina_context* context() const { return context_; }

 private:
  ina_context* context_ = nullptr;
};

#define RETURN_IF_FAILED(call)                                                                   \
  if (const Outcome outcome_of_call = (call); outcome_of_call.status != INA_OK) return Outcome { \
      outcome_of_call.status, std::string(#call ": ") + outcome_of_call.text                     \
    }

/// Runs `body(worker, rank)` in a thread per rank, after all have joined. `meanwhile` runs here.
void on_ranks(const std::string& url, int world, const std::function<Outcome(Worker&, int)>& body,
              const std::function<void()>& meanwhile = {}) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::latch joined(world);  // one that still joins would hear of others' errors there
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Worker worker;
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      outcome = worker.join(url, rank, world);
      joined.arrive_and_wait();
      if (outcome.status == INA_OK) outcome = body(worker, rank);
      if (outcome.status == INA_OK && worker) outcome = worker.leave();
    });
  if (meanwhile) meanwhile();
  for (auto& thread : threads) thread.join();
  for (int rank = 0; rank < world; ++rank)
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].status, INA_OK)
        << "rank " << rank << ": " << outcomes[static_cast<size_t>(rank)].text;
}

SwitchOptions shared_slots(uint32_t slots = 128, Home home = Home::kWorkers) {
  SwitchOptions options;
  options.slots = slots;
  options.conductor = [home](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.rules.home = home;
  };
  return options;
}

void expect_nothing_left(const TestSwitch& sw) {
  const Json status = sw.status();
  EXPECT_EQ(status["jobs"].size(), 0u) << status["jobs"];
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0);
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], 0);
}

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

// ---- groups that only their members make

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
  std::latch ended(3);  // one that leaves would be named instead
  std::vector<std::thread> threads;
  std::barrier<> step(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Worker job, group;
      ASSERT_EQ(job.join(sw.url(), rank, 3).status, INA_OK);
      step.arrive_and_wait();
      const Outcome outcome = rank == 0   ? job.create({0, 1}, 5, group)
                              : rank == 1 ? job.create({1, 2}, 5, group)
                                          : job.barrier();
      EXPECT_EQ(outcome.status, INA_ERR_MISMATCH);
      EXPECT_THAT(outcome.text, AllOf(HasSubstr("ranks 0, 1"), HasSubstr("ranks 1, 2")));
      ended.arrive_and_wait();
    });
  for (auto& thread : threads) thread.join();
}

TEST(MemberGroups, WithAMemberThatDoesNotComeNameIt) {
  TestSwitch sw(shared_slots());
  std::barrier<> step(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Worker job, group;
      ASSERT_EQ(job.join(sw.url(), rank, 3, kShortUs).status, INA_OK);
      step.arrive_and_wait();
      if (rank == 0) {
        const Outcome outcome = job.create({2, 0}, 0, group);
        EXPECT_EQ(outcome.status, INA_ERR_TIMEOUT);
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 2 (pid "), HasSubstr(") has not")));
      }
      step.arrive_and_wait();
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

// ---- what goes wrong

#ifndef INA_UNDER_TSAN  // which cannot follow a child that makes threads
TEST(Groups, AWorkerThatDiesEndsItsGroupsAndNoOthers) {
  TestSwitch sw(shared_slots());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // Before there are threads in this process that libina made.
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
      Worker job, half;
      Outcome outcome = job.join(sw.url(), rank, 4);
      ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
      outcome = job.split(rank / 2, 0, half);
      ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
      outcome = half.sum(100);
      ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
      step.arrive_and_wait();
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

// ---- a restart of the switch

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

/// Takes part in a barrier, and leaves it for good however the thread ends.
class Attendance {
 public:
  explicit Attendance(std::barrier<>& step) : step_(step) {}
  ~Attendance() { step_.arrive_and_drop(); }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;
  void wait() { step_.arrive_and_wait(); }

 private:
  std::barrier<>& step_;
};

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
