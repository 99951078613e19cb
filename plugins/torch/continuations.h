// What a program does when operations have ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include <ATen/core/ivalue.h>

#include "plugins/torch/operation.h"

namespace ina::plugin {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// The continuations of the operations of one job run one after the other, in the order in which
/// they were asked for, and never on the thread that asks. So all ranks start the operations of
/// continuations in the same order, whichever of them was the last to see an operation end. But
/// they do not agree when that is, compared with operations that the program starts meanwhile. For
/// this reason operations have a depth, and those of each depth are a job of their own: the
/// program's are at depth 0, those of their continuations at depth 1, and so on.
class Continuations : public std::enable_shared_from_this<Continuations> {
 public:
  /// `depth`: of the operations.
  static std::shared_ptr<Continuations> make(size_t depth);

  /// Something that ends: an operation, or a future.
  struct Awaited {
    std::function<bool()> done;
    /// Runs a function at the end, or now if that is over. The function does not wait.
    std::function<void(std::function<void()>)> when_done;
  };

  /// Runs `next` once `awaited` has ended.
  void add(Awaited awaited, std::function<void()> next);
  void add(const std::shared_ptr<Operation>& operation, std::function<void()> next);
  /// A future for the next continuation of `future`, which take_turn() completes: before that it
  /// must have its continuation, because a complete future runs one at once. Null for a thread that
  /// runs continuations of these: it must not wait for its own end.
  FuturePtr make_turn(const FuturePtr& future) const;
  /// `turn` gets the result of `future` when that is complete and all before it have had theirs.
  void take_turn(const FuturePtr& future, const FuturePtr& turn);

  /// Waits until they have run, at most until `end`. `check`: see Operation::wait. Not in one.
  void await_all(Clock::time_point end, void (*check)());
  /// Waits for the continuations of all jobs of the process.
  static void await_all_of_process(Clock::time_point end, void (*check)());

  /// The depth of operations that this thread starts.
  static size_t depth_of_thread();

 private:
  explicit Continuations(size_t depth) : depth_(depth) {}
  struct Entry {
    std::function<bool()> done;
    std::function<void()> next;
  };
  void begin();
  void run();

  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<Entry> entries_;
  bool running_ = false;
};

}  // namespace ina::plugin
