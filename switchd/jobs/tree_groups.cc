#include "switchd/jobs/tree_groups.h"

#include <algorithm>

#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;

bool TreeGroups::go_up(const Job& job, const std::vector<uint32_t>& ranks) {
  return std::ranges::any_of(
      ranks, [&](uint32_t rank) { return job.members[rank].elsewhere && !job.below_with(rank); });
}

bool TreeGroups::go_down(const Job& job, const std::vector<uint32_t>& ranks) {
  const Job::Below* const holder = job.below_with(ranks.front());
  return holder &&
         std::ranges::all_of(ranks, [&](uint32_t rank) { return job.below_with(rank) == holder; });
}

answer::Grouped TreeGroups::grouped(JobId group, const std::vector<uint32_t>& ranks) const {
  answer::Grouped made{.job_id = value(group), .ranks = ranks};
  if (made.job_id == 0) return made;
  made.job = maker_.place(group, 0).job;
  made.window = maker_.window(group);
  return made;
}

void TreeGroups::tell_below(Job& job, answer::Grouped grouped, const RankSet& of) {
  for (const auto& below : job.below) {
    const RankSet own = of & below->ranks;
    if (own.empty() || !below->place.client) continue;
    grouped.of = runs_of(own);
    connections_.send(*below->place.client, grouped);
  }
}

void TreeGroups::on_grouped(Job& job, const answer::Grouped& said) {
  const auto of = ranks_of_runs(said.of, job.workers);
  const auto is_rank = [&](uint32_t rank) { return rank < job.workers; };
  if (!of || !std::ranges::all_of(said.ranks, is_rank)) return;
  answer::Grouped outcome = said;
  JobId group{};
  if (said.status == INA_OK && !said.ranks.empty() &&
      (said.job_id != 0 || !go_down(job, said.ranks))) {
    auto made = said.job_id != 0 ? maker_.join(job, said)
                                 : maker_.make(job, said.ranks, "the switch above");
    if (made) {
      group = *made;
      outcome = grouped(group, said.ranks);
      outcome.number = said.number;
      outcome.tag = said.tag;
    } else {
      outcome = {.number = said.number,
                 .tag = said.tag,
                 .status = made.error().status,
                 .text = made.error().text};
      logging::warn("no group", job.owner())("job", job.name)("text", outcome.text);
      // Its other workers wait for these.
      if (said.job_id != 0 && job.above)
        job.above->line->say(
            control::request::Abort{.text = outcome.text, .status = outcome.status}, said.job_id);
    }
  }
  for (const Rank rank : *of)
    if (!job.at(rank).elsewhere) answer(job, value(rank), outcome, group);
  tell_below(job, outcome, *of);
}

/// To a worker of this switch.
void TreeGroups::answer(Job& job, uint32_t rank, const answer::Grouped& said, JobId group) {
  Job::Worker& member = job.members[rank];
  std::optional<answer::GroupPlace> place;
  if (value(group) != 0) {
    const auto at = std::ranges::find(said.ranks, rank);
    if (at != said.ranks.end())
      place = maker_.place(group, static_cast<uint32_t>(at - said.ranks.begin()));
  }
  if (said.number) {
    member.split.reset();
    if (member.client)
      connections_.send(
          *member.client,
          answer::Split{
              .number = *said.number, .status = said.status, .text = said.text, .group = place});
    return;
  }
  std::erase_if(member.creates, [&](const auto& create) { return create.tag == said.tag; });
  if (member.client)
    connections_.send(
        *member.client,
        answer::CreateGroup{
            .tag = said.tag, .status = said.status, .text = said.text, .group = place});
}

}  // namespace ina::switchd
