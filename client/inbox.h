// Events that operations of several contexts report to their Schedules. The inbox keeps the events
// for the thread that has the executor's lock.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "fragments/operation.h"

namespace ina::client {

/// Any thread may post; the thread that has the executor's lock reserves and delivers.
class Inbox {
 public:
  /// Under a context's lock. `ended`: or it has only received all. There is room for it.
  void post(OperationListener& schedule, Operation& operation, bool ended) {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back({&schedule, &operation, ended});
    }
    has_mail_ = true;
  }

  bool has_mail() const { return has_mail_.load(); }

  /// Makes room for all that so many operations may tell: each that it has received all, and that
  /// it has ended.
  void reserve(size_t operations) {
    delivered_.reserve(2 * operations);
    const std::lock_guard lock(mutex_);
    posted_.reserve(2 * operations);
  }

  /// Tells the Schedules, also what is posted meanwhile.
  void deliver() {
    while (has_mail_.exchange(false)) {
      {
        const std::lock_guard lock(mutex_);
        delivered_.swap(posted_);
      }
      for (const auto& [schedule, operation, ended] : delivered_)
        ended ? schedule->completed(*operation) : schedule->received(*operation);
      delivered_.clear();
    }
  }

 private:
  struct Mail {
    OperationListener* schedule;
    Operation* operation;
    bool ended;
  };

  std::mutex mutex_;          ///< taken last
  std::vector<Mail> posted_;  ///< under mutex_
  std::vector<Mail> delivered_;
  std::atomic<bool> has_mail_{false};
};

}  // namespace ina::client
