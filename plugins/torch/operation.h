// One operation of the library on behalf of a Work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugins/torch/job.h"

namespace ina::plugin {

using Clock = std::chrono::steady_clock;

/// All that it needs besides its start.
struct OperationPlan {
  const char* name = "";
  std::vector<at::Tensor> held;   ///< the library uses their memory until the end
  std::function<void()> deliver;  ///< copies results to where they are wanted; may be empty
  milliseconds timeout{0};
  const char* advice = "";  ///< the remedy for a time-out; may be empty
  /// Ends the operation if it has not been started, and says whether it has done so. Empty: it is
  /// started at once.
  std::function<bool()> abandon;
};

/// The library's thread tells that it has ended. Then the results are delivered, waiting threads
/// wake, and continuations run. Copies are made on a thread of a dispatcher, because others need
/// the library's thread.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  explicit Operation(OperationPlan plan);

  /// Throws ina::Exception if it cannot be started.
  void start(std::shared_ptr<Job> job,
             const std::function<int(ina_context*, ina_request**)>& begin);
  /// Keeps something else until the end. Before it is started.
  void hold(std::shared_ptr<void> thing) { kept_ = std::move(thing); }
  /// Ends an operation that is not started: well if `error` is nullptr.
  void end(std::exception_ptr error);

  bool done() const;
  /// The error of an operation that has failed, else nullptr.
  std::exception_ptr error() const;

  /// Its error, if any, to the caller, who may be told a little later (Job::await_first_cause).
  void throw_error(void (*check)()) const;

  /// Waits until it has ended, and then returns true. With `limit`: false when that has passed,
  /// and it goes on. Without: when the operation's own timeout passes, the job is given up for all
  /// ranks. `check`, if any, is called several times a second, and may throw to end the waiting.
  bool wait(std::optional<milliseconds> limit, void (*check)());

  /// Runs `last` with its error when it ends, before anybody learns of it. Before it is started.
  void before_end(std::function<void(std::exception_ptr)> last) { last_ = std::move(last); }
  /// Runs `next` once it has ended, on any thread. It must not wait.
  void when_done(std::function<void()> next);

  Clock::time_point deadline() const { return deadline_; }
  /// Unless it has ended, the job is given up for all ranks.
  void give_up();

 private:
  static void ended(void* user, int status);
  void finish(int status);
  void deliver(std::exception_ptr error);
  void release_memory();
  void conclude(std::exception_ptr error);

  OperationPlan plan_;
  std::shared_ptr<void> kept_;
  std::function<void(std::exception_ptr)> last_;
  const Clock::time_point deadline_;

  mutable std::mutex mutex_;
  std::shared_ptr<Job> job_;  ///< once it is started
  std::condition_variable changed_;
  bool done_ = false;
  bool given_up_ = false;
  int status_ = INA_OK;  ///< the library's
  std::exception_ptr error_;
  std::vector<std::function<void()>> continuations_;
};

/// Waits until all operations of `job` have ended, each with its own timeout or, if shorter,
/// `limit`. `check`: see Operation::wait.
void wait_for_running(const Job& job, std::optional<milliseconds> limit, void (*check)());

}  // namespace ina::plugin
