// The work of one rank of ina-perf.
#pragma once

#include "bench/perf/gather.h"
#include "bench/perf/options.h"

namespace ina::perf {

enum ExitCode : int {
  kExitOk = 0,
  kExitIncorrect = 1,  ///< a result was wrong
  kExitError = 2,      ///< something failed; no full set of results
};

/// Joins the job and measures all rows; rank 0 reports them. `area` null: `rank` is ignored, and
/// rank and world size come from the launcher. Throws std::runtime_error if something fails.
ExitCode run_rank(const Options& options, int rank, SharedArea* area);

}  // namespace ina::perf
