// The threads that wait at a member of a job: their sleep until another thread brings a result, and
// the errors that they get. The end of the job wakes all of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "common/result.h"
#include "wire/types.h"

namespace ina::membership {

/// From any thread.
class Callers {
 public:
  /// Guards all that other threads bring to the callers. Taken after an engine's lock.
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }
  /// Under this lock: sleeps until `come()`, or the job has failed, or the time has passed. Returns
  /// whether it came.
  template <class Come>
  bool await(std::unique_lock<std::mutex>& lock, Nanos timeout_ns, Come come);
  /// await() that takes the lock itself.
  template <class Come>
  bool await(Nanos timeout_ns, Come come) {
    auto lock = this->lock();
    return await(lock, timeout_ns, come);
  }
  /// Sleeps for `timeout_ns`, or until an event; the caller then looks for the event.
  void nap(Nanos timeout_ns);
  /// Wakes all callers to look again. Their data is written under the lock; otherwise use tell().
  void wake() { changed_.notify_all(); }
  /// Runs `write()` under the lock, and wakes them.
  template <class Write>
  void tell(Write write);
  bool any_asleep() const { return asleep_.load(); }

  /// INA_OK, or the status of the error that ended the job.
  int failed(std::memory_order order = std::memory_order_seq_cst) const {
    return failed_.load(order);
  }
  const std::atomic<int>& failed_status() const { return failed_; }
  /// Ends the job for them. False: it had ended before, and nothing has changed.
  bool fail(int status, const std::string& text);
  /// The text of the error that ended the job.
  std::string failure_text() const;
  /// Makes it the last error, too. Returns its status.
  int report_failure();
  /// report_failure() that returns the error, not only its status.
  tl::unexpected<Error> failure();
  /// Returns `status`.
  int set_error(int status, std::string text);
  std::string last_error() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> asleep_{0};
  std::atomic<int> failed_{INA_OK};  ///< written under mutex_
  std::string failure_text_;         ///< under mutex_
  std::string last_error_;           ///< under mutex_
};

template <class Come>
bool Callers::await(std::unique_lock<std::mutex>& lock, Nanos timeout_ns, Come come) {
  asleep_.fetch_add(1);
  changed_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(0, timeout_ns)),
                    [&] { return come() || failed_.load() != INA_OK; });
  asleep_.fetch_sub(1);
  return come();
}

template <class Write>
void Callers::tell(Write write) {
  {
    const std::lock_guard lock(mutex_);
    write();
  }
  changed_.notify_all();
}

}  // namespace ina::membership
