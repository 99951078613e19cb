#include "plugins/torch/watcher.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "plugins/torch/threads.h"

namespace ina::plugin {

Watcher& Watcher::of_process() {
  static auto* const watcher = new Watcher;  // its thread may run until the process has ended
  return *watcher;
}

Watcher::Watcher() {
  on_last_group([this] {
    const std::lock_guard lock(mutex_);  // the thread looks, or it waits
    changed_.notify_one();
  });
}

void Watcher::watch(Clock::time_point deadline, const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) start_thread();
  if (watched_.size() >= prune_at_) {
    std::erase_if(watched_, [](const auto& entry) { return entry.second.expired(); });
    prune_at_ = std::max<size_t>(64, 2 * watched_.size());
  }
  const auto entry = watched_.emplace(deadline, operation);
  if (entry == watched_.begin()) changed_.notify_one();
}

void Watcher::start_thread() {
  run_detached([this] { run(); });
  process_ = ::getpid();
}

void Watcher::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (no_group()) break;  // nothing of it goes on
    if (watched_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = watched_.begin();
    if (first->first > Clock::now()) {
      const auto deadline = first->first;
      changed_.wait_until(lock, deadline);
      continue;
    }
    const auto operation = first->second.lock();
    watched_.erase(first);
    if (!operation) continue;
    lock.unlock();
    operation->give_up();
    lock.lock();
  }
  watched_.clear();
  process_ = 0;
}

}  // namespace ina::plugin
