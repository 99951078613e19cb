// Operations for which no thread waits: their ends are told by a callback, or by a descriptor that
// can be polled.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "fragments/engine.h"

namespace ina::client {

/// From any thread.
class Completions {
 public:
  using Call = void (*)(void* argument, int status);
  /// Takes an operation that has ended, or whose job has failed, from its owner. Returns the status
  /// to tell.
  using Finish = std::function<int(Operation* operation, bool done)>;

  void add(Operation* operation, Call call, void* argument);
  /// An eventfd that can be read after operations have completed. It is this object's.
  Result<int> fd();
  /// Operations have completed, or the job has failed. True: there may be something for run().
  bool announce();
  bool due() const { return due_.load(); }
  /// No thread waits for some of the operations.
  bool unattended() const { return has_some_.load() || fd_.load() >= 0; }
  bool has_callbacks() const { return has_some_.load(); }
  /// Something else wants run() to be called.
  void set_due() { due_ = true; }

  /// Calls those whose operations have ended, without a lock. `failed`: the status of the error
  /// that ended the job; then all operations have ended.
  void run(const std::atomic<int>& failed, const Finish& finish);
  /// Calls all that are left, with this status. Waits for one that is being called.
  void give_up(int status);

 private:
  struct Callback {
    Operation* operation = nullptr;
    Call call = nullptr;
    void* argument = nullptr;
  };
  std::optional<Callback> take(bool failed);

  std::mutex calling_mutex_;         ///< taken first: a callback is being called
  std::mutex mutex_;                 ///< taken alone, or after calling_mutex_
  std::vector<Callback> callbacks_;  ///< under mutex_
  Fd event_;                         ///< under mutex_; once it is needed
  std::atomic<int> fd_{-1};
  std::atomic<bool> has_some_{false};
  std::atomic<bool> due_{false};  ///< one may have to be called
};

}  // namespace ina::client
