#include "programs/psd/core_share.h"

#include <algorithm>

namespace ina::psd {

void CoreShare::take() {
  std::unique_lock lock(mutex_);
  if (waiters_.empty() && taken_ < most_) {
    ++taken_;
    return;
  }
  Waiter self;
  waiters_.push_back(&self);
  self.granted_event.wait(lock, [&] { return self.granted; });
}

void CoreShare::give() {
  const std::lock_guard lock(mutex_);
  --taken_;
  grant();
}

void CoreShare::set_most(uint32_t most) {
  const std::lock_guard lock(mutex_);
  most_ = most;
  grant();
}

/// To those that have waited longest.
void CoreShare::grant() {
  while (!waiters_.empty() && taken_ < most_) {
    ++taken_;
    waiters_.front()->granted = true;
    waiters_.front()->granted_event.notify_one();  // it stays until the mutex is free
    waiters_.pop_front();
  }
}

std::shared_ptr<CoreShare> CoreShares::of(const std::string& owner) {
  auto share = of_[owner].lock();
  if (!share) of_[owner] = share = std::make_shared<CoreShare>();
  look();
  return share;
}

void CoreShares::look() {
  std::erase_if(of_, [](const auto& entry) { return entry.second.expired(); });
  const uint32_t most = of_.size() > 1 ? std::max(1u, cores_ / 2) : UINT32_MAX;
  for (const auto& [owner, weak] : of_)
    if (const auto share = weak.lock()) share->set_most(most);
}

}  // namespace ina::psd
