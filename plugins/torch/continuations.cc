#include "plugins/torch/continuations.h"

#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>

#include "plugins/torch/dispatcher.h"

namespace ina::plugin {

using c10::ivalue::Future;

namespace {

thread_local size_t thread_depth = 0;

constexpr milliseconds kBetweenChecks{100};

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Continuations>> all;
};

Registry& registry() {
  static auto* const one = new Registry;  // threads may run until the process has ended
  return *one;
}

}  // namespace

std::shared_ptr<Continuations> Continuations::make(size_t depth) {
  const std::shared_ptr<Continuations> made(new Continuations(depth));
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().all, [](const auto& other) { return other.expired(); });
  registry().all.push_back(made);
  return made;
}

void Continuations::await_all(Clock::time_point end, void (*check)()) {
  std::unique_lock lock(mutex_);
  while ((running_ || !entries_.empty()) && Clock::now() < end) {
    ended_.wait_for(lock, kBetweenChecks);
    if (!check) continue;
    lock.unlock();
    check();
    lock.lock();
  }
}

void Continuations::await_all_of_process(Clock::time_point end, void (*check)()) {
  std::vector<std::weak_ptr<Continuations>> all;
  {
    const std::lock_guard lock(registry().mutex);
    all = registry().all;
  }
  for (const auto& one : all)
    if (const auto alive = one.lock()) alive->await_all(end, check);
}

size_t Continuations::depth_of_thread() {
  return thread_depth;
}

void Continuations::add(Awaited awaited, std::function<void()> next) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back({std::move(awaited.done), std::move(next)});
  }
  awaited.when_done([self = shared_from_this()] { self->begin(); });
}

void Continuations::add(const std::shared_ptr<Operation>& operation, std::function<void()> next) {
  add({[operation] { return operation->done(); },
       [operation](std::function<void()> then) { operation->when_done(std::move(then)); }},
      std::move(next));
}

FuturePtr Continuations::make_turn(const FuturePtr& future) const {
  if (thread_depth > depth_) return {};
  return c10::make_intrusive<Future>(future->elementType());
}

void Continuations::take_turn(const FuturePtr& future, const FuturePtr& turn) {
  // Continuations see PyTorch's thread-local state of the thread that asks for them.
  std::function<void()> complete = at::wrapPropagateTLSState([future, turn] {
    if (future->hasError()) return turn->setError(future->exception_ptr());
    turn->markCompleted(future->constValue());
  });
  add({[future] { return future->completed(); },
       [future](std::function<void()> then) {
         future->addCallback([then = std::move(then)](Future& /*ended*/) { then(); });
       }},
      std::move(complete));
}

/// If they can go on.
void Continuations::begin() {
  const std::lock_guard lock(mutex_);
  if (running_ || entries_.empty() || !entries_.front().done()) return;
  running_ = true;
  Dispatcher::for_continuations().run([self = shared_from_this()] { self->run(); });
}

void Continuations::run() {
  const size_t before = std::exchange(thread_depth, depth_ + 1);
  for (;;) {
    std::unique_lock lock(mutex_);
    if (entries_.empty() || !entries_.front().done()) {
      running_ = false;
      ended_.notify_all();
      break;
    }
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    entry.next();
  }
  thread_depth = before;
}

}  // namespace ina::plugin
