// The doorbell of the shm port: the futex on which a worker sleeps.
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/futex.h"
#include "tests/support/shm_session.h"

namespace ina {
namespace {

/// Threads that wait on a word of this test's. The kernel moves them to other words, and with that
/// counts them.
class Waiters {
 public:
  using Word = std::atomic<uint32_t>;
  explicit Waiters(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] { futex_wait(&parked_, 0, kLongNs); });
  }
  ~Waiters() {
    release();
    for (std::thread& thread : threads_) thread.join();
  }
  /// Moves those that wait on `word` to the own word, and returns their number.
  long park(const Word& word) { return move(word, parked_); }
  /// Moves all that are parked, and returns their number.
  long unpark(const Word& word) { return move(parked_, word); }

  /// Wakes those that are parked, also threads that are not this object's.
  void release() {
    parked_ = 1;  // for those that do not wait yet
    ::syscall(SYS_futex, &parked_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  static constexpr Nanos kLongNs = 60'000'000'000;

 private:
  static long move(const Word& from, const Word& to) {
    return ::syscall(SYS_futex, &from, FUTEX_CMP_REQUEUE, 0, long{INT_MAX}, &to, from.load());
  }

  Word parked_{0};
  std::vector<std::thread> threads_;
};

using Doorbell = test::ShmSession;

// Each that is woken costs the lane time, and anybody who has the memory may wait on the doorbell.
TEST_F(Doorbell, WakesOneHoweverManyWait) {
  open({1, 8, 8, 256, 4, 8});
  const auto& doorbell = io::shm::at<io::shm::SleepFlag>(session_->switch_region.map.data(),
                                                         io::shm::SwitchLayout(geometry_).doorbell)
                             ->value;
  constexpr long kStrangers = 50;
  Waiters waiters(kStrangers);
  std::thread worker([this] { transport_->wait(Waiters::kLongNs); });
  const Nanos deadline = now_ns() + Waiters::kLongNs;
  long waiting = 0;
  while (waiting < kStrangers + 1 && now_ns() < deadline) {
    waiters.unpark(doorbell);
    waiting = waiters.park(doorbell);
    std::this_thread::yield();
  }
  EXPECT_EQ(waiting, kStrangers + 1);
  waiters.unpark(doorbell);
  const std::pair<const char*, std::function<void()>> rings[] = {
      {"a packet",
       [this] {
         EXPECT_TRUE(send_part(1));
         port_->tx_flush();
       }},
      {"the end of the session", [this] { port_->detach(endpoint_); }},
      {"a call of the worker's own", [this] { transport_->wake(); }}};
  for (const auto& [what, ring] : rings) {
    ring();
    EXPECT_EQ(waiters.park(doorbell), --waiting) << what;
    waiters.unpark(doorbell);
  }
  waiters.park(doorbell);
  waiters.release();
  worker.join();
}

}  // namespace
}  // namespace ina
