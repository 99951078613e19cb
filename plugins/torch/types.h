// PyTorch's data types and reductions as libina's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ina/ina.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ina::plugin {

/// The type that libina adds; throws for one that it cannot add.
ina_dtype summed_type(at::ScalarType type);

/// How a tensor's elements travel where nothing is computed: any type does. One element of the
/// tensor is `units` of libina's.
struct MovedType {
  ina_dtype dtype;
  size_t units;
};
MovedType moved_type(at::ScalarType type);

/// Throws for a reduction that libina does not have.
ina_op reduction(const c10d::ReduceOp& op);

}  // namespace ina::plugin
