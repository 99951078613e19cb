// The cause for which a job waits, put into words for its workers.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/aggregator.h"
#include "switchd/jobs/job.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

std::vector<uint32_t> ranks_of(const RankSet& workers);

/// A fragment that is not complete.
struct Awaited {
  Seq seq;
  RankSet missing;                           ///< workers without a contribution
  std::optional<wire::Signature> signature;  ///< nothing: it has left the slots
};
/// The oldest of a job's fragments that wait in its domains.
class OldestAwaited {
 public:
  explicit OldestAwaited(const Job& job) : job_(job) {}
  void add(aggregator::JobIndex domain, const std::optional<aggregator::OldestWaiting>& waiting);
  std::optional<Awaited> get() const;

 private:
  const Job& job_;
  std::vector<std::pair<aggregator::JobIndex, aggregator::OldestWaiting>> oldest_;
};

/// "ranks 1, 2 and the fallback server (ina-psd)"
std::string missing_text(const RankSet& ranks, bool fallback);

class WaitReasons {
 public:
  /// All of them must outlive it.
  WaitReasons(const JobRules& rules, Lanes& lanes) : rules_(rules), lanes_(lanes) {}

  /// The oldest fragment that the switch holds and that is not complete.
  std::optional<Awaited> oldest_of(const Job& job) const;
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
