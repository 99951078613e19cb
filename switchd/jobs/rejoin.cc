#include "switchd/jobs/rejoin.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/logging/record.h"

namespace ina::switchd {

namespace request = control::request;

std::vector<Seq> fragments_of(const std::vector<uint64_t>& held) {
  std::vector<Seq> fragments;
  for (size_t i = 0; i + 1 < held.size(); i += 2)
    for (uint64_t seq = held[i]; seq < held[i + 1]; ++seq) fragments.push_back({seq});
  return fragments;
}

bool are_held(const request::Rejoin& message, uint32_t window) {
  const std::vector<uint64_t>& held = message.held;
  if (held.empty()) return true;
  // A switch may have results of two windows.
  return held.size() % 2 == 0 &&
         std::ranges::adjacent_find(held, std::ranges::greater_equal{}) == held.end() &&
         held.back() <= message.results_end &&
         message.results_end - held.front() <= 2 * uint64_t{window};
}

void Rejoin::on_rejoin(Client& client, const request::Rejoin& message) {
  if (client.state != Client::State::kNew)
    return connections_.refuse(client, INA_ERR_INVALID, "this connection has joined already");
  const request::Member& member = message.member;
  if (!identification_.check_version(client, member)) return;
  const std::string& name = member.job;
  Job* job = jobs_.find(JobId{message.job_id});
  if (!job || job->is_group() || job->name != name)
    return connections_.refuse(client, INA_ERR_SWITCH_LOST, lost_text(message));
  if (const std::string text =
          Identification::foreign_text(client, *job, member.owner.value_or(""));
      !text.empty())
    return connections_.refuse(client, INA_ERR_REFUSED, text);
  come_back(client, *job, message);
}

/// Why there is no such job.
std::string Rejoin::lost_text(const request::Rejoin& message) const {
  const std::string& name = message.member.job;
  for (const LostJob& lost : lost_)
    if (lost.id == JobId{message.job_id} && lost.key == message.job_key)
      return fmt::format(
          "the switch was restarted with another configuration, and cannot go on with job '{}' (id "
          "{}): {}",
          name, message.job_id, lost.why);
  return fmt::format(
      "the switch was restarted and does not know job '{}' (id {}) any more, or the job has ended",
      name, message.job_id);
}

void Rejoin::come_back(Client& client, Job& job, const request::Rejoin& message) {
  auto way = ports_.choose(client.peer, message.member.reach);
  if (!way) return connections_.refuse(client, way.error());
  if (auto checked = check(job, message); !checked)
    return connections_.refuse(client, checked.error());
  const Rank rank{static_cast<uint16_t>(message.member.rank)};
  replace(job, rank);
  job.start = std::max(job.start, Seq{message.results_end});
  job.buffers_shared = std::max(job.buffers_shared, message.buffers_shared);
  job.splits = std::max(job.splits, message.splits);
  logging::info("worker re-joins", client.source())("job", job.name)("id", value(job.id))(
      "rank", value(rank))("peer", client.peer.text())("low", message.low)("next", message.next)(
      "results_end", message.results_end);
  placement_.place(client, job, rank, std::move(*way));
  if (job.home != Home::kTree) return;
  Job::Worker& worker = job.at(rank);
  worker.results_end = Seq{message.results_end};
  worker.held = fragments_of(message.held);
}

/// Checks that the worker may be the one that it claims to be.
Result<void> Rejoin::check(const Job& job, const request::Rejoin& message) {
  const request::Member& member = message.member;
  if (message.job_key != job.key)
    return fail(INA_ERR_REFUSED, fmt::format("this is not the key of job '{}'", job.name));
  if (member.world_size != job.workers || member.rank < 0 || member.rank >= job.workers)
    return fail(INA_ERR_INVALID,
                fmt::format("job '{}' has {} workers, not one of rank {} of {}", job.name,
                            job.workers, member.rank, member.world_size));
  if (message.low > message.next || message.next - message.low > job.grant.window ||
      message.results_end > message.next)
    return fail(INA_ERR_INVALID,
                fmt::format("rank {} of job '{}' cannot stand at fragments {}..{} with results "
                            "before {}: its window is {}",
                            member.rank, job.name, message.low, message.next, message.results_end,
                            job.grant.window));
  if (!are_held(message, job.grant.window))
    return fail(INA_ERR_INVALID,
                fmt::format("rank {} of job '{}' cannot have the results that it says it has: "
                            "these are no runs of fragments of the window before {}",
                            member.rank, job.name, message.results_end));
  if (job.state != Job::State::kRejoining)
    return fail(INA_ERR_RANK_TAKEN, fmt::format("job '{}' waits for nobody to re-join", job.name));
  return {};
}

/// A worker that holds the key starts over: its old connection, if it has one, is about to be
/// closed.
void Rejoin::replace(Job& job, Rank rank) {
  Client* const before = job.at(rank).client;
  if (!before) return;
  ending_.leave(*before);
  connections_.close_later(*before);
  resources_.drop_worker(job, rank);
}

void Rejoin::end_overdue(Nanos now) {
  for (Job& job : jobs_) {
    if (job.state != Job::State::kRejoining || now < job.rejoin_deadline) continue;
    ending_.end(job, INA_ERR_PEER_LOST,
                fmt::format("{} of job '{}' did not come back within {} s after the switch was "
                            "restarted (control.rejoin_timeout)",
                            wait_reasons_.missing_text(job), job.name,
                            static_cast<double>(config_.rejoin_timeout_ns) * 1e-9));
  }
}

Nanos Rejoin::next_overdue(Nanos until) const {
  for (const Job& job : jobs_)
    if (job.state == Job::State::kRejoining) until = std::min(until, job.rejoin_deadline);
  return until;
}

}  // namespace ina::switchd
