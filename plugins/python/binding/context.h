// libina's contexts and requests as objects of Python.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include <ina/ina.h>

#include "plugins/python/binding/array.h"
#include "plugins/python/binding/results.h"

namespace ina::python {

/// An ina_context that calls of any thread use. close() waits for calls that run.
class Joined {
 public:
  Joined(ina_context* context, double timeout_s)
      : told_by_(context), context_(context), timeout_s_(timeout_s) {}
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
  ~Joined();

  /// Calls `function(context)` without the GIL. Throws ina::Exception for a negative status, and if
  /// it is closed.
  int call(const std::function<int(ina_context*)>& function);
  /// call() with several different contexts; the first one has the error's text.
  static int call_all(const std::vector<Joined*>& all,
                      const std::function<int(const std::vector<ina_context*>&)>& function);
  /// ina_finalize; again: nothing.
  void close(double timeout_s);
  bool closed() const;
  /// ina_free; INA_OK also if it is closed. Without the GIL.
  int free_memory(void* memory);
  const std::shared_ptr<Results>& results() const { return results_; }
  /// Timeout of operations, if the caller says none.
  double timeout_s() const { return timeout_s_; }

  /// An eventfd, which can be read after an operation has ended. Throws std::system_error.
  int completion_fd();
  /// On the library's thread: an operation has ended, and a thread that asks finds that.
  void wake();
  /// On the library's thread: of an operation that ended so. Empty for one without error.
  std::string text_of(int status) const;

 private:
  std::atomic<int> completion_fd_{-1};
  std::atomic<bool> closing_{false};
  std::atomic<ina_context*> told_by_;  ///< context_, for the library's thread
  mutable std::shared_mutex mutex_;
  ina_context* context_;
  const double timeout_s_;
  const std::shared_ptr<Results> results_ = std::make_shared<Results>();
};

/// How an operation ends, of which the library tells on its own thread, without the GIL.
struct Outcome {
  explicit Outcome(Joined& of) : joined(of) {}

  Joined& joined;  ///< outlives the operation
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool orphaned = false;  ///< nobody asks for it any more
  int status = INA_OK;
  std::string text;
  std::vector<Array> arrays;  ///< that the operation uses
};

/// An operation that was started. Dropped, it goes on, and its memory is kept for it until it has
/// ended.
class Request {
 public:
  Request(std::shared_ptr<Joined> joined, std::shared_ptr<Outcome> outcome)
      : joined_(std::move(joined)), outcome_(std::move(outcome)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  /// True once it has ended; throws its error.
  bool test();
  /// False when `timeout_s` has passed. Ctrl-C ends the wait.
  bool wait(double timeout_s);
  /// Waits; when `timeout_s` (none: the context's) has passed, ends the job for all ranks, and
  /// throws.
  void finish(std::optional<double> timeout_s);
  /// The operation has not ended within `limit_s`: ends the job for all ranks, and throws.
  void expire(double limit_s);
  /// The context's.
  double timeout_s() const { return joined_->timeout_s(); }

 private:
  bool done_within(double seconds);

  const std::shared_ptr<Joined> joined_;
  const std::shared_ptr<Outcome> outcome_;
};

/// The context of Python: each operation that it starts is given as a Request.
class Context {
 public:
  explicit Context(std::shared_ptr<Joined> joined) : joined_(std::move(joined)) {}
  static Context join(const std::string& url, const std::string& job, int rank, int world_size,
                      double timeout_s, bool reproducible, uint64_t window_bytes,
                      const std::string& idle);
  std::optional<Context> split(int colour, int key) const;
  Context create_group(const std::vector<int>& ranks, uint64_t tag) const;

  using Begin = std::function<int(ina_context*, ina_request**)>;
  std::unique_ptr<Request> start(const Begin& begin, std::vector<Array> arrays) const;
  int call(const std::function<int(ina_context*)>& function) const {
    return joined_->call(function);
  }
  Joined& joined() const { return *joined_; }
  /// For objects made from the context.
  const std::shared_ptr<Joined>& shared() const { return joined_; }
  /// Where an operation's array may lie in a result buffer.
  const Results* results() const { return joined_->results().get(); }

 private:
  Context of_group(ina_context* group) const;

  std::shared_ptr<Joined> joined_;
};

}  // namespace ina::python
