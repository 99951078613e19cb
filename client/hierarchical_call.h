// A hierarchical collective as its caller asks for it, and whether it may.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"
#include "plans/themis/planner.h"
#include "wire/types.h"

namespace ina::client {

/// A hierarchical collective as its caller asks for it.
struct HierarchicalCall {
  std::string_view function;  ///< that was called
  themis::Collective collective{};
  const void* send = nullptr;
  void* recv = nullptr;
  /// Elements: of the vector (all-reduce), or of each rank's block.
  uint64_t count = 0;
  int dtype_number = 0;
  int op_number = 0;  ///< of sums
};

/// The collective of one dimension that does the same.
Collective flat(themis::Collective collective);

/// Arguments as the collective of one dimension would check them (collective_call.h). Returns data
/// type and operation.
struct CheckedTypes {
  DType dtype{};
  Op op{};
};
Result<CheckedTypes> check(const HierarchicalCall& call, uint32_t ranks, uint32_t rank,
                           bool reproducible);

}  // namespace ina::client
