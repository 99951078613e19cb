// Copies of fragments between the user's buffers and shared memory. Several threads (oneTBB) make
// large copies if there are cores for them; otherwise the caller does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "fragments/engine.h"

namespace ina::client {

class BulkCopier {
 public:
  /// `threads`: 1 copies in the caller; 0 takes what the process's CPU set leaves for each of
  /// `local_ranks` workers beside a switch of one packet loop on this host. `cpus`: in that set; 0:
  /// it is looked at.
  BulkCopier(int threads, uint32_t local_ranks, int cpus = 0);
  ~BulkCopier();
  BulkCopier(const BulkCopier&) = delete;
  BulkCopier& operator=(const BulkCopier&) = delete;

  /// Leaves a core for each of the switch's packet loops. Not while copy() runs.
  void leave_cores_to(uint32_t lanes);

  /// Complete when it returns.
  void copy(std::span<const CopyJob> jobs);
  int threads() const { return threads_; }

 private:
  struct Arena;
  int threads_beside(uint32_t lanes) const;
  void set_threads(int threads);

  bool chooses_ = false;  ///< the number of threads
  uint32_t local_ranks_;
  int cpus_;
  int threads_ = 0;
  std::unique_ptr<Arena> arena_;
};

}  // namespace ina::client
