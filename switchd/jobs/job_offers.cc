#include "switchd/jobs/job_offers.h"

#include <map>

#include "common/turns.h"
#include "control/messages.h"

namespace ina::switchd {

namespace answer = control::answer;

/// nullptr: there is none.
Job* JobOffers::next() {
  std::map<std::string, Job*> jobs;
  for (Job& job : jobs_) {
    // Where a job goes on after a restart is known when all its workers are back.
    const bool known = job.state != Job::State::kRejoining || job.missing().empty();
    if (known && job.home == Home::kDedicated && !job.offered && !job.fallback.client)
      jobs.emplace(job.owner(), &job);
  }
  const auto turn = next_in_turn(jobs, last_owner_);
  return turn == jobs.end() ? nullptr : turn->second;
}

void JobOffers::offer() {
  for (const auto& [fd, client] : connections_.all()) {
    if (client->role != Client::Role::kServer || !client->wants_job) continue;
    Job* const job = next();
    if (!job) return;
    client->wants_job = false;
    job->offered = true;
    connections_.send(*client, answer::Job{value(job->id), job->name, job->owner()});
  }
}

void JobOffers::begin_anew() {
  for (Job& job : jobs_) job.offered = false;
}

}  // namespace ina::switchd
