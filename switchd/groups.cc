// Groups of ranks: a job that its workers split, and the places that they have in its groups. A
// group is a job of its own, with its own id, key, window and results; its workers speak of it over
// the connection on which they joined. See docs/protocol.md, "Groups".
#include <algorithm>
#include <map>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"
#include "switchd/work_timer.h"

namespace ina::switchd {

namespace {

Rank rank_at(size_t index) {
  return Rank{static_cast<uint8_t>(index)};
}

}  // namespace

// ---- places

/// A place for a worker that joins a group, or comes back to it. It is removed if it gets none.
Client& Conductor::new_place(Client& line, uint32_t channel) {
  auto& place = line.places[channel];
  left_places_.insert(line.connection.fd());
  if (place && place->job) return *place;
  place = std::make_unique<Client>();
  place->carrier = &line;
  place->channel = channel;
  place->peer = line.peer;
  place->tenant = line.tenant;
  place->ticket = line.ticket;
  place->since = now_ns();
  return *place;
}

void Conductor::remove_left_places() {
  for (const int fd : std::exchange(left_places_, {}))
    if (Client* client = connections_.find(fd))
      std::erase_if(client->places, [](const auto& entry) { return !entry.second->job; });
}

void Conductor::on_channel(Client& line, uint32_t channel, const request::Message& message) {
  if (const auto* join = std::get_if<request::Join>(&message))
    return on_join_group(line, channel, *join);
  if (const auto* rejoin = std::get_if<request::Rejoin>(&message))
    return on_rejoin_group(line, channel, *rejoin);
  // Otherwise the end of the group has crossed the message.
  if (Client* place = line.from(channel)) dispatch(*place, message);
}

void Conductor::on_join_group(Client& line, uint32_t channel, const request::Join& join) {
  Client& place = new_place(line, channel);
  Job* group = jobs_.find(JobId{channel});
  if (!group || !group->is_group() || group->root != line.joined || place.job)
    return refuse(place, INA_ERR_REFUSED,
                  fmt::format("there is no group {} that this worker may join: it has ended, or is "
                              "another job's",
                              channel));
  const auto own = std::ranges::find(group->root_ranks, uint32_t{value(line.rank)});
  const auto rank = static_cast<size_t>(own - group->root_ranks.begin());
  if (own == group->root_ranks.end() || group->state != Job::State::kJoining ||
      group->members[rank].client)
    return refuse(place, INA_ERR_REFUSED,
                  fmt::format("group '{}' has no place for rank {} of the job", group->name,
                              value(line.rank)));
  const auto transport = transport_of(place, join.member.reach);
  Result<void> taken = fail(INA_ERR_UNSUPPORTED, "the switch does not offer its transport");
  if (transport) taken = take_place(place, *group, rank_at(rank), *transport);
  if (taken) return;
  if (transport) refuse(place, taken.error().status, taken.error().text);
  end_job(
      *group, taken.error().status,
      fmt::format("rank {} has no place in group '{}': {}", rank, group->name, taken.error().text));
}

void Conductor::on_rejoin_group(Client& line, uint32_t channel, const request::Rejoin& message) {
  Client& place = new_place(line, channel);
  if (place.job) return refuse(place, INA_ERR_INVALID, "this worker is in the group already");
  Job* group = jobs_.find(JobId{channel});
  const int64_t rank = message.member.rank;
  if (!group || !group->is_group() || group->root != line.joined || rank < 0 ||
      rank >= group->workers || group->root_ranks[static_cast<size_t>(rank)] != value(line.rank))
    return refuse(place, INA_ERR_SWITCH_LOST,
                  fmt::format("the switch was restarted and does not know group {} of this worker "
                              "any more, or the group has ended",
                              channel));
  rejoin(place, *group, message);
}

/// An administrator, or the end of their job, ends them too.
void Conductor::end_groups_of(JobId root, ina_status status, const std::string& text,
                              bool rejoining_only) {
  for (Job& job : jobs_)
    if (job.root == root && (!rejoining_only || job.state == Job::State::kRejoining))
      end_job(job, status, text);
}

// ---- splitting

/// Collective: happens once all workers have asked.
void Conductor::on_split(Client& client, const request::Split& split) {
  if (!client.job || client.state != Client::State::kAttached) return;
  Job& job = *client.job;
  Job::Worker& worker = job.at(client.rank);
  if (worker.split) {
    if (worker.split->number == split.number) return;
    return refuse(client, INA_ERR_INVALID, "split while another is under way");
  }
  worker.split = split;
  if (job.state == Job::State::kLeaving) return refuse_splits(job);
  if (job.state != Job::State::kRunning) return;
  if (std::ranges::all_of(job.members,
                          [](const Job::Worker& member) { return member.split.has_value(); }))
    begin_split(job);
}

void Conductor::begin_split(Job& job) {
  Split split{.job = job.id, .number = job.members[0].split->number, .colours = {}};
  std::map<int64_t, std::vector<uint32_t>> by_colour;
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    const request::Split& said = *job.members[rank].split;
    if (said.number != split.number)
      return end_job(job, INA_ERR_MISMATCH,
                     mismatch_text(job, fmt::format("for rank 0 this is split {} of the job, for "
                                                    "rank {} it is split {}",
                                                    split.number, rank, said.number)));
    if (said.colour >= 0) by_colour[said.colour].push_back(rank);
  }
  for (auto& [colour, ranks] : by_colour) {
    std::ranges::stable_sort(ranks, {},
                             [&](uint32_t rank) { return job.members[rank].split->key; });
    split.colours.push_back({colour, std::move(ranks)});
  }
  if (split.colours.empty()) return answer_split(job, split);
  splits_.push_back(std::move(split));
}

