// Forks of this process: a child must neither use its parent's memberships nor keep their sockets
// open.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "wire/types.h"

namespace ina::membership {

/// Has descriptors that a forked child closes.
class ForkAware {
 public:
  /// In the child, which has one thread: without locks.
  virtual void close_in_child() = 0;

 protected:
  ~ForkAware() = default;
};

/// From any thread.
class Forks {
 public:
  static Forks& instance();

  /// A fork waits until this is unlocked.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  void add(ForkAware& parent);
  void remove(ForkAware& parent);
  /// How often this process was forked: memberships of another generation are a parent's.
  uint32_t generation() const { return generation_.load(); }

 private:
  Forks() = default;
  void after_fork_in_child();

  std::mutex mutex_;
  std::vector<ForkAware*> parents_;  ///< under mutex_
  std::atomic<uint32_t> generation_{0};
};

}  // namespace ina::membership
