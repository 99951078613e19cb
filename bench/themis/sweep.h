// The sweep of the Themis paper: one all-reduce of 18 sizes by each scheduler.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plans/themis/planner.h"

namespace ina::bench {

/// int(2^30 * s) bytes for s = 0.10, 0.15 ... 0.95.
std::vector<uint64_t> sweep_sizes();

/// The times of one all-reduce.
struct SweepPoint {
  uint64_t bytes = 0;
  themis::Picos ideal_ps = 0;
  themis::Picos base_ps = 0;
  themis::Picos fifo_ps = 0;  ///< Themis with FIFO within dimensions
  themis::Picos scf_ps = 0;   ///< and with the smallest chunk first
  themis::Picos search_ps = 0;
  // With the topology's switches aggregating. The baseline is the one above.
  themis::Picos ina_scf_ps = 0;
  themis::Picos ina_search_ps = 0;
};

SweepPoint measure(const themis::Topology& topology, uint64_t bytes, uint32_t evaluations);

/// The example of the paper's figure 5: 4 x 4, the first dimension twice as fast, 4 chunks. In
/// units of the time that one chunk's reduce-scatter takes in the first dimension.
struct Figure5 {
  double base = 0;
  double fifo = 0;
  double scf = 0;
};
Figure5 figure5();

}  // namespace ina::bench
