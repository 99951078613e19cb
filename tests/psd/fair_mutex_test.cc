// The order in which threads of the fallback server get a mutex.
#include "programs/psd/fair_mutex.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace ina::psd {
namespace {

TEST(FairMutex, ThreadsGetItInTheOrderInWhichTheyHaveCome) {
  FairMutex mutex;
  std::unique_lock first(mutex);
  int number = 0;
  std::vector<std::thread> threads;
  std::vector<int> turns(8);
  for (size_t i = 0; i < turns.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::lock_guard turn(mutex);
      turns[i] = number++;
    });
    while (mutex.waiting() != i + 1) ::usleep(100);
  }
  first.unlock();
  // It comes behind those that wait, although it asks at once.
  first.lock();
  EXPECT_EQ(number, 8);
  first.unlock();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(turns, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(mutex.waiting(), 0);
}

}  // namespace
}  // namespace ina::psd
