#include "switchd/jobs/group_maker.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/work_timer.h"

namespace ina::switchd {

Result<void> GroupMaker::check_room(const Job& job) const {
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

SavedJob GroupMaker::new_group(const Job& job, const std::vector<uint32_t>& ranks) {
  SavedJob fresh = records_.new_job(job.name, static_cast<uint32_t>(ranks.size()));
  if (job.is_group()) fresh.name.resize(fresh.name.rfind('/'));
  fresh.name += fmt::format("/{}", fresh.id);
  fresh.uid = job.uid;
  fresh.tenant = job.tenant;
  fresh.root = value(job.is_group() ? job.root : job.id);
  fresh.spread =
      std::ranges::any_of(ranks, [&](uint32_t rank) { return job.members[rank].elsewhere; });
  for (const uint32_t rank : ranks)
    fresh.root_ranks.push_back(job.is_group() ? job.root_ranks[rank] : rank);
  return fresh;
}

Result<JobId> GroupMaker::join(const Job& job, const control::answer::Grouped& above) {
  return take(job, above.ranks, above.job, &above);
}

Result<JobId> GroupMaker::take(const Job& job, const std::vector<uint32_t>& ranks,
                               const std::string& label, const control::answer::Grouped* above) {
  const auto failed = [&](const Error& error) {
    return fail(error.status,
                fmt::format("no group of {} ({} ranks): {}", label, ranks.size(), error.text));
  };
  if (auto room = check_room(job); !room) return failed(room.error());
  const SavedJob fresh = new_group(job, ranks);
  const auto places = jobs_.free_places(domains_of(fresh));
  if (!places) return failed(places.error());
  auto group = job_of(fresh, *places);
  if (auto taken = resources_.take_for_group(*group, job, above ? above->window : 0); !taken)
    return failed(taken.error());
  if (above) group->above = std::make_unique<Above>(job.above->line, above->job_id);
  // Its workers join it one by one; one that does not come must not keep it for ever.
  group->reserved_until = now_ns() + config_.control.join_timeout_ns;
  if (!group->spread) lane_jobs_.add(*group, Seq{});
  logging::info("group made", group->owner())("group", group->name)("id", value(group->id))(
      "of", label)("workers", group->workers)("window", group->grant.window)(
      "memory_bytes", group->grant.memory_bytes);
  return jobs_.add(std::move(group)).id;
}

Result<JobId> GroupMaker::make(const Job& job, const std::vector<uint32_t>& ranks,
                               const std::string& label) {
  const control::WorkTimer timer;
  auto group = take(job, ranks, label);
  for (const Job::Worker& member : job.members)
    if (member.client)
      connections_.charge_time(member.client->peer, timer.spent_ns() / job.workers);
  return group;
}

control::answer::GroupPlace GroupMaker::place(JobId group, uint32_t rank) const {
  const Job* found = jobs_.find(group);
  return {.job_id = value(group), .job = found->name, .rank = rank, .world_size = found->workers};
}

}  // namespace ina::switchd
