#include "client/completions.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "common/event_fd.h"

namespace ina::client {

void Completions::add(Operation* operation, Call call, void* argument) {
  {
    const std::lock_guard lock(mutex_);
    callbacks_.push_back({operation, call, argument});
    has_some_ = true;
  }
  due_ = true;  // it may be done already
}

Result<int> Completions::fd() {
  const std::lock_guard lock(mutex_);
  if (!event_) {
    event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return fail(INA_ERR_NO_MEMORY, "no descriptor is left for an eventfd");
    fd_ = event_.get();
  }
  return event_.get();
}

bool Completions::announce() {
  if (const int fd = fd_.load(std::memory_order_relaxed); fd >= 0) {
    ring_event(fd);
  }
  if (!has_some_.load(std::memory_order_relaxed)) return false;
  due_ = true;
  return true;
}

void Completions::run(const std::atomic<int>& failed, const Finish& finish) {
  const bool failed_with_some = has_some_.load() && failed.load() != INA_OK;
  if (!due_.exchange(false) && !failed_with_some) return;
  for (;;) {
    const std::lock_guard calling(calling_mutex_);
    const std::optional<Callback> next = take(failed.load() != INA_OK);
    if (!next) return;
    const bool done = next->operation->done.load(std::memory_order_acquire);
    next->call(next->argument, finish(next->operation, done));
  }
}

/// One whose operation has ended.
std::optional<Completions::Callback> Completions::take(bool failed) {
  const std::lock_guard lock(mutex_);
  const auto due = std::ranges::find_if(callbacks_, [&](const Callback& callback) {
    return failed || callback.operation->done.load(std::memory_order_acquire);
  });
  if (due == callbacks_.end()) return std::nullopt;
  const Callback taken = *due;
  callbacks_.erase(due);
  has_some_ = !callbacks_.empty();
  return taken;
}

void Completions::give_up(int status) {
  const std::lock_guard calling(calling_mutex_);
  std::vector<Callback> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(callbacks_);
    has_some_ = false;
  }
  for (const Callback& callback : left) callback.call(callback.argument, status);
}

}  // namespace ina::client
