// A barrier that names the ranks that do not come.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ina::plugin {

/// Waits for a key until `end`, while other threads may use the store. False: it has not come.
/// `check`: see Operation::wait.
bool await_key(c10d::Store& store, const std::string& key,
               std::chrono::steady_clock::time_point end, void (*check)());

/// torch.distributed.monitored_barrier: over the store, so that a failure leaves the group as it
/// is. Rank 0 looks for all ranks in order, and tells the others whether it has found them.
class MonitoredBarrier {
 public:
  /// `number`: how many this rank has passed in its group before.
  MonitoredBarrier(c10d::Store& store, uint64_t number, int rank, int size);

  /// Throws std::runtime_error, with Gloo's texts, when `timeout` has passed. `wait_all_ranks`:
  /// rank 0 names all that are missing, not the first alone. `check`: see Operation::wait.
  void pass(std::chrono::milliseconds timeout, bool wait_all_ranks, void (*check)());

 private:
  std::string key(const std::string& what) const;
  void lead(std::chrono::milliseconds timeout, bool wait_all_ranks, void (*check)());
  void follow(std::chrono::milliseconds timeout, void (*check)());

  c10d::Store& store_;
  const uint64_t number_;
  const int rank_, size_;
};

}  // namespace ina::plugin
