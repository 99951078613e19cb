#include "switchd/jobs/wait_reasons.h"

#include "wire/text.h"

namespace ina::switchd {

using wire::ranks_text;

std::string missing_text(WorkerSet ranks, bool fallback) {
  const std::string server = fallback ? "the fallback server (ina-psd)" : "";
  if (ranks.empty()) return server;
  return ranks_text(ranks) + (fallback ? " and " : "") + server;
}

std::optional<aggregator::OldestWaiting> WaitReasons::oldest_of(const Job& job) const {
  std::optional<aggregator::OldestWaiting> oldest;
  for (const auto& command : lanes_.run(command::FindOldestWaiting{job.index}))
    if (command.waiting && (!oldest || command.waiting->seq < oldest->seq))
      oldest = command.waiting;
  return oldest;
}

std::string WaitReasons::text(const Job& job) const {
  if (job.state == Job::State::kJoining) return "waiting for " + missing_text(job) + " to join";
  return "the job " + rejoin_text(job);
}

std::string WaitReasons::missing_text(const Job& job) const {
  return switchd::missing_text(job.missing(), !rules_.has_fallback(job));
}

std::string WaitReasons::rejoin_text(const Job& job) const {
  return "waits for " + missing_text(job) + " to come back after the switch was restarted";
}

}  // namespace ina::switchd
