// The cause for which a job waits, put into words for its workers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aggregator/aggregator.h"
#include "switchd/jobs/job.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

inline std::vector<uint32_t> ranks_of(WorkerSet workers) {
  std::vector<uint32_t> ranks;
  for (const Rank rank : workers) ranks.push_back(value(rank));
  return ranks;
}

/// "ranks 1, 2 and the fallback server (ina-psd)"
std::string missing_text(WorkerSet ranks, bool fallback);

class WaitReasons {
 public:
  /// All of them must outlive it.
  WaitReasons(const JobRules& rules, Lanes& lanes) : rules_(rules), lanes_(lanes) {}

  /// The oldest fragment that the switch holds and that is not complete.
  std::optional<aggregator::OldestWaiting> oldest_of(const Job& job) const;
  /// The wait of a job that gathers, or comes back after a restart. Others: StatusReport::why().
  std::string text(const Job& job) const;
  /// The workers that have not joined, or come back, yet.
  std::string missing_text(const Job& job) const;
  /// The wait of a job in kRejoining, without its name.
  std::string rejoin_text(const Job& job) const;

 private:
  const JobRules& rules_;
  Lanes& lanes_;
};

}  // namespace ina::switchd
