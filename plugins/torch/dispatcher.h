// Threads for work that must not run on the library's thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace ina::plugin {

/// As many threads of the process as tasks run at once, which is one as a rule. A thread without
/// work ends after a while, or with the last process group.
class Dispatcher {
 public:
  /// For copies of results, which wait for nothing.
  static Dispatcher& for_deliveries();
  /// For the program's continuations. They may wait for one another, so there is no limit on the
  /// number of threads.
  static Dispatcher& for_continuations();

  void run(std::function<void()> task);

 private:
  explicit Dispatcher(size_t most_threads);
  void start_thread();
  void work();

  const size_t most_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t threads_ = 0;
  size_t idle_ = 0;
  int process_ = 0;  ///< that has the threads: a fork has none
};

}  // namespace ina::plugin
