#include "switchd/waiting.h"

#include <fmt/format.h>

#include "wire/text.h"

namespace ina::switchd {

using wire::ranks_text;
using wire::text_of;

namespace {

/// "; ranks 0 and 1 wait in ina_split for rank 2"; empty if nobody does.
std::string splitting_text(const Job& job) {
  const Bitmap asked = job.bits([](const Job::Worker& member) { return member.split.has_value(); });
  const Bitmap missing = full_bitmap(job.workers) & ~asked;
  if (asked == 0 || missing == 0) return {};
  return fmt::format("; {} called ina_split, {} did not", ranks_text(asked), ranks_text(missing));
}

}  // namespace

std::string missing_text(Bitmap ranks, bool fallback) {
  const std::string server = fallback ? "the fallback server (ina-psd)" : "";
  if (ranks == 0) return server;
  return ranks_text(ranks) + (fallback ? " and " : "") + server;
}

std::optional<aggregator::Waiting> Waiting::oldest_of(const Job& job) const {
  std::optional<aggregator::Waiting> oldest;
  for (const auto& command : lanes_.run(LaneCommand::Kind::kOldestWaiting,
                                        [&](LaneCommand&c, uint32_t) { c.job = job.index; }))
    if (command->waiting && (!oldest || command->waiting->seq < oldest->seq))
      oldest = command->waiting;
  return oldest;
}

std::string Waiting::text(Job& job) const {
  if (job.state == Job::State::kJoining) return "waiting for " + missing_text(job) + " to join";
  if (job.state == Job::State::kRejoining) return "the job " + rejoin_text(job);
  const std::string gone =
      rules_.has_fallback(job)
          ? ""
          : "; the fallback server (ina-psd) is gone and must be started again";
  const auto oldest = oldest_of(job);
  const std::string arrivals = splitting_text(job) + gone + dropped_.text(job);
  if (!oldest) return "the switch holds no incomplete fragment of the job" + arrivals;
  return fmt::format("fragment {} ({}) waits for {}", oldest->seq.value, text_of(oldest->signature),
                     ranks_text(oldest->missing)) +
         arrivals;
}

std::string Waiting::missing_text(const Job& job) const {
  return switchd::missing_text(full_bitmap(job.workers) & ~job.attached(),
                               !rules_.has_fallback(job));
}

std::string Waiting::rejoin_text(const Job& job) const {
  return "waits for " + missing_text(job) + " to come back after the switch was restarted";
}

}  // namespace ina::switchd
