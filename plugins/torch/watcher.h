// Time-outs of operations for which no thread waits.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "plugins/torch/operation.h"

namespace ina::plugin {

/// One thread of the process, from the first operation on that somebody has a future of: a future
/// waits for ever. It sleeps until the first deadline, and ends with the last process group.
class Watcher {
 public:
  static Watcher& of_process();

  /// Gives the job up when `operation` has not ended by then.
  void watch(Clock::time_point deadline, const std::shared_ptr<Operation>& operation);

 private:
  Watcher();
  void start_thread();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::weak_ptr<Operation>> watched_;
  size_t prune_at_ = 64;  ///< entries with which those of ended operations are removed
  int process_ = 0;       ///< that has the thread: a fork has none
};

}  // namespace ina::plugin
