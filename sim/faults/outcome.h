// The outcome of a scenario.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/types.h"

namespace ina::sim {

struct Outcome {
  /// Violations, by invariant; empty: none.
  std::vector<std::string> violations;
  uint64_t fragments = 0;
  uint64_t fallback_fragments = 0;  ///< decided by the fallback
  uint64_t contributions = 0;
  uint64_t resent = 0;     ///< of these, again
  uint64_t raws = 0;       ///< contributions sent to the fallback again
  uint64_t reminders = 0;  ///< REMINDs sent
  uint64_t queries = 0;
  uint64_t packets = 0;
  uint64_t dropped = 0;
  uint64_t preemptions = 0;
  uint64_t ascents = 0;          ///< contributions of domains to the switch above
  uint64_t redistributions = 0;  ///< that a worker of rank 0 has completed
  uint64_t reproducible = 0;     ///< reductions of floats that a worker of rank 0 has completed
  uint64_t hierarchical = 0;     ///< groups of collectives by Themis's plans, likewise
  uint64_t groups = 0;           ///< sums of several contributions in one pass
  uint64_t grouped = 0;          ///< contributions in them
  uint64_t parked = 0;
  uint64_t parker_results = 0;  ///< fragments completed by a worker that kept them
  uint64_t restarts = 0;
  uint64_t zombies = 0;   ///< slots held at the end by fragments that everyone has
  Nanos finished_at = 0;  ///< when the last worker had its last result
};

}  // namespace ina::sim
