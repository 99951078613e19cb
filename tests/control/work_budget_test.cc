// The share of a thread's time that one source may take, and how the time is measured.
#include "control/work_budget.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "control/work_timer.h"

namespace ina::control {
namespace {

constexpr Nanos kMs = 1'000'000;
constexpr Nanos kSecond = 1'000 * kMs;

TEST(WorkBudget, GivesABurstAndThenAShare) {
  WorkBudget budget({.burst_ns = 10 * kMs, .one_in = 4, .sources = 8});
  EXPECT_EQ(budget.free_at(1, 0), 0);
  budget.charge(1, 10 * kMs, 0);
  EXPECT_EQ(budget.free_at(1, 0), 0);
  budget.charge(1, 5 * kMs, 0);
  EXPECT_EQ(budget.free_at(1, 0), 20 * kMs) << "5 ms too many, at a fourth of the time";
  EXPECT_EQ(budget.free_at(1, 20 * kMs), 20 * kMs);
  EXPECT_EQ(budget.free_at(2, 0), 0) << "others are free";
}

TEST(WorkBudget, TheTableIsBounded) {
  WorkBudget budget({.burst_ns = 10 * kMs, .one_in = 4, .sources = 8});
  for (uint64_t source = 0; source < 1000; ++source) budget.charge(source, kMs, 0);
  EXPECT_LE(budget.size(), 8u);
  EXPECT_GT(budget.free_at(999, 0), 0) << "those without a place share one";
  budget.charge(5000, kMs, 100 * kSecond);
  EXPECT_LE(budget.size(), 2u) << "debts that are paid are forgotten";
}

// ---- WorkTimer

// This thread and three others share one core: the timer knows that from the system alone.
TEST(WorkTimer, DoesNotCountTheWorkOfOthers) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  std::atomic<bool> stop{false};
  const auto spin_until = [&](auto done) {
    ::sched_setaffinity(0, sizeof(one), &one);
    while (!done()) {
    }
  };
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) others.emplace_back([&] { spin_until([&] { return stop.load(); }); });
  Nanos spent = 0, worked = 0, passed = 0;
  std::thread worker([&] {
    // Until the others have had the core for long.
    for (int i = 0; i < 100 && passed <= 2 * worked; ++i) {
      const Nanos begin = thread_cpu_ns();
      const WorkTimer timer;
      spin_until([&] { return thread_cpu_ns() - begin > 50 * kMs; });
      spent = timer.spent_ns();
      worked = thread_cpu_ns() - begin;
      passed = now_ns() - timer.began_ns();
    }
  });
  worker.join();
  stop = true;
  for (std::thread& other : others) other.join();
  ASSERT_GT(passed, 2 * worked);
  EXPECT_GE(spent, 49 * kMs);
  EXPECT_LE(spent, worked);
}

TEST(WorkTimer, CountsTimeInWhichTheThreadIsBlocked) {
  Nanos spent = 0;
  // Again where another thread took the core in between.
  for (int i = 0; i < 100 && spent < 20 * kMs; ++i) {
    const WorkTimer timer;
    ::usleep(20'000);
    spent = timer.spent_ns();
  }
  EXPECT_GE(spent, 20 * kMs);
}

}  // namespace
}  // namespace ina::control
