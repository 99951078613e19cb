#include "switchd/mapper.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "common/event_fd.h"
#include "common/sealed_memory.h"
#include "control/work_timer.h"

namespace ina::switchd {

namespace {

/// Soon done: some 0.2 ms of new pages, and as much of rest.
constexpr size_t kSmallBytes = size_t{1} << 20;

/// Rests as long as it has worked since. A thread that the scheduler lets run until its next tick
/// would keep packets from a core for milliseconds, and a lower priority alone does not help those
/// whose processes are in other groups.
class Rests {
 public:
  void operator()() {
    const Nanos worked = std::min(control::thread_cpu_ns() - before_, kLongestNs);
    const timespec rest{0, worked};
    ::nanosleep(&rest, nullptr);
    before_ = control::thread_cpu_ns();
  }

 private:
  static constexpr Nanos kLongestNs = 5'000'000;
  Nanos before_ = control::thread_cpu_ns();
};

}  // namespace

Mapper::Mapper() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Signals are for the thread that runs the conductor.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string error;
  try {
    for (Queue* queue : {&small_, &large_}) queue->thread = std::thread([=, this] { run(*queue); });
  } catch (const std::system_error& e) {
    error = e.code().message();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error.empty()) return;
  stop();
  throw std::runtime_error("cannot start a thread for the memory of workers: " + error +
                           " (ulimit -u, TasksMax)");
}

Mapper::~Mapper() {
  stop();
}

void Mapper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (Queue* queue : {&small_, &large_}) {
    queue->wanted.notify_one();
    if (queue->thread.joinable()) queue->thread.join();
  }
}

void Mapper::map(uint64_t token, Fd file, size_t bytes, const char* what) {
  post({Task::Kind::kMap, token, what, bytes, std::move(file), {}});
}

void Mapper::make(uint64_t token, const char* name, size_t bytes) {
  post({Task::Kind::kMake, token, name, bytes, {}, {}});
}

void Mapper::discard(Mapping map, Fd file) {
  if (!map && !file) return;
  leaving_.fetch_add(map ? 1 : 0, std::memory_order_relaxed);
  post({Task::Kind::kDiscard, 0, "", 0, std::move(file), std::move(map)});
}

void Mapper::post(Task task) {
  Queue& queue = std::max(task.bytes, task.map.size()) <= kSmallBytes ? small_ : large_;
  {
    const std::lock_guard lock(mutex_);
    queue.tasks.push_back(std::move(task));
  }
  queue.wanted.notify_one();
}

void Mapper::run(Queue& queue) {
  ::pthread_setname_np(::pthread_self(), "ina-mapper");
  // Of this thread alone: where cores are few, packets go before whole buffers of new pages.
  ::setpriority(PRIO_PROCESS, 0, 10);
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      queue.wanted.wait(lock, [&] { return stopping_ || !queue.tasks.empty(); });
      if (queue.tasks.empty()) return;
      task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
    }
    carry_out(task);
  }
}

void Mapper::carry_out(Task& task) {
  if (task.kind == Task::Kind::kDiscard) {
    const bool mapped = static_cast<bool>(task.map);
    const size_t bytes = task.map.size();
    if (mapped) unmap_in_pieces(task.map.release(), bytes);
    task.file.reset();
    leaving_.fetch_sub(mapped ? 1 : 0, std::memory_order_relaxed);
    return;
  }
  Done done{task.token, fail(INA_ERR_NO_MEMORY, "out of memory")};
  const Nanos before = control::thread_cpu_ns();
  try {
    if (task.kind == Task::Kind::kMake) {
      done.region = io::shm::make_region(task.name, task.bytes, Rests());
    } else if (auto map = io::shm::map_peer_region(task.file, task.bytes, task.name, Rests())) {
      done.region = io::shm::Region{{}, std::move(*map)};
    } else {
      done.region = tl::unexpected(map.error());
    }
  } catch (const std::bad_alloc&) {
  }
  done.spent = control::thread_cpu_ns() - before;
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(done));
  }
  ring_event(event_.get());
}

std::optional<Mapper::Done> Mapper::next() {
  const std::lock_guard lock(mutex_);
  if (done_.empty()) {
    drain_event(event_.get());
    return std::nullopt;
  }
  std::optional<Done> first(std::move(done_.front()));
  done_.pop_front();
  return first;
}

}  // namespace ina::switchd
