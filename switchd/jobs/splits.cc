#include "switchd/jobs/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/logging/record.h"
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
  take(job, value(client.rank), split);
}

void Splits::on_peer_split(Job& job, const request::PeerSplit& said) {
  take(job, said.rank, {said.colour, said.key, said.number});
}

void Splits::ask_above(const Job& job) {
  for (uint32_t rank = 0; rank < job.workers; ++rank)
    if (const auto& said = job.members[rank].split)
      job.above->say(request::PeerSplit{rank, said->colour, said->key, said->number});
}

/// A worker of this switch, or one below, asks.
void Splits::take(Job& job, uint32_t rank, const request::Split& split) {
  job.members[rank].split = split;
  if (job.state == Job::State::kLeaving) return refuse(job);
  if (job.state != Job::State::kRunning) return;
  if (job.above)
    return job.above->say(request::PeerSplit{rank, split.colour, split.key, split.number});
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
  const Colour& colour = split.colours[split.made];
  if (!TreeGroups::go_down(*job, colour.ranks)) {
    auto group = maker_.make(*job, colour.ranks, fmt::format("colour {}", colour.colour));
    if (!group) return give_up(split, job, group.error());
    split.colours[split.made].group = *group;
  }
  if (++split.made == split.colours.size()) return answer(*job, split);
  splits_.push_back(std::move(split));
}

void Splits::answer(Job& job, const Split& split) {
  std::vector<control::answer::Split> answers(job.workers, {.number = split.number});
  RankSet in_none = job.all();
  for (const Colour& colour : split.colours) {
    const bool here = value(colour.group) != 0;
    RankSet of;
    for (uint32_t rank = 0; rank < colour.ranks.size(); ++rank) {
      of.insert(Rank{static_cast<uint16_t>(colour.ranks[rank])});
      if (here) answers[colour.ranks[rank]].group = maker_.place(colour.group, rank);
    }
    in_none -= of;
    control::answer::Grouped grouped = tree_groups_.grouped(colour.group, colour.ranks);
    grouped.number = split.number;
    tree_groups_.tell_below(job, std::move(grouped), of);
  }
  tree_groups_.tell_below(job, {.number = split.number}, in_none);
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
  tree_groups_.tell_below(
      *job, {.number = split.number, .status = error.status, .text = error.text}, job->all());
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
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    Job::Worker& member = job.members[rank];
    if (member.split && member.elsewhere) {
      tree_groups_.tell_below(
          job, {.number = member.split->number, .status = INA_ERR_PEER_LOST, .text = text},
          RankSet::of(Rank{static_cast<uint16_t>(rank)}));
      member.split.reset();
    }
    if (!member.split || !member.client) continue;
    connections_.send(*member.client, control::answer::Split{.number = member.split->number,
                                                             .status = INA_ERR_PEER_LOST,
                                                             .text = text});
    member.split.reset();
  }
}

}  // namespace ina::switchd
