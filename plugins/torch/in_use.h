// The memory that a group's running operations read and write.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugins/torch/operation.h"

namespace ina::plugin {

/// What one operation reads and writes.
struct Uses {
  std::vector<at::Tensor> reads, writes;
};

/// An operation that is started while another one still uses its memory would read what that one
/// has not written yet, because several run at once and copy tensors when they like. So it waits.
/// Any thread may use it.
class InUse {
 public:
  /// Waits until `uses` disturb no running operation. `check`: see Operation::wait.
  void await(const Uses& uses, void (*check)());
  void add(const Uses& uses, const std::shared_ptr<Operation>& operation);

 private:
  struct Range {
    uintptr_t begin, end;
    bool written;
    std::weak_ptr<Operation> operation;
  };
  std::shared_ptr<Operation> find_conflict(const at::Tensor& tensor, bool writes);
  void add(const at::Tensor& tensor, bool written, const std::shared_ptr<Operation>& operation);
  void prune();

  std::mutex mutex_;
  std::unordered_multimap<const void*, Range>
      ranges_;  ///< by storage; of some that have ended, too
  size_t prune_at_ = 64;
};

}  // namespace ina::plugin
