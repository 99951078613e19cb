// A process group's membership in a job of the switch.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include <ina/ina.h>

namespace ina::plugin {

using std::chrono::milliseconds;

class Operation;

/// Bound of any time that a caller gives: libina's longest is not much longer.
constexpr milliseconds kLongest = std::chrono::hours(30 * 365 * 24);

struct JobOptions {
  std::string url;
  std::string name;
  int rank = 0;
  int size = 1;
  milliseconds timeout{0};  ///< of joining; 0: the library's, which gives up a missing switch soon
  bool pair = false;        ///< of two ranks, one of which sends to the other (Pairs)
};

/// Any thread may use it.
class Job : public std::enable_shared_from_this<Job> {
 public:
  explicit Job(JobOptions options) : options_(std::move(options)) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  /// Its owner calls leave() before.
  ~Job() = default;

  /// Joins unless it has. Throws ina::Exception.
  void join();

  /// A group of ranks of this job (ina_split), which has joined; nullptr where `colour` is
  /// negative. All ranks call it. Throws ina::Exception.
  std::shared_ptr<Job> split(int colour, int key);

  /// Calls `begin(context, &request)`, which starts an operation. Joins before the first. Then has
  /// `callback(user, status)` called once, when the operation has ended. Throws ina::Exception if
  /// it could not be started; then `callback` is never called.
  void start(const std::function<int(ina_context*, ina_request**)>& begin, ina_callback callback,
             void* user);

  /// `operation` has been started.
  void began(std::weak_ptr<Operation> operation);
  /// An operation has ended with an error.
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }
  /// The operations that have not ended, in the order of their starts.
  std::vector<std::shared_ptr<Operation>> running() const;

  /// As ina_register; throws ina::Exception where the memory is not taken.
  void register_memory(int memfd, void* memory, size_t bytes);
  /// As ina_alloc_result, which all ranks call; throws ina::Exception. The memory lives until
  /// free_memory() or leave().
  void* alloc_result(size_t bytes);
  /// False if the library still uses the memory, which must then stay as it is.
  bool free_memory(void* memory);
  /// For the operations that start afterwards. Throws ina::Exception.
  void set_hints(const ina_hints& hints);
  /// Throws ina::Exception.
  ina_stats stats() const;

  /// Delays a caller that is to learn that another rank has left. Where that rank has failed, it
  /// has the time to say so: programs report the error that comes first. `check`: see
  /// Operation::wait.
  void await_first_cause(void (*check)());

  /// Ends the job for all ranks, because an operation did not end in time. Each operation then ends
  /// with an error.
  void give_up();

  /// Leaves the job, at most `timeout` after the call, and ends operations that still run. Does
  /// nothing if it is not joined. Not on the library's thread.
  void leave(milliseconds timeout);

  /// The library's text of the last error.
  std::string last_error() const;

  const JobOptions& options() const { return options_; }

 private:
  [[noreturn]] void refuse_after_leaving() const;

  const JobOptions options_;
  std::mutex joining_mutex_;  ///< taken first: one joins, which may take long
  /// Lock of the following members. Users of the context share it, because the library calls back,
  /// and wants the text of an error, while another one waits.
  mutable std::shared_mutex mutex_;
  ina_context* context_ = nullptr;
  bool left_ = false;
  std::atomic<std::chrono::steady_clock::time_point>
      lost_{};  ///< when a caller first learned of it
  std::atomic<bool> failed_ = false;
  mutable std::mutex running_mutex_;
  std::vector<std::weak_ptr<Operation>> running_;  ///< and some that have ended
  size_t prune_at_ = 64;
};

/// Waits for the operations that run, in the jobs of two ranks at most `limit`, and for their
/// continuations. `check`: see Operation::wait. For the end of the process.
void wait_for_all(milliseconds limit, void (*check)());
/// Has all jobs leave when the interpreter ends, at most `timeout` after that.
void leave_at_exit(milliseconds timeout);
/// All jobs leave. For the end of the interpreter.
void leave_all_at_exit();

}  // namespace ina::plugin
