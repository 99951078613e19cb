// The methods of other systems, as plans of the same type, for comparison.
#pragma once

#include <vector>

#include "plans/redistribution/plan.h"

namespace ina::redistribution {

/// Gathers the whole array, then slices: PyTorch's CPU path, for one.
std::vector<StepChoice> gather_slice_steps(const Problem& problem);

/// The order of XLA's SPMD partitioner. An all-permute if the tiles have the same shape;
/// all-to-alls if the dimensions only exchange their cuts. Slices if every dimension is cut
/// further; all-gathers if every one is cut less; an all-permute beside each of these where the
/// axes lie otherwise. When no pattern fits, the array is replicated and sliced.
std::vector<StepChoice> xla_order_steps(const Problem& problem);

}  // namespace ina::redistribution
