// Redistributions (plans/redistribution/) among the operations of a job: random layouts on a
// mesh of its workers, by any method, within any limit of memory, as the Schedules that libina
// runs.
#pragma once

#include <random>

#include "plans/redistribution/execution.h"
#include "sim/faults/operation.h"

namespace ina::sim {

/// Each rank's buffer has exactly plan.peak_bytes() bytes, with some before and after it that
/// nothing may write to. An element's bytes follow from its place in the whole array.
PlannedOperation draw_redistribution(std::mt19937_64& random, const OperationLimits& limits);

/// Where the bytes of the plan begin in a rank's buffer.
std::byte* redistributed(std::vector<std::byte>& buffer);

/// The error in a rank's buffer after the redistribution.
std::optional<std::string> wrong_redistribution(const PlannedOperation& plan, uint32_t rank,
                                                const std::vector<std::byte>& got);

/// How a rank's part breaks the plan's promise of memory; nothing if it keeps it. All stages must
/// lie within peak_bytes(), which are within the problem's limit; besides there is room for the
/// hashes of all ranks.
std::optional<std::string> beyond_memory(const redistribution::Execution& execution);

}  // namespace ina::sim
