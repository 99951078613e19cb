#include "switchd/jobs/switches_below.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/tokens.h"
#include "switchd/jobs/joining.h"
#include "switchd/jobs/rejoin.h"
#include "switchd/random.h"
#include "wire/text.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

namespace {

/// True if the worker is at the switch, or below it.
bool is_below(const Client& client, uint32_t rank) {
  return rank < client.job->workers &&
         client.job->below_at(client.rank)->ranks.contains(Rank{static_cast<uint16_t>(rank)});
}

}  // namespace

/// A switch below joins for its workers.
void SwitchesBelow::on_join(Client& client, const request::Join& join) {
  if (client.state != Client::State::kNew)
    return connections_.refuse(client, INA_ERR_INVALID, "this connection has joined already");
  if (!identification_.check_version(client, join.member)) return;
  auto taken = take(client, join);
  if (!taken) connections_.refuse(client, taken.error());
}

Result<void> SwitchesBelow::take(Client& client, const request::Join& join) {
  const request::Member& member = join.member;
  if (!config_.is_switch_below(client.owner()))
    return fail(INA_ERR_REFUSED, fmt::format("{} is none of the switches that may join here "
                                             "(control.switches_below of this switch)",
                                             client.owner()));
  if (auto checked = check(member); !checked) return checked;
  const auto workers = static_cast<uint32_t>(member.world_size);
  auto ranks = ranks_of_runs(join.ranks, workers);
  if (!ranks) return tl::unexpected(ranks.error());
  auto way = way_of(client.peer, member.reach);
  if (!way) return tl::unexpected(way.error());
  const auto found = find_or_admit(member.owner.value_or(client.owner()), client, join);
  if (!found) return tl::unexpected(found.error());
  Job& job = **found;
  if (auto free = check_free(client, job, join, *ranks); !free) return free;
  if (job.members_present().empty()) job.settings = join.settings;
  return add(client, job, *ranks, std::move(*way));
}

/// Its frames come from its port, wherever its control connection comes from.
Result<Way> SwitchesBelow::way_of(const control::PeerCredentials& peer,
                                  const request::Reach& reach) {
  control::PeerCredentials at_port = peer;
  if (reach.frame) at_port.ip = reach.frame->address.ip;
  auto way = ports_.choose(at_port, reach);
  if (way && !way->frames())
    return fail(INA_ERR_UNSUPPORTED, "a switch below is reached by an Ethernet port");
  return way;
}

/// Gives the switch a place as one more member.
Result<void> SwitchesBelow::add(Client& client, Job& job, const RankSet& ranks, Way way) {
  const auto number = placement_.number_for(job);
  if (!number) return tl::unexpected(number.error());
  const Rank place = Job::place_below(job.below.size());
  job.below.push_back(std::make_unique<Job::Below>());
  job.below.back()->key = random_u64();
  job.below.back()->place.number = *number;
  if (auto taken = placement_.take(client, job, place, std::move(way)); !taken) {
    job.below.pop_back();
    return taken;
  }
  client.role = Client::Role::kSwitch;
  job.set_below(*job.below.back(), ranks);
  return {};
}

void SwitchesBelow::on_join_group(Client& line, uint32_t channel, const request::Join& join) {
  Client& place = group_places_.make(line, channel);
  if (const Error* const why = ending_.why_ended(JobId{channel}, line.joined))
    return connections_.refuse(place, *why);
  Job* const group = jobs_.find(JobId{channel});
  if (!group || !line.job || group->root != line.joined || place.job ||
      line.role != Client::Role::kSwitch)
    return connections_.refuse(
        place, INA_ERR_REFUSED,
        fmt::format("there is no group {} that this switch may join", channel));
  if (auto taken = take_in_group(line, place, *group, join); !taken) {
    connections_.refuse(place, taken.error());
    ending_.end(*group, taken.error().status, taken.error().text);
  }
}

Result<void> SwitchesBelow::take_in_group(Client& line, Client& place, Job& group,
                                          const request::Join& join) {
  auto ranks = ranks_of_runs(join.ranks, group.workers);
  if (!ranks) return tl::unexpected(ranks.error());
  const RankSet& own = line.job->below_at(line.rank)->ranks;
  for (const Rank rank : *ranks)
    if (!own.contains(Rank{static_cast<uint16_t>(group.root_ranks[value(rank)])}))
      return fail(INA_ERR_INVALID, "a switch below joins a group for others' workers");
  if (!group.spread || group.state != Job::State::kJoining ||
      !(*ranks & group.members_present()).empty())
    return fail(INA_ERR_REFUSED, fmt::format("group '{}' has no place for {}", group.name,
                                             wire::ranks_text(*ranks)));
  auto way = way_of(line.peer, join.member.reach);
  if (!way) return tl::unexpected(way.error());
  return add(place, group, *ranks, std::move(*way));
}

