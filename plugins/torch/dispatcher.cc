#include "plugins/torch/dispatcher.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "plugins/torch/threads.h"

namespace ina::plugin {

namespace {

constexpr std::chrono::seconds kIdleBeforeEnd{10};
/// As deep as continuations may wait for each other.
constexpr size_t kMostThreads = 32;

}  // namespace

Dispatcher& Dispatcher::of_process() {
  static auto* const dispatcher = new Dispatcher;  // its threads run until the process has ended
  return *dispatcher;
}

void Dispatcher::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) {
    process_ = ::getpid();
    threads_ = idle_ = 0;
  }
  tasks_.push_back(std::move(task));
  if (tasks_.size() > idle_ && threads_ < kMostThreads)
    start_thread();
  else
    changed_.notify_one();
}

void Dispatcher::start_thread() {
  run_detached([this] { work(); });
  ++threads_;
}

void Dispatcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (tasks_.empty()) {
      ++idle_;
      const bool more = changed_.wait_for(lock, kIdleBeforeEnd, [&] { return !tasks_.empty(); });
      --idle_;
      if (!more) break;
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
