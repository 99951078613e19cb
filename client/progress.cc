#include "client/progress.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/clock.h"

namespace ina::client {

namespace {

// The longest sleep of a thread that waits while another drives.
constexpr Nanos kNapNs = 1'000'000;
// While the engine is driven in the background the control socket is looked at this often.
constexpr Nanos kBackgroundSleepNs = 5'000'000;
// How long the background thread waits for more after it was called.
constexpr Nanos kLingerNs = 1'000'000;
// Bursts of a channel after which others have their turn.
constexpr int kBriefRounds = 16;

}  // namespace

Progress::Progress(IdleMode idle_mode, Session& session, Link& link, Operations& operations,
                   membership::Callers& callers, AfterTurn after_turn)
    : idle_mode_(idle_mode),
      session_(session),
      link_(link),
      operations_(operations),
      callers_(callers),
      after_turn_(std::move(after_turn)),
      presence_(callers),
      idle_(idle_mode) {}

// ---- under the lock

std::unique_lock<std::mutex> Progress::lock() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  contenders_.fetch_add(1);
  link_.wake();
  lock.lock();
  contenders_.fetch_sub(1);
  return lock;
}

bool Progress::turn() {
  if (presence_.is_away(std::memory_order_relaxed) || closed_) return false;
  const uint64_t operations = link_.engine().counters().operations;
  const bool any = link_.turn(now_ns());
  after_turn_();
  if (link_.engine().counters().operations != operations) tell();
  return any;
}

void Progress::receive_rest() {
  const uint64_t operations = link_.engine().counters().operations;
  const Nanos now = now_ns();
  while (link_.receive(now) != 0) {
  }
  if (link_.engine().counters().operations != operations) tell();
}

void Progress::send() {
  link_.set_busy();
  turn();
  count();
  rest();
}

void Progress::count() {
  running_.store(link_.engine().running(), std::memory_order_relaxed);
}

void Progress::rest() {
  if (link_.engine().running() != 0 || is_away()) return;
  if (!link_.set_idle()) return;
  called_ = true;
  session_.kick();
}

void Progress::forget() {
  running_ = 0;
  called_ = false;
}

void Progress::close() {
  closed_ = true;
  forget();
}

// ---- callers

Progress::Waited Progress::wait(Operation* operation, Nanos deadline) {
  return wait_until([operation] { return operation->done.load(std::memory_order_acquire); },
                    [this, operation] { operations_.release(operation); }, deadline);
}

Progress::Waited Progress::drain(Nanos deadline) {
  return wait_until([this] { return running_.load(std::memory_order_acquire) == 0; }, [] {},
                    deadline);
}

/// `end()`: under the lock, once it is done or the job has failed.
template <class Done, class End>
Progress::Waited Progress::wait_until(const Done& done, const End& end, Nanos deadline) {
  for (;;) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
      const bool is_done = done();
      if (now_ns() >= deadline && !is_done) return Waited::kTimedOut;
      if (done()) {
        const auto held = this->lock();
        end();
        return Waited::kDone;
      }
      // The driving thread wakes this thread when an operation completes, or when it stops driving.
      callers_.nap(kNapNs);
      continue;
    }
    if (callers_.failed() == INA_OK && !is_away()) drive(done, deadline);
    const bool is_done = done();
    const bool failed = callers_.failed() != INA_OK;
    if (is_done || failed) end();
    const bool more = link_.engine().running() != 0;
    rest();
    lock.unlock();
    if (callers_.any_asleep()) callers_.wake();
    if (more && !failed) session_.kick();
    if (is_done) return Waited::kDone;
    if (failed) return Waited::kFailed;
    if (now_ns() >= deadline) return Waited::kTimedOut;
    if (is_away())
      await_return(deadline);
    else
      ::sched_yield();  // for threads that contend
  }
}

template <class Done>
void Progress::drive(const Done& done, Nanos deadline) {
  driving_ = true;
  idle_.reset();
  while (!done()) {
    if (turn()) {
      idle_.reset();
      if (contenders_.load(std::memory_order_relaxed) != 0) break;
      continue;
    }
    if (callers_.failed(std::memory_order_relaxed) != INA_OK) break;
    const Nanos now = now_ns();
    if (now >= deadline) break;
    // Before it sleeps, too: it may have taken the lock again ahead of the thread that woke it.
    if (contenders_.load(std::memory_order_relaxed) != 0) break;
    if (idle_.idle(now) == IdleStrategy::Step::kSleep) {
      const Nanos until = std::min(deadline, link_.engine().next_deadline());
      if (until > now) link_.transport().wait(std::min(idle_.sleep_ns(), until - now));
    }
  }
  driving_ = false;
}