void SwitchesBelow::on_rejoin_group(Client& line, uint32_t channel,
                                    const request::Rejoin& message) {
  Client& place = group_places_.make(line, channel);
  if (auto back = come_back(place, message); !back) connections_.refuse(place, back.error());
}

/// The job of that owner; a new one if there is none.
Result<Job*> SwitchesBelow::find_or_admit(const std::string& owner, const Client& client,
                                          const request::Join& join) {
  if (Job* job = jobs_.find(owner, join.member.job)) return job;
  SavedJob fresh = records_.new_job(join.member.job, static_cast<uint32_t>(join.member.world_size));
  const auto uid = control::uid_of(owner);
  fresh.uid = uid.value_or(static_cast<uid_t>(-1));
  if (!uid) {
    if (const std::string problem = control::tenant_problem(owner); !problem.empty())
      return fail(INA_ERR_INVALID, "owner: " + problem);
    fresh.tenant = owner;
  }
  return maker_.admit(fresh, {}, join.window_bytes.value_or(0), client.who());
}

Result<void> SwitchesBelow::check_free(const Client& client, const Job& job,
                                       const request::Join& join, const RankSet& ranks) {
  if (!job.spread || job.state != Job::State::kJoining)
    return fail(INA_ERR_REFUSED,
                fmt::format("job '{}' runs at the switch above without switches below it; join "
                            "under another name, or once it has ended",
                            job.name));
  if (job.workers != join.member.world_size)
    return fail(INA_ERR_MISMATCH,
                fmt::format("world sizes of job '{}' differ: workers at the switch {} say {}, {} "
                            "joined with {}",
                            job.name, client.peer.text(), join.member.world_size,
                            wire::ranks_text(job.members_present()), job.workers));
  if (const RankSet both = ranks & job.members_present(); !both.empty())
    return fail(INA_ERR_RANK_TAKEN,
                fmt::format("{} of job '{}' joined at two switches, one of them {}",
                            wire::ranks_text(both), job.name, client.peer.text()));
  if (const std::string differs = difference(job, join); !differs.empty())
    return fail(INA_ERR_MISMATCH,
                fmt::format("settings of job '{}' differ: a worker at the switch {} {}", job.name,
                            client.peer.text(), differs));
  return {};
}

void SwitchesBelow::on_rejoin(Client& client, const request::Rejoin& message) {
  if (client.state != Client::State::kNew)
    return connections_.refuse(client, INA_ERR_INVALID, "this connection has joined already");
  if (!identification_.check_version(client, message.member)) return;
  if (auto back = come_back(client, message); !back) connections_.refuse(client, back.error());
}

Result<void> SwitchesBelow::come_back(Client& client, const request::Rejoin& message) {
  if (!config_.is_switch_below(client.owner()))
    return fail(INA_ERR_REFUSED, fmt::format("{} is none of the switches that may join here "
                                             "(control.switches_below of this switch)",
                                             client.owner()));
  Job* const job = jobs_.find(JobId{message.job_id});
  const auto lost = [&] {
    return fail(INA_ERR_SWITCH_LOST,
                fmt::format("the switch above does not know job '{}' (id {}) of this switch any "
                            "more, or the job has ended",
                            message.member.job, message.job_id));
  };
  if (!job || job->state == Job::State::kJoining) return lost();
  size_t number = 0;
  while (number < job->below.size() && job->below[number]->key != message.job_key) ++number;
  if (number == job->below.size()) return lost();
  if (!are_held(message, job->grant.window))
    return fail(INA_ERR_INVALID, "'held' are no runs of fragments of the window");
  auto way = way_of(client.peer, message.member.reach);
  if (!way) return tl::unexpected(way.error());
  Job::Below& below = *job->below[number];
  const Rank place = Job::place_below(number);
  if (below.place.client) {  // its old connection is about to be closed
    ending_.leave(*below.place.client);
    connections_.close_later(*below.place.client);
  }
  const uint32_t member = below.place.number;
  if (job->state != Job::State::kRejoining) lane_jobs_.detach(*job, place);
  resources_.drop_worker(*job, place);
  below.place.number = member;
  below.key = random_u64();
  below.place.held = fragments_of(message.held);
  below.place.results_end = Seq{message.results_end};
  job->start = std::max(job->start, below.place.results_end);
  if (auto taken = placement_.take(client, *job, place, std::move(*way)); !taken) return taken;
  client.role = Client::Role::kSwitch;
  below.lost_since = 0;
  return {};
}

