#include "programs/psd/fair_mutex.h"

namespace ina::psd {

void FairMutex::lock() {
  std::unique_lock lock(mutex_);
  if (!taken_) {
    taken_ = true;
    return;
  }
  Waiter self;
  waiters_.push_back(&self);
  self.granted_event.wait(lock, [&] { return self.granted; });
}

/// It passes to the thread that has waited longest.
void FairMutex::unlock() {
  const std::lock_guard lock(mutex_);
  taken_ = !waiters_.empty();
  if (!taken_) return;
  waiters_.front()->granted = true;
  waiters_.front()->granted_event.notify_one();  // it stays until mutex_ is free
  waiters_.pop_front();
}

}  // namespace ina::psd