std::optional<Progress::Waited> Progress::test(Operation* operation) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock && !operation->done.load(std::memory_order_acquire)) return std::nullopt;
  if (!lock) lock = this->lock();
  const bool failed = callers_.failed() != INA_OK;
  if (!failed && !operation->done.load(std::memory_order_acquire)) turn();
  rest();
  const bool done = operation->done.load(std::memory_order_acquire);
  if (!done && !failed) return std::nullopt;
  operations_.release(operation);
  return done ? Waited::kDone : Waited::kFailed;
}

void Progress::await_return(Nanos deadline) {
  callers_.await(deadline - now_ns(), [&] { return !is_away(); });
}

void Progress::kick_if_running() {
  if (running_.load(std::memory_order_relaxed) != 0) session_.kick();
}

// ---- the background thread

bool Progress::needs_driver() const {
  return is_live() && (running_.load() != 0 || called_.load()) && !driving_.load() &&
         other_drivers_.load() == 0 && !is_away() && callers_.failed() == INA_OK;
}

bool Progress::drive_in_background() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    ::usleep(100);
    return true;
  }
  const bool called = called_.exchange(false);
  if (called) link_.set_busy();
  IdleStrategy idle(idle_mode_ == IdleMode::kSpin ? IdleMode::kYield : idle_mode_);
  Nanos linger_until = 0;
  while (is_background_free(called)) {
    if (turn()) {
      idle.reset();
      linger_until = now_ns() + kLingerNs;
      continue;
    }
    const Nanos now = now_ns();
    if (link_.engine().running() == 0) {
      // The next packets are cheaper to take in while this thread still drives.
      if (now >= linger_until) break;
      link_.transport().wait(linger_until - now);
    } else if (idle.idle(now) == IdleStrategy::Step::kSleep) {
      sleep_in_background(idle, now);
      break;
    }
  }
  rest();
  const bool wanted = contenders_.load() != 0;
  lock.unlock();
  ::sched_yield();
  return !wanted;
}

/// True if the background thread has work here, and nothing better to do. `called`: by the switch.
bool Progress::is_background_free(bool called) const {
  if (contenders_.load() != 0 || session_.stopping() || callers_.failed() != INA_OK ||
      completions_.due())
    return false;
  return link_.engine().running() != 0 ? !callers_.any_asleep() : called;
}

void Progress::sleep_in_background(IdleStrategy& idle, Nanos now) {
  const Nanos left = link_.engine().next_deadline() - now;
  if (left <= 0) return;
  session_.wakeups().sleeps_in(&link_);
  link_.transport().wait(std::min({idle.sleep_ns(), left, kBackgroundSleepNs}));
  session_.wakeups().sleeps_in(nullptr);
}

bool Progress::drive_briefly() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || callers_.failed() != INA_OK) return false;
  if (called_.exchange(false)) link_.set_busy();
  bool any = false;
  for (int rounds = 0; rounds < kBriefRounds && contenders_.load() == 0 && turn(); ++rounds)
    any = true;
  rest();
  return any;
}

void Progress::run_all_callbacks() {
  completions_.set_due();
  run_callbacks();
}

void Progress::run_callbacks() {
  completions_.run(callers_.failed_status(), [this](Operation* operation, bool done) {
    {
      const auto held = lock();
      operations_.release(operation);
    }
    return done ? static_cast<int>(INA_OK) : callers_.report_failure();
  });
}

// ---- the end

void Progress::end(int status, const std::string& text) {
  if (!callers_.fail(status, text)) return;
  link_.wake();
  announce();
  session_.kick();
}

/// Operations have completed: all who wait for them, or are to be called, hear of it.
void Progress::tell() {
  count();
  if (callers_.any_asleep()) callers_.wake();
  announce();
}

/// Operations have completed, or the job has failed.
void Progress::announce() {
  if (completions_.announce()) session_.kick();
}

}  // namespace ina::client
