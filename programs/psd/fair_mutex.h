// A mutex that threads get in the order in which they have come.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

namespace ina::psd {

class FairMutex {
 public:
  /// Waits behind all that waited before.
  void lock();
  void unlock();
  /// How many threads wait for it.
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiters_.size();
  }

 private:
  struct Waiter {
    std::condition_variable granted_event;
    bool granted = false;
  };

  mutable std::mutex mutex_;
  std::deque<Waiter*> waiters_;
  bool taken_ = false;
};

}  // namespace ina::psd
