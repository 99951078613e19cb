#include "switchd/jobs/tree.h"

#include <fmt/format.h>

namespace ina::switchd {

std::vector<uint32_t> runs_of(const RankSet& ranks) {
  std::vector<uint32_t> runs;
  for (const Rank rank : ranks) control::add_to_runs(runs, uint32_t{value(rank)});
  return runs;
}

Result<RankSet> ranks_of_runs(const std::vector<uint32_t>& runs, uint32_t workers) {
  RankSet ranks;
  for (size_t i = 0; i + 1 < runs.size(); i += 2) {
    if (runs[i] >= runs[i + 1] || runs[i + 1] > workers || (i != 0 && runs[i] < runs[i - 1])) break;
    for (uint32_t rank = runs[i]; rank < runs[i + 1]; ++rank)
      ranks.insert(Rank{static_cast<uint16_t>(rank)});
  }
  if (runs_of(ranks) == runs) return ranks;
  return fail(INA_ERR_INVALID, fmt::format("'ranks' are no runs of ranks below {}", workers));
}

}  // namespace ina::switchd
