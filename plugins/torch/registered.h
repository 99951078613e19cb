// Tensors in memory that the switch reads or writes where it lies.
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

/// A tensor in a result buffer (ina_alloc_result) of `job`, of the type and number of elements of
/// `like`, in one dimension. All ranks call it. READ-ONLY, and only until the job is left. Throws
/// ina::Exception.
at::Tensor make_result(const std::shared_ptr<Job>& job, const at::Tensor& like);

}  // namespace ina::plugin
