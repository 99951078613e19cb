#include "switchd/memory/mapper.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>

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
    for (Queue* queue : {&regions_, &rest_})
      queue->thread = std::thread([=, this] { run(*queue); });
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
  for (Queue* queue : {&regions_, &rest_}) {
    queue->wanted.notify_one();
    if (queue->thread.joinable()) queue->thread.join();
  }
}

void Mapper::map_region(const std::string& owner, uint64_t token, Fd file, size_t bytes) {
  // A file of another size is refused, too, but only after a look at all of it.
  struct stat status {};
  const bool as_agreed =
      ::fstat(file.get(), &status) == 0 && static_cast<size_t>(status.st_size) == bytes;
  post(as_agreed ? regions_ : rest_,
       {Task::Kind::kMap, owner, token, "worker region", bytes, std::move(file), {}});
}

void Mapper::map_registered(const std::string& owner, uint64_t token, Fd file, size_t bytes) {
  post(rest_, {Task::Kind::kMap, owner, token, "registered memory", bytes, std::move(file), {}});
}

void Mapper::make(const std::string& owner, uint64_t token, const char* name, size_t bytes) {
  post(rest_, {Task::Kind::kMake, owner, token, name, bytes, {}, {}});
}

/// Never on the thread for regions: the pages of a file go with its last descriptor or mapping, and
/// it has as many as its maker likes.
void Mapper::discard(const std::string& owner, Mapping map, Fd file) {
  if (!map && !file) return;
  leaving_.fetch_add(map ? 1 : 0, std::memory_order_relaxed);
  post(rest_, {Task::Kind::kDiscard, owner, 0, "", 0, std::move(file), std::move(map)});
}

void Mapper::post(Queue& queue, Task task) {
  {
    const std::lock_guard lock(mutex_);
    queue.tasks.add(std::move(task));
  }
  queue.wanted.notify_one();
}

bool Mapper::withdraw(uint64_t token) {
  std::optional<Task> task;
  {
    const std::lock_guard lock(mutex_);
    for (Queue* queue : {&regions_, &rest_})
      if (!task) task = queue->tasks.extract(token);
  }
  if (task) discard(task->owner, {}, std::move(task->file));
  return task.has_value();
}

void Mapper::Turns::add(Task task) {
  std::deque<Task>& own = of_[task.owner];
  if (own.empty()) order_.push_back(task.owner);
  if (task.kind == Task::Kind::kDiscard)
    own.push_front(std::move(task));
  else
    own.push_back(std::move(task));
}

Mapper::Task Mapper::Turns::next() {
  const auto own = of_.find(order_.front());
  order_.pop_front();
  Task task = std::move(own->second.front());
  own->second.pop_front();
  if (own->second.empty())
    of_.erase(own);
  else
    order_.push_back(own->first);
  return task;
}

std::optional<Mapper::Task> Mapper::Turns::extract(uint64_t token) {
  for (auto own = of_.begin(); own != of_.end(); ++own) {
    const auto found = std::ranges::find_if(own->second, [&](const Task& task) {
      return task.kind != Task::Kind::kDiscard && task.token == token;
    });
    if (found == own->second.end()) continue;
    Task task = std::move(*found);
    own->second.erase(found);
    if (own->second.empty()) {
      std::erase(order_, own->first);
      of_.erase(own);
    }
    return task;
  }
  return std::nullopt;
}

void Mapper::run(Queue& queue) {
  ::pthread_setname_np(::pthread_self(), "ina-mapper");
  // This thread alone yields: where cores are few, packets go before whole buffers of new pages.
  ::setpriority(PRIO_PROCESS, 0, 10);
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      queue.wanted.wait(lock, [&] { return stopping_ || !queue.tasks.empty(); });
      if (queue.tasks.empty()) return;
      task = queue.tasks.next();
      if (stopping_ && task.kind != Task::Kind::kDiscard) continue;
    }
    carry_out(task);
  }
}

void Mapper::carry_out(Task& task) {
  if (task.kind == Task::Kind::kDiscard) {
    const bool mapped = static_cast<bool>(task.map);
    const size_t bytes = task.map.size();
    if (mapped)
      unmap_in_pieces(task.map.release(), bytes, [this, rests = Rests()]() mutable {
        if (!stopping_) rests();
      });
    task.file.reset();
    leaving_.fetch_sub(mapped ? 1 : 0, std::memory_order_relaxed);
    return;
  }
  Done done{task.token, task.owner, fail(INA_ERR_NO_MEMORY, "out of memory")};
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
  if (!done.region) discard(task.owner, {}, std::move(task.file));
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
