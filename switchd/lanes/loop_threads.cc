#include "switchd/lanes/loop_threads.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <future>
#include <system_error>
#include <utility>

namespace ina::switchd {

namespace {

/// Threads that are made meanwhile inherit the mask: signals are for the main thread.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

Result<void> bind_to_cpus(std::thread& thread, const std::vector<uint32_t>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const uint32_t cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  const int error = pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
  if (error == 0) return {};
  return fail(INA_ERR_INVALID, fmt::format("a packet loop cannot be bound to CPU {} (eal.cpus): {}",
                                           fmt::join(cpus, ","), std::strerror(error)));
}

}  // namespace

Result<LoopThreads> LoopThreads::start(std::vector<std::function<void()>> loops,
                                       const std::vector<uint32_t>& cpus) {
  LoopThreads started;
  std::promise<bool> may_run;
  const std::shared_future<bool> go = may_run.get_future().share();
  const auto start_one = [&](size_t number) -> Result<void> {
    std::thread& thread = started.threads_.emplace_back([go, loop = std::move(loops[number])] {
      if (go.get()) loop();
    });
    pthread_setname_np(thread.native_handle(), fmt::format("ina-lane-{}", number).c_str());
    if (cpus.empty()) return {};
    return bind_to_cpus(thread, cpus.size() < loops.size() ? cpus : std::vector{cpus[number]});
  };
  const BlockedSignals blocked;
  Result<void> all;
  try {
    for (size_t number = 0; number < loops.size() && all; ++number) all = start_one(number);
  } catch (const std::system_error& error) {
    all = fail(INA_ERR_NO_MEMORY,
               fmt::format("no thread for a packet loop: {}", error.code().message()));
  }
  may_run.set_value(all.has_value());
  if (all) return started;
  started.join();
  return tl::unexpected(all.error());
}

void LoopThreads::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace ina::switchd
