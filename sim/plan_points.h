// Points at which the planner's model is held against the simulation: networks and collectives,
// drawn by a seed.
#pragma once

#include <cstdint>
#include <string>

#include "sim/plan_run.h"

namespace ina::sim {

struct PointLimits {
  uint64_t least_bytes = uint64_t{64} << 10;
  uint64_t most_bytes = uint64_t{64} << 20;
  uint64_t most_work = uint64_t{1} << 32;  ///< bytes times ranks
};

/// Point `index` of a seed: 1 to 4 dimensions of 2 to 8 ranks of any rates and latencies, sizes
/// spread evenly over their logarithms, and a collective, chunks and a scheduler. Window, slots and
/// all else are PlanSpec's.
PlanSpec drawn_point(uint64_t seed, uint64_t index, const PointLimits& limits = {});

/// "all-to-all of 65536 bytes in 4 chunks by themis over 2x3: 40 Gb/s 1.5 us, ..."
std::string describe(const PlanSpec& spec);

}  // namespace ina::sim
