// What a program does when operations have ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "plugins/torch/operation.h"

namespace ina::plugin {

/// The continuations of the operations of one job run one after the other, in the order in which
/// they were asked for. So all ranks start the operations of continuations in the same order. But
/// they do not agree when that is, compared with operations that the program starts meanwhile. For
/// this reason operations have a depth, and those of each depth are a job of their own: the
/// program's are at depth 0, those of their continuations at depth 1, and so on.
class Continuations : public std::enable_shared_from_this<Continuations> {
 public:
  /// `depth`: of the operations.
  static std::shared_ptr<Continuations> make(size_t depth);

  /// Runs `next` once `operation` has ended, but not within `pause`.
  void add(std::shared_ptr<Operation> operation, std::function<void()> next,
           std::chrono::microseconds pause);

  /// Waits until they have run, at most until `end`. `check`: see Operation::wait. Not in one.
  void await_all(Clock::time_point end, void (*check)());
  /// Waits for the continuations of all jobs of the process.
  static void await_all_of_process(Clock::time_point end, void (*check)());

  /// The depth of operations that this thread starts.
  static size_t depth_of_thread();

 private:
  explicit Continuations(size_t depth) : depth_(depth) {}
  struct Entry {
    std::shared_ptr<Operation> operation;
    std::function<void()> next;
    Clock::time_point begin;
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
