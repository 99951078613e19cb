#include "switchd/jobs/joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "switchd/jobs/job_name.h"
#include "wire/text.h"

namespace ina::switchd {

namespace request = control::request;

Result<void> check(const request::Member& member) {
  if (const std::string problem = job_name_problem(member.job); !problem.empty())
    return fail(INA_ERR_INVALID, problem);
  if (member.world_size < 1 || member.world_size > kMaxRanks)
    return fail(INA_ERR_REFUSED,
                fmt::format("world size {} is not in 1..{}", member.world_size, kMaxRanks));
  if (member.rank < 0 || member.rank >= member.world_size)
    return fail(INA_ERR_INVALID,
                fmt::format("rank {} is not in 0..{}", member.rank, member.world_size - 1));
  return {};
}

std::string difference(const Job& job, const request::Join& join) {
  if (job.members_present().empty()) return {};
  std::string text;
  for (const auto& [name, value] : join.settings)
    if (const auto known = job.settings.find(name);
        known != job.settings.end() && known->second != value)
      text += fmt::format("{}has {}={}, {} joined with {}", text.empty() ? "" : "; it ", name,
                          value, wire::ranks_text(job.members_present()), known->second);
  return text;
}

namespace {

/// True if a worker of the job has closed its connection, and the switch has not noticed yet.
bool has_lost_workers(const Job& job) {
  const auto has_closed = [](const auto& member) {
    return member.client && member.client->line().connection.peer_has_closed();
  };
  return std::ranges::any_of(job.members, has_closed);
}

}  // namespace

void Joining::on_join(Client& client, const request::Join& join) {
  if (client.state != Client::State::kNew)
    return connections_.refuse(client, INA_ERR_INVALID, "this connection has joined already");
  const request::Member& member = join.member;
  if (!identification_.check_version(client, member)) return;
  if (auto checked = check(member); !checked) return connections_.refuse(client, checked.error());
  auto way = ports_.choose(client.peer, member.reach);
  if (!way) return connections_.refuse(client, way.error());
  const auto found = find_or_admit(client, join);
  if (!found) {
    refuse(client, member.owner.value_or(client.owner()), found.error());
    return;
  }
  Job& job = **found;
  if (job.state == Job::State::kRejoining)
    return connections_.refuse(
        client, INA_ERR_REFUSED,
        fmt::format("job '{}' {}; join under another name, or once it has ended", job.name,
                    wait_reasons_.rejoin_text(job)));
  if (auto free = check_free(client, job, join); !free) {
    const bool for_good = refuse(client, job.owner(), free.error());
    // While the job gathers, nobody can tell which of the two is right; a running job goes on, and
    // so does one of which an administrator said how it is.
    if (for_good && job.state == Job::State::kJoining && job.reserved_until == 0)
      ending_.end(job, free.error().status, free.error().text);
    return;
  }
  if (job.members_present().empty()) job.settings = join.settings;
  const Rank rank{static_cast<uint16_t>(member.rank)};
  if (job.spread) {
    const auto number = placement_.number_for(job);
    if (!number) return connections_.refuse(client, number.error());
    job.at(rank).number = *number;
  }
  placement_.place(client, job, rank, std::move(*way));
}

/// Refuses a worker that wants to join a job of `owner`. True: for good. A job of which a worker
/// has just gone will change, or end, and then there may be the place or the quota that is missing.
bool Joining::refuse(Client& client, const std::string& owner, const Error& error) {
  const auto changes = [&](const Job& job) {
    return job.owner() == owner && has_lost_workers(job);
  };
  if (jobs_.count(changes) != 0) {
    connections_.refuse_for_now(client, error.text);
    return false;
  }
  connections_.refuse(client, error);
  return true;
}

/// The job that a `join` means; a new one if there is none.
Result<Job*> Joining::find_or_admit(const Client& client, const request::Join& join) {
  const std::string& name = join.member.job;
  const std::string own = client.owner();
  if (client.ticket) {
    Job* job = jobs_.find(*client.ticket);
    if (job && job->name == name) return job;
    return fail(INA_ERR_REFUSED,
                fmt::format("the ticket is for another job than '{}' (INA_JOB)", name));
  }
  const std::string owner = join.member.owner.value_or(own);
  const bool others = owner != own;
  if (others && (client.peer.remote || client.peer.uid != 0))
    return fail(
        INA_ERR_REFUSED,
        fmt::format("this is a worker of {}: it may join a job of {} only with the job's ticket "
                    "(INA_TICKET), not by naming its owner (INA_JOB_OWNER)",
                    own, owner));
  if (Job* job = jobs_.find(owner, name)) return job;
  if (others)
    return fail(
        INA_ERR_REFUSED,
        fmt::format("there is no job '{}' of {} (INA_JOB_OWNER); in another's name none is made",
                    name, owner));
  return admit(client, join);
}

Result<Job*> Joining::admit(const Client& client, const request::Join& join) {
  SavedJob fresh = records_.new_job(join.member.job, static_cast<uint32_t>(join.member.world_size));
  fresh.uid = client.peer.uid;
  fresh.tenant = client.tenant;
  auto job = maker_.admit(fresh, {}, join.window_bytes.value_or(0), client.peer.text());
  if (job) offers_.offer();
  return job;
}

/// Checks that the job is as the worker says, and that its place in it is free.
Result<void> Joining::check_free(const Client& client, const Job& job, const request::Join& join) {
  const request::Member& member = join.member;
  if (job.workers != member.world_size)
    return fail(INA_ERR_MISMATCH,
                fmt::format("world sizes of job '{}' differ: rank {} ({}) says {}, {} joined with "
                            "{}",
                            job.name, member.rank, client.peer.text(), member.world_size,
                            wire::ranks_text(job.members_present()), job.workers));
  const Client* const holder = job.members[static_cast<size_t>(member.rank)].client;
  if (holder || job.state != Job::State::kJoining)
    return fail(
        INA_ERR_RANK_TAKEN,
        fmt::format("rank {} of job '{}' was joined {} and now again by {}", member.rank, job.name,
                    holder ? "by " + holder->peer.text() : "earlier", client.peer.text()));
  if (const std::string differs = difference(job, join); !differs.empty())
    return fail(INA_ERR_MISMATCH, fmt::format("settings of job '{}' differ: rank {} ({}) {}",
                                              job.name, member.rank, client.peer.text(), differs));
  return {};
}

}  // namespace ina::switchd
