// Threads of packet loops: where they run, which signals they take, and that all start or none.
#include "switchd/lanes/loop_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>

#include "common/cpus.h"

namespace ina::switchd {
namespace {

/// The properties of a loop's thread.
struct Seen {
  std::vector<uint32_t> cpus;
  std::string name;
  bool takes_sigterm = true;
};

Seen look() {
  Seen seen;
  seen.cpus = cpus_of_process();
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  seen.name = name;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  seen.takes_sigterm = sigismember(&blocked, SIGTERM) == 0;
  return seen;
}

std::vector<Seen> run(size_t loops, const std::vector<uint32_t>& cpus) {
  std::vector<Seen> seen(loops);
  std::vector<std::function<void()>> functions;
  for (Seen& one : seen) functions.emplace_back([&one] { one = look(); });
  auto threads = LoopThreads::start(std::move(functions), cpus);
  EXPECT_TRUE(threads) << threads.error().text;
  if (threads) threads->join();
  return seen;
}

TEST(LoopThreads, LeaveSignalsToTheMainThreadAndHaveNames) {
  const auto seen = run(2, {});
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].name, "ina-lane-" + std::to_string(i));
    EXPECT_FALSE(seen[i].takes_sigterm);
    EXPECT_EQ(seen[i].cpus, cpus_of_process());
  }
  EXPECT_TRUE(look().takes_sigterm);
}

TEST(LoopThreads, EachIsBoundToItsCpuIfThereAreEnough) {
  const auto cpus = cpus_of_process();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU tells nothing";
  const auto bound = run(2, {cpus[0], cpus[1]});
  EXPECT_THAT(bound[0].cpus, testing::ElementsAre(cpus[0]));
  EXPECT_THAT(bound[1].cpus, testing::ElementsAre(cpus[1]));
  for (const Seen& shared : run(3, {cpus[0], cpus[1]}))
    EXPECT_THAT(shared.cpus, testing::ElementsAre(cpus[0], cpus[1]));
}

TEST(LoopThreads, NoneRunsIfOneCannotBeBound) {
  std::atomic<int> ran = 0;
  const auto started =
      LoopThreads::start({[&] { ++ran; }, [&] { ++ran; }}, {cpus_of_process()[0], CPU_SETSIZE - 1});
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().text, testing::HasSubstr("cannot be bound to CPU 1023 (eal.cpus)"));
  EXPECT_EQ(ran, 0);
}

}  // namespace
}  // namespace ina::switchd
