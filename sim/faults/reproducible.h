// Reproducible reductions of floats (operations/reproducible.h, operations/rank_order.h) as
// operations of the fault simulator, and the bits that each result must have on every path.
#pragma once

#include <random>

#include "sim/faults/operation.h"

namespace ina::sim {

/// All-reduces, reduces and reduce-scatters of each float and operation, with counts of zero,
/// places in place, and some values that are not finite.
PlannedOperation draw_reproducible(std::mt19937_64& random, const OperationLimits& limits);

/// The error in a rank's buffer after the operation.
std::optional<std::string> wrong_reproducible(const PlannedOperation& plan, uint32_t rank,
                                              const std::vector<std::byte>& got);

}  // namespace ina::sim
