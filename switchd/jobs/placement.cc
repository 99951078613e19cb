#include "switchd/jobs/placement.h"

#include <fmt/format.h>

#include <utility>

#include "switchd/ports/port_kind.h"

namespace ina::switchd {

namespace answer = control::answer;

void Placement::place(Client& client, Job& job, Rank rank, Way way) {
  if (!client.carrier)
    if (const std::string text = crowded_text(job); !text.empty())
      return connections_.refuse_for_now(client, text);
  if (auto taken = take(client, job, rank, std::move(way)); !taken)
    connections_.refuse(client, taken.error());
}

Result<uint32_t> Placement::number_for(Job& job) {
  const uint32_t number = job.free_number();
  const auto domains = static_cast<uint32_t>(job.domains.size());
  const uint32_t needed = Job::domains_for(number + 1);
  if (domains >= needed) return number;
  const auto places = jobs_.free_places(needed - domains);
  if (!places) return tl::unexpected(places.error());
  if (auto grown = resources_.grow(job, *places); !grown) return tl::unexpected(grown.error());
  jobs_.note_domains(job);
  return number;
}

Result<void> Placement::take(Client& client, Job& job, Rank rank, Way way) {
  Job::Worker& worker = job.at(rank);
  answer::Joined reply{
      .place = common(job), .rules = rules_.rules_of(job), .instance = job.instance};
  if (job.home == Home::kTree) reply.member = value(job.lane_place(rank).member);
  if (job.grant.in_switch != 0) reply.help = answer::Help{job.grant.in_switch, job.grant.park_room};
  reply.place.library = INA_PROJECT_VERSION;
  const auto fds = give(job, rank, std::move(way), reply.place);
  if (!fds) return tl::unexpected(fds.error());
  worker.client = &client;
  client.account = job.owner();
  client.job = &job;
  client.rank = rank;
  client.state = Client::State::kJoined;
  if (!client.carrier) client.joined = job.id;
  connections_.send(client, reply, *fds);
  return {};
}

answer::Place Placement::common(const Job& job) const {
  return {.job_id = value(job.id),
          .job_key = job.key,
          .epoch = job.epoch,
          .window = job.grant.window,
          .slot_bytes = config_.aggregator.slot_bytes,
          .lanes = job.geometry.lanes};
}

Result<std::vector<int>> Placement::give(Job& job, Rank rank, Way way, answer::Place& place) {
  auto fds = way.kind->give(job, rank, way, place);
  if (fds) job.at(rank).way = std::move(way);
  return fds;
}

/// Why no more workers' connections are taken for the job's owner; empty if they are. A worker has
/// one, and may be slow to close that of a job that has ended.
std::string Placement::crowded_text(const Job& job) const {
  const uint64_t most = 2 * uint64_t{resources_.admission().quota(job.owner()).workers_max};
  const uint32_t open = connections_.count(
      [owner = job.owner()](const Client& client) { return client.account == owner; });
  if (most == 0 || open < most) return {};
  return fmt::format(
      "tenant '{}' has {} connections open, twice as many as it may have workers "
      "(tenants: workers_max); close those whose jobs have ended",
      job.owner(), open);
}

}  // namespace ina::switchd
