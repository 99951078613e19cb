#include "switchd/jobs/wait_reasons.h"

#include "wire/text.h"

namespace ina::switchd {

using wire::ranks_text;

std::vector<uint32_t> ranks_of(const RankSet& workers) {
  std::vector<uint32_t> ranks;
  for (const Rank rank : workers) ranks.push_back(value(rank));
  return ranks;
}

void OldestAwaited::add(aggregator::JobIndex domain,
                        const std::optional<aggregator::OldestWaiting>& waiting) {
  if (!waiting) return;
  if (!oldest_.empty() && waiting->seq > oldest_.front().second.seq) return;
  if (!oldest_.empty() && waiting->seq < oldest_.front().second.seq) oldest_.clear();
  oldest_.emplace_back(domain, *waiting);
}

std::optional<Awaited> OldestAwaited::get() const {
  if (oldest_.empty()) return std::nullopt;
  Awaited awaited{.seq = oldest_.front().second.seq, .missing = {}, .signature = {}};
  const bool wide = job_.is_wide();
  // The root lacks whole domains: of those that say more, it is the workers that they lack.
  RankSet told;
  for (const auto& [domain, waiting] : oldest_) {
    if (waiting.signature) awaited.signature = waiting.signature;
    if (wide && domain == job_.root_domain().index) continue;
    awaited.missing |= job_.ranks_of(domain, waiting.missing);
    for (const Domain& one : job_.domains)
      if (one.index == domain) told |= job_.ranks_of(domain, WorkerSet::first(one.members));
  }
  for (const auto& [domain, waiting] : oldest_)
    if (wide && domain == job_.root_domain().index)
      awaited.missing |= job_.ranks_of(domain, waiting.missing) - told;
  return awaited;
}

std::string missing_text(const RankSet& ranks, bool fallback) {
  const std::string server = fallback ? "the fallback server (ina-psd)" : "";
  if (ranks.empty()) return server;
  return ranks_text(ranks) + (fallback ? " and " : "") + server;
}

std::optional<Awaited> WaitReasons::oldest_of(const Job& job) const {
  OldestAwaited oldest(job);
  for (const Domain& domain : job.domains)
    for (const auto& command : lanes_.run(command::FindOldestWaiting{domain.index}))
      oldest.add(domain.index, command.waiting);
  return oldest.get();
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