/// Makes one group of the split whose turn it is.
void Conductor::go_on_splitting() {
  if (splits_.empty()) return;
  Split split = std::move(splits_.front());
  splits_.pop_front();
  Job* job = jobs_.find(split.job);
  if (!job || job->state != Job::State::kRunning)
    return fail_split(split, job, {INA_ERR_PEER_LOST, "a worker has left"});
  const WorkTimer timer;
  auto group = make_group(*job, split.colours[split.made]);
  for (Job::Worker& member : job->members)
    if (member.client)
      connections_.charge_time(member.client->peer, timer.spent_ns() / job->workers);
  if (!group) return fail_split(split, job, group.error());
  split.colours[split.made].group = *group;
  if (++split.made == split.colours.size()) return answer_split(*job, split);
  splits_.push_back(std::move(split));
}

Result<void> Conductor::check_room_for_group(const Job& job) const {
  const JobId root = job.is_group() ? job.root : job.id;
  const uint32_t all = jobs_.groups();
  const uint32_t of_job = jobs_.count([&](const Job& other) { return other.root == root; });
  const uint32_t of_owner = jobs_.count(
      [&](const Job& other) { return other.is_group() && other.owner() == job.owner(); });
  const uint32_t per_user = config_.max_groups_per_user != 0 ? config_.max_groups_per_user
                                                             : std::max(1u, config_.max_groups / 2);
  const auto full = [](const std::string& who, uint32_t count, const char* key) {
    return fail(INA_ERR_REFUSED,
                fmt::format("{} {} groups already ({}); free some, or raise it", who, count, key));
  };
  if (of_job >= config_.max_groups_per_job)
    return full("the job has", of_job, "switch.max_groups_per_job");
  if (of_owner >= per_user)
    return full("the jobs of " + job.owner() + " have", of_owner, "switch.max_groups_per_user");
  if (all >= config_.max_groups) return full("the switch has", all, "switch.max_groups");
  return {};
}

Result<JobId> Conductor::make_group(Job& job, const Split::Colour& colour) {
  const auto failed = [&](const Error& error) {
    return fail(error.status, fmt::format("no group of colour {} ({} ranks): {}", colour.colour,
                                          colour.ranks.size(), error.text));
  };
  if (auto room = check_room_for_group(job); !room) return failed(room.error());
  SavedJob fresh = new_job(job.name, static_cast<uint32_t>(colour.ranks.size()));
  if (job.is_group()) fresh.name.resize(fresh.name.rfind('/'));
  fresh.name += fmt::format("/{}", fresh.id);
  fresh.uid = job.uid;
  fresh.tenant = job.tenant;
  fresh.root = value(job.is_group() ? job.root : job.id);
  for (const uint32_t rank : colour.ranks)
    fresh.root_ranks.push_back(job.is_group() ? job.root_ranks[rank] : rank);
  auto group = make_job(fresh, jobs_.free_place());
  if (auto taken = resources_.take_for_group(*group, job); !taken) return failed(taken.error());
  // Its workers join it one by one; one that does not come must not keep it for ever.
  group->reserved_until = now_ns() + config_.join_timeout_ns;
  add_to_lanes(*group, Seq{});
  logging::info("group made", group->owner())("group", group->name)("id", value(group->id))(
      "colour", colour.colour)("workers", group->workers)("window", group->grant.window)(
      "memory_bytes", group->grant.memory_bytes);
  return jobs_.add(std::move(group)).id;
}

void Conductor::answer_split(Job& job, const Split& split) {
  std::vector<answer::Split> answers(job.workers, {.number = split.number});
  for (const Split::Colour& colour : split.colours) {
    const Job* group = jobs_.find(colour.group);
    for (uint32_t rank = 0; rank < group->workers; ++rank)
      answers[colour.ranks[rank]].group = {.job_id = value(colour.group),
                                           .job = group->name,
                                           .rank = rank,
                                           .world_size = group->workers};
  }
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    Job::Worker& member = job.members[rank];
    member.split.reset();
    if (member.client) send(*member.client, answers[rank]);
  }
  offer_jobs();
}

/// All members get groups, or none. `job`: nullptr: it has ended, which they know.
void Conductor::fail_split(const Split& split, Job* job, const Error& error) {
  for (const Split::Colour& colour : split.colours)
    if (Job* group = jobs_.find(colour.group)) remove_job(*group);
  if (!job) return;
  logging::warn("not split", job->owner())("job", job->name)("text", error.text);
  for (Job::Worker& member : job->members) {
    member.split.reset();
    if (member.client)
      send(*member.client,
           answer::Split{.number = split.number, .status = error.status, .text = error.text});
  }
}

/// Somebody has called ina_finalize: what others ask for will never be.
void Conductor::refuse_splits(Job& job) {
  const Bitmap leaving = job.bits([](const Job::Worker& member) {
    return !member.client || member.client->state == Client::State::kLeaving;
  });
  for (Job::Worker& member : job.members) {
    if (!member.split || !member.client) continue;
    send(
        *member.client,
        answer::Split{.number = member.split->number,
                      .status = INA_ERR_PEER_LOST,
                      .text = fmt::format("{} left job '{}' (ina_finalize) instead of splitting it",
                                          ranks_text(leaving), job.name)});
    member.split.reset();
  }
}

}  // namespace ina::switchd
