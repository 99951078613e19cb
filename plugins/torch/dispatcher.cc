#include "plugins/torch/dispatcher.h"

#include <unistd.h>

#include <chrono>
#include <limits>
#include <system_error>
#include <utility>

#include "plugins/torch/threads.h"

namespace ina::plugin {

namespace {

constexpr std::chrono::seconds kIdleBeforeEnd{10};
/// Copies are bound by memory.
constexpr size_t kMostDeliveries = 4;

}  // namespace

// Their threads may run until the process has ended.

Dispatcher& Dispatcher::for_deliveries() {
  static auto* const dispatcher = new Dispatcher(kMostDeliveries);
  return *dispatcher;
}

Dispatcher& Dispatcher::for_continuations() {
  static auto* const dispatcher = new Dispatcher(std::numeric_limits<size_t>::max());
  return *dispatcher;
}

Dispatcher::Dispatcher(size_t most_threads) : most_threads_(most_threads) {
  on_last_group([this] {
    const std::lock_guard lock(mutex_);  // a thread looks, or it waits
    changed_.notify_all();
  });
}

void Dispatcher::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) {
    process_ = ::getpid();
    threads_ = idle_ = 0;
  }
  tasks_.push_back(std::move(task));
  if (tasks_.size() > idle_ && threads_ < most_threads_)
    start_thread();
  else
    changed_.notify_one();
}

void Dispatcher::start_thread() {
  try {
    run_detached([this] { work(); });
    ++threads_;
  } catch (const std::system_error&) {  // the system has no more of them
    if (threads_ == 0) throw;
  }
}

void Dispatcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (tasks_.empty()) {
      ++idle_;
      changed_.wait_for(lock, kIdleBeforeEnd, [&] { return !tasks_.empty() || no_group(); });
      --idle_;
      if (tasks_.empty()) break;
    }
    {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
  }
  --threads_;
}

}  // namespace ina::plugin
