// Tensors in memory that the switch reads where it lies.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "plugins/torch/job.h"

namespace ina::plugin {

/// Moves the storage of a dense tensor on the CPU to registered memory (ina_register) of `job`. All
/// tensors that share it move with it; pointers into the old memory do not. It is given back with
/// the storage, and outlives the job. False: it lies in registered memory already. Throws
/// ina::Exception where the library or the switch takes no more of it, or the system has no memory;
/// the tensor is as before then.
bool move_to_registered(const std::shared_ptr<Job>& job, const at::Tensor& tensor);

}  // namespace ina::plugin
