// Threads for work that must not run on the library's thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace ina::plugin {

/// As many threads of the process as tasks run at once, which is one as a rule. While tasks wait
/// for others, as continuations of Python may, there are more, so that those others get done. A
/// thread without work ends after a while.
class Dispatcher {
 public:
  static Dispatcher& of_process();

  void run(std::function<void()> task);

 private:
  Dispatcher() = default;
  void start_thread();
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t threads_ = 0;
  size_t idle_ = 0;
  int process_ = 0;  ///< that has the threads: a fork has none
};

}  // namespace ina::plugin
