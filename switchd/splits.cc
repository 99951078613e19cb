#include "switchd/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/work_timer.h"
#include "wire/text.h"

namespace ina::switchd {

namespace request = control::request;

Result<std::vector<Colour>> colours_of(const Job& job) {
  const uint32_t number = job.members[0].split->number;
  std::map<int64_t, std::vector<uint32_t>> by_colour;
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    const request::Split& said = *job.members[rank].split;
    if (said.number != number)
      return fail(INA_ERR_MISMATCH, fmt::format("for rank 0 this is split {} of the job, for rank "
                                                "{} it is split {}",
                                                number, rank, said.number));
    if (said.colour >= 0) by_colour[said.colour].push_back(rank);
  }
  std::vector<Colour> colours;
  for (auto& [colour, ranks] : by_colour) {
    std::ranges::stable_sort(ranks, {},
                             [&](uint32_t rank) { return job.members[rank].split->key; });
    colours.push_back({colour, std::move(ranks)});
  }
  return colours;
}

void Splits::on_split(Client& client, const request::Split& split) {
  if (!client.job || client.state != Client::State::kAttached) return;
  Job& job = *client.job;
  Job::Worker& worker = job.at(client.rank);
  if (worker.split) {
    if (worker.split->number == split.number) return;
    return connections_.refuse(client, INA_ERR_INVALID, "split while another is under way");
  }
  worker.split = split;
  if (job.state == Job::State::kLeaving) return refuse(job);
  if (job.state != Job::State::kRunning) return;
  if (std::ranges::all_of(job.members,
                          [](const Job::Worker& member) { return member.split.has_value(); }))
    begin(job);
}

void Splits::begin(Job& job) {
  auto colours = colours_of(job);
  if (!colours) return ending_.end_mismatched(job, colours.error().text);
  Split split{
      .job = job.id, .number = job.members[0].split->number, .colours = std::move(*colours)};
  if (split.colours.empty()) return answer(job, split);
  splits_.push_back(std::move(split));
}

void Splits::go_on() {
  if (splits_.empty()) return;
  Split split = std::move(splits_.front());
  splits_.pop_front();
  Job* job = jobs_.find(split.job);
  if (!job || job->state != Job::State::kRunning)
    return give_up(split, job, {INA_ERR_PEER_LOST, "a worker has left"});
  const control::WorkTimer timer;
  auto group = make_group(*job, split.colours[split.made]);
  for (Job::Worker& member : job->members)
    if (member.client)
      connections_.charge_time(member.client->peer, timer.spent_ns() / job->workers);
  if (!group) return give_up(split, job, group.error());
  split.colours[split.made].group = *group;
  if (++split.made == split.colours.size()) return answer(*job, split);
  splits_.push_back(std::move(split));
}

Result<void> Splits::check_room(const Job& job) const {
  const JobId root = job.is_group() ? job.root : job.id;
  const uint32_t all = jobs_.groups();
  const uint32_t of_job = jobs_.count([&](const Job& other) { return other.root == root; });
  const uint32_t of_owner = jobs_.count(
      [&](const Job& other) { return other.is_group() && other.owner() == job.owner(); });
  const uint32_t per_user = config_.switchd.max_groups_per_user != 0
                                ? config_.switchd.max_groups_per_user
                                : std::max(1u, config_.switchd.max_groups / 2);
  const auto full = [](const std::string& who, uint32_t count, const char* key) {
    return fail(INA_ERR_REFUSED,
                fmt::format("{} {} groups already ({}); free some, or raise it", who, count, key));
  };
  if (of_job >= config_.switchd.max_groups_per_job)
    return full("the job has", of_job, "switch.max_groups_per_job");
  if (of_owner >= per_user)
    return full("the jobs of " + job.owner() + " have", of_owner, "switch.max_groups_per_user");
  if (all >= config_.switchd.max_groups) return full("the switch has", all, "switch.max_groups");
  return {};
}

SavedJob Splits::new_group(const Job& job, const Colour& colour) {
  SavedJob fresh = records_.new_job(job.name, static_cast<uint32_t>(colour.ranks.size()));
  if (job.is_group()) fresh.name.resize(fresh.name.rfind('/'));
  fresh.name += fmt::format("/{}", fresh.id);
  fresh.uid = job.uid;
  fresh.tenant = job.tenant;
  fresh.root = value(job.is_group() ? job.root : job.id);
  for (const uint32_t rank : colour.ranks)
    fresh.root_ranks.push_back(job.is_group() ? job.root_ranks[rank] : rank);
  return fresh;
}

Result<JobId> Splits::make_group(const Job& job, const Colour& colour) {
  const auto failed = [&](const Error& error) {
    return fail(error.status, fmt::format("no group of colour {} ({} ranks): {}", colour.colour,
                                          colour.ranks.size(), error.text));
  };
  if (auto room = check_room(job); !room) return failed(room.error());
  auto group = job_of(new_group(job, colour), jobs_.free_place());
  if (auto taken = resources_.take_for_group(*group, job); !taken) return failed(taken.error());
  // Its workers join it one by one; one that does not come must not keep it for ever.
  group->reserved_until = now_ns() + config_.control.join_timeout_ns;
  lane_jobs_.add(*group, Seq{});
  logging::info("group made", group->owner())("group", group->name)("id", value(group->id))(
      "colour", colour.colour)("workers", group->workers)("window", group->grant.window)(
      "memory_bytes", group->grant.memory_bytes);
  return jobs_.add(std::move(group)).id;
}

void Splits::answer(Job& job, const Split& split) {
  std::vector<control::answer::Split> answers(job.workers, {.number = split.number});
  for (const Colour& colour : split.colours) {
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
    if (member.client) connections_.send(*member.client, answers[rank]);
  }
  offers_.offer();
}

/// All members get groups, or none. `job`: nullptr: it has ended, which they know.
void Splits::give_up(const Split& split, Job* job, const Error& error) {
  for (const Colour& colour : split.colours)
    if (Job* group = jobs_.find(colour.group)) ending_.remove(*group);
  if (!job) return;
  logging::warn("not split", job->owner())("job", job->name)("text", error.text);
  for (Job::Worker& member : job->members) {
    member.split.reset();
    if (member.client)
      connections_.send(*member.client,
                        control::answer::Split{
                            .number = split.number, .status = error.status, .text = error.text});
  }
}

void Splits::refuse(Job& job) {
  const std::string text = fmt::format("{} left job '{}' (ina_finalize) instead of splitting it",
                                       wire::ranks_text(job.leaving_or_gone()), job.name);
  for (Job::Worker& member : job.members) {
    if (!member.split || !member.client) continue;
    connections_.send(*member.client, control::answer::Split{.number = member.split->number,
                                                             .status = INA_ERR_PEER_LOST,
                                                             .text = text});
    member.split.reset();
  }
}

}  // namespace ina::switchd
