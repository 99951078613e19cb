// What differs between the versions of PyTorch for which the backend can be compiled: 1.13 and 2.x.
#pragma once

#include <chrono>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace ina::plugin {

#if TORCH_VERSION_MAJOR >= 2
using PyTorchGroup = c10d::Backend;
#else
using PyTorchGroup = c10d::ProcessGroup;  // 1.13 has Backend too, but takes no plugin that is one
#endif

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The base class of the process group. Its functions are PyTorch's virtual functions that some
/// versions lack: they override PyTorch's where there are such, so none can be marked `override`.
class GroupBase : public PyTorchGroup {
 public:
  using PyTorchGroup::PyTorchGroup;
  ~GroupBase() override;

  virtual WorkPtr allreduce_sparse(std::vector<at::Tensor>& tensors,
                                   const c10d::AllreduceOptions& options) = 0;
  virtual WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                  std::vector<at::Tensor>& inputs,
                                                  const c10d::AllgatherOptions& options) = 0;
  virtual WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                  std::vector<at::Tensor>& inputs,
                                                  const c10d::ReduceScatterOptions& options) = 0;
  virtual void setTimeout(std::chrono::milliseconds timeout) = 0;
  virtual void shutdown() = 0;
  virtual void abort() = 0;

  /// Operations between these two calls are one for the caller, with the Work of end_together().
  virtual void begin_together() = 0;
  virtual WorkPtr end_together() = 0;

#if TORCH_VERSION_MAJOR >= 2
  // 1.13 collects the Works itself.
  void startCoalescing() final {
    begin_together();
  }
  WorkPtr endCoalescing() final {
    return end_together();
  }
#endif
};

}  // namespace ina::plugin
