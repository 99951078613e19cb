#include "programs/psd/serving_loop.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "common/clock.h"
#include "common/futex.h"

namespace ina::psd {

namespace {

// How long to wait, at most, until what the transport did not take is tried again.
constexpr Nanos kSendAgainNs = 1'000'000;
// How long a thread works before others that share its core have their turns.
constexpr Nanos kTurnNs = 1'000'000;
// The longest sleep. Whatever comes wakes the thread, and many threads that look for nothing every
// 20 ms take a good part of a core.
constexpr Nanos kLongestSleepNs = 1'000'000'000;
// How often a thread looks where the kernel cannot wake it.
constexpr useconds_t kLookUs = 1000;
// How long the end of the thread may take before it is woken again: a wake-up may come just before
// it sleeps.
constexpr auto kWakeAgain = std::chrono::milliseconds(1);

Nanos sleep_ns(const IdleStrategy& idle) {
  return idle.sleep_ns() < IdleStrategy::kMaxSleepNs ? idle.sleep_ns() : kLongestSleepNs;
}

}  // namespace

ServingLoop::ServingLoop(IdleMode mode, std::shared_ptr<FairMutex> core)
    : mode_(mode), core_(std::move(core)) {
  jobs_.reserve(kMostJobs);
  thread_ = std::thread([this] { run(); });
}

ServingLoop::~ServingLoop() {
  stopping_ = true;
  do {
    call();
  } while (!ended_.try_acquire_for(kWakeAgain));
  thread_.join();
}

void ServingLoop::add(JobServer& job) {
  {
    const auto turn = interrupt();
    jobs_.push_back({&job});
  }
  call();
}

void ServingLoop::remove(JobServer& job) {
  const auto turn = interrupt();
  std::erase_if(jobs_, [&](const Served& served) { return served.job == &job; });
  // The thread may be about to wait for the job's doorbell.
  calls_.fetch_add(1, std::memory_order_release);
}

/// Between two jobs' turns.
std::unique_lock<FairMutex> ServingLoop::interrupt() {
  wanted_ = true;
  std::unique_lock turn(*core_);
  wanted_ = false;
  return turn;
}

/// Jobs at Ethernet ports each have a thread of their own: only the port itself knows what to wait
/// for.
bool ServingLoop::is_full() const {
  return alone() || jobs_.size() == kMostJobs;
}

bool ServingLoop::serves(const JobServer& job) const {
  return std::ranges::any_of(jobs_, [&](const Served& served) { return served.job == &job; });
}

/// The only job, if it is at an Ethernet port.
JobServer* ServingLoop::alone() const {
  return jobs_.size() == 1 && !jobs_[0].job->shm() ? jobs_[0].job : nullptr;
}

/// Ends a sleep.
void ServingLoop::call() {
  calls_.fetch_add(1, std::memory_order_release);
  futex_wake(&calls_);
  if (JobServer* const job = alone()) job->transport().wake();
}

void ServingLoop::run() {
  ::pthread_setname_np(::pthread_self(), "ina-psd-job");
  IdleStrategy idle(mode_);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (work())
      idle.reset();
    else if (idle.idle(now_ns()) == IdleStrategy::Step::kSleep)
      sleep(sleep_ns(idle));
  }
  ended_.release();
}

/// For a while, as long as there is something. False: there was nothing.
bool ServingLoop::work() {
  const std::lock_guard turn(*core_);
  const Nanos until = now_ns() + kTurnNs;
  bool did = false;
  size_t without = 0;  // so many in a row had nothing
  while (without < jobs_.size()) {
    if (next_ >= jobs_.size()) next_ = 0;
    if (!serve(jobs_[next_++])) {
      ++without;
      continue;
    }
    did = true;
    without = 0;
    if (wanted_.load(std::memory_order_relaxed) || stopping_.load(std::memory_order_relaxed) ||
        now_ns() >= until)
      break;
  }
  return did;
}

bool ServingLoop::serve(Served& served) {
  if (served.doorbell) {
    const auto& [word, value] = *served.doorbell;
    if (word->load(std::memory_order_acquire) == value && !served.job->has_unsent()) return false;
    served.job->shm()->end_sleep();
    served.doorbell.reset();
  }
  return served.job->progress();
}

void ServingLoop::sleep(Nanos longest_ns) {
  JobServer* port = nullptr;
  size_t count = 0;
  {
    const std::lock_guard turn(*core_);
    port = alone();
    if (port && port->has_unsent()) longest_ns = std::min(longest_ns, kSendAgainNs);
    if (!port) count = prepare_sleep(longest_ns);
  }
  if (port)
    port->transport().wait(longest_ns);  // it is removed by the end of this thread only
  else if (count != 0 && !futex_wait_any(std::span(waits_).first(count), longest_ns))
    ::usleep(kLookUs);
}

/// What to wait for, in waits_. 0: there is something already.
size_t ServingLoop::prepare_sleep(Nanos& longest_ns) {
  size_t count = 0;
  waits_[count++] = futex_wait_of(&calls_, calls_.load(std::memory_order_acquire));
  if (stopping_.load(std::memory_order_relaxed)) return 0;
  for (Served& served : jobs_) {
    if (!served.doorbell && !(served.doorbell = served.job->shm()->begin_sleep())) return 0;
    waits_[count++] = futex_wait_of(served.doorbell->word, served.doorbell->value);
    if (served.job->has_unsent()) longest_ns = std::min(longest_ns, kSendAgainNs);
  }
  return count;
}

}  // namespace ina::psd
