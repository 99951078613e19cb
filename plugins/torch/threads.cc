#include "plugins/torch/threads.h"

#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ina::plugin {

namespace {

using Threads = std::list<std::thread>;

struct Process {
  std::mutex mutex;
  std::condition_variable ended;
  Threads running, over;  ///< those that are over are to be joined
  size_t groups = 0;
  int id = ::getpid();  ///< that has the threads: a fork has none
  std::vector<std::function<void()>> wakes;
};

Process& process() {
  static auto* const one = new Process;  // threads may run until the process has ended
  return *one;
}

thread_local bool is_own_thread = false;

void run(std::function<void()> task, Threads::iterator self) {
  is_own_thread = true;
  task();
  task = nullptr;  // what it holds
  const std::lock_guard lock(process().mutex);
  process().over.splice(process().over.end(), process().running, self);
  process().ended.notify_all();
}

/// With the mutex. The threads of the process that has forked this one cannot be joined here.
void forget_threads_of_parent() {
  if (std::exchange(process().id, ::getpid()) == ::getpid()) return;
  for (Threads* const threads : {&process().running, &process().over})
    [[maybe_unused]] const auto* forgotten = new Threads(std::move(*threads));
}

void join(Threads over) {
  for (std::thread& thread : over) thread.join();
}

}  // namespace

void run_detached(std::function<void()> task) {
  sigset_t all, before;
  sigfillset(&all);
  const std::lock_guard lock(process().mutex);
  forget_threads_of_parent();
  join(std::exchange(process().over, {}));
  Threads& running = process().running;
  const auto self = running.emplace(running.end());
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    *self = std::thread(&run, std::move(task), self);
  } catch (...) {
    running.erase(self);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void group_made() {
  const std::lock_guard lock(process().mutex);
  ++process().groups;
}

bool no_group() {
  const std::lock_guard lock(process().mutex);
  return process().groups == 0;
}

void on_last_group(std::function<void()> wake) {
  const std::lock_guard lock(process().mutex);
  process().wakes.push_back(std::move(wake));
}

void group_left(std::chrono::milliseconds timeout) {
  std::vector<std::function<void()>> wakes;
  {
    const std::lock_guard lock(process().mutex);
    forget_threads_of_parent();
    if (--process().groups != 0) return;
    wakes = process().wakes;
  }
  for (const auto& wake : wakes) wake();
  if (is_own_thread) return;
  Threads over;
  {
    std::unique_lock lock(process().mutex);
    process().ended.wait_for(lock, timeout, [] { return process().running.empty(); });
    over.swap(process().over);
  }
  join(std::move(over));
}

}  // namespace ina::plugin
