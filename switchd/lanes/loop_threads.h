// The threads of packet loops where DPDK, whose lcores run them otherwise, is not started.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "common/result.h"

namespace ina::switchd {

class LoopThreads {
 public:
  /// Runs each of `loops` in a thread of its own, which blocks all signals: all of them, or none.
  /// `cpus` as eal.cpus: each loop is bound to its own; if they are fewer than the loops, all loops
  /// share them; empty: the kernel places them.
  static Result<LoopThreads> start(std::vector<std::function<void()>> loops,
                                   const std::vector<uint32_t>& cpus);
  /// Returns when all loops have. To be called before the end of a successful start's result.
  void join();

 private:
  std::vector<std::thread> threads_;
};

}  // namespace ina::switchd