bool SwitchesBelow::handle(Client& client, const request::Message& message) {
  if (client.role != Client::Role::kSwitch) return false;
  if (!client.job) return true;  // its end has crossed the message
  if (const auto* ranks = std::get_if<request::Ranks>(&message)) {
    on_ranks(client, *ranks);
  } else if (const auto* left = std::get_if<request::PeerLeft>(&message)) {
    departures_.tell_others(*client.job, &client, {left->rank, left->operations});
  } else if (const auto* split = std::get_if<request::PeerSplit>(&message)) {
    if (is_below(client, split->rank)) splits_.on_peer_split(*client.job, *split);
  } else if (const auto* create = std::get_if<request::PeerCreate>(&message)) {
    if (is_below(client, create->rank)) member_groups_.on_peer_create(*client.job, *create);
  } else if (std::holds_alternative<request::Leave>(message)) {
    on_leave(client);
  } else {
    return false;
  }
  return true;
}

void SwitchesBelow::on_ranks(Client& client, const request::Ranks& said) {
  Job& job = *client.job;
  if (job.state != Job::State::kJoining) return;
  auto ranks = ranks_of_runs(said.ranks, job.workers);
  if (!ranks) return connections_.refuse(client, ranks.error());
  Job::Below& below = *job.below_at(client.rank);
  if (const RankSet both = *ranks & (job.members_present() - below.ranks); !both.empty())
    return ending_.end(job, INA_ERR_RANK_TAKEN,
                       fmt::format("{} of job '{}' joined at two switches, one of them {}",
                                   wire::ranks_text(both), job.name, client.peer.text()));
  job.set_below(below, *ranks);
  gathering_.look(job);
}

/// All its workers have left.
void SwitchesBelow::on_leave(Client& client) {
  Job& job = *client.job;
  client.state = Client::State::kLeaving;
  for (const Rank rank : job.below_at(client.rank)->ranks) job.at(rank).has_left = true;
  departures_.look(job);
}

void SwitchesBelow::on_gone(Client& client) {
  Job& job = *client.job;
  Job::Below& below = *job.below_at(client.rank);
  const bool leaving = client.state == Client::State::kLeaving;
  const std::string who = client.peer.text();
  ending_.leave(client);
  below.place.client = nullptr;
  if (leaving) return;
  if (job.is_group() && job.state == Job::State::kJoining)
    return ending_.end(
        job, INA_ERR_PEER_LOST,
        fmt::format("the switch {} was lost while group '{}' was made", who, job.name));
  if (job.state == Job::State::kJoining) {
    job.set_below(below, {});
    return gathering_.tell_missing(job);
  }
  if (job.state == Job::State::kRejoining) {
    job.set_attached(below, false);
    return gathering_.tell_missing(job);
  }
  below.lost_since = now_ns();
  logging::warn("switch below lost", job.owner())("job", job.name)("id", value(job.id))(
      "peer", who)("ranks", wire::ranks_text(below.ranks));
}

void SwitchesBelow::end_overdue(Nanos now) {
  for (Job& job : jobs_)
    for (const auto& below : job.below) {
      if (below->lost_since == 0 || now < below->lost_since + config_.control.rejoin_timeout_ns)
        continue;
      ending_.end(job, INA_ERR_PEER_LOST,
                  fmt::format("the switch below with {} of job '{}' did not come back within {} s "
                              "(control.rejoin_timeout)",
                              wire::ranks_text(below->ranks), job.name,
                              static_cast<double>(config_.control.rejoin_timeout_ns) * 1e-9));
      break;
    }
}

Nanos SwitchesBelow::next_overdue(Nanos until) const {
  for (const Job& job : jobs_)
    for (const auto& below : job.below)
      if (below->lost_since != 0)
        until = std::min(until, below->lost_since + config_.control.rejoin_timeout_ns);
  return until;
}

}  // namespace ina::switchd
