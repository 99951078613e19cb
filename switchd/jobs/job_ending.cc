#include "switchd/jobs/job_ending.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/clock.h"
#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

void JobEnding::end(Job& job, ina_status status, const std::string& text) {
  logging::warn("job aborted", job.owner())("job", job.name)("id", value(job.id))("status", status)(
      "text", text);
  records_.forget(job);
  if (job.is_group() && job.state == Job::State::kJoining) {
    unmade_groups_.push_back({job.id, job.root, {status, text}});
    if (unmade_groups_.size() > kMostUnmadeGroups) unmade_groups_.pop_front();
  }
  // What the switch above says of its groups is heard over the job's connection.
  for (Job& group : jobs_)
    if (group.root == job.id && group.above) end(group, status, text);
  tell(job, status, text);
  // Its workers do not come back, and without it not to its groups either.
  if (job.state == Job::State::kRejoining)
    for (Job& group : jobs_)
      if (group.root == job.id && group.state == Job::State::kRejoining) end(group, status, text);
  remove(job);
}

const Error* JobEnding::why_ended(JobId group, JobId root) const {
  const auto found = std::ranges::find_if(unmade_groups_, [&](const UnmadeGroup& unmade) {
    return unmade.id == group && unmade.root == root;
  });
  return found == unmade_groups_.end() ? nullptr : &found->error;
}

void JobEnding::end_mismatched(Job& job, const std::string& sides) {
  end(job, INA_ERR_MISMATCH, fmt::format("workers of job '{}' disagree: {}", job.name, sides));
}

void JobEnding::on_mismatch(Client& client, const request::Mismatch& mismatch) {
  if (!client.job) return;  // another one has found it, too
  end_mismatched(*client.job, mismatch.text.substr(0, 1024));
}

void JobEnding::end_groups_of(JobId root, ina_status status, const std::string& text) {
  for (Job& group : jobs_)
    if (group.root == root) end(group, status, text);
}

void JobEnding::tell(Job& job, ina_status status, const std::string& text) {
  job.for_each_place([&](Rank, Job::Worker& member) {
    if (!member.client) return;
    connections_.send(*member.client, answer::Abort{status, text});
    leave(*member.client);
    member.client = nullptr;
  });
  if (!job.above) return;
  job.above->say(request::Abort{.text = text, .status = status});
  job.above.reset();
}

void JobEnding::remove(Job& job) {
  release_fallback(job);
  lane_jobs_.remove(job);
  records_.forget(job);
  resources_.give_back(job);
  jobs_.remove(job);
}

void JobEnding::leave(Client& client) {
  client.job = nullptr;
  client.state = Client::State::kEnded;
  client.since = now_ns();
  group_places_.on_left(client);
}

/// The job has ended for the fallback server, too.
void JobEnding::release_fallback(Job& job) {
  if (!job.fallback.client) return;
  connections_.send(*job.fallback.client, answer::Left{});
  leave(*job.fallback.client);
  job.fallback.client = nullptr;
}

}  // namespace ina::switchd
