#include "switchd/jobs/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/logging/record.h"

namespace ina::switchd {

std::vector<LostJob> Restore::run(const Moment& now) {
  std::vector<LostJob> lost;
  const std::vector<SavedJob> saved_jobs = state_.jobs();
  for (const bool groups : {false, true})  // these need their jobs
    for (const SavedJob& saved : saved_jobs) {
      if ((saved.root != 0) != groups) continue;
      if (const auto job = restore(saved, now); job) {
        logging::info("job waits for its workers")("job", saved.name)("id", saved.id)(
            "epoch", (*job)->epoch)("workers", saved.workers)("owner", (*job)->owner());
      } else {
        logging::error("job not restored")("job", saved.name)("id", saved.id)("text",
                                                                              job.error().text);
        lost.push_back({JobId{saved.id}, saved.key, job.error().text});
      }
    }
  std::vector<SavedJob> restored;
  for (const Job& job : jobs_) restored.push_back(saved_of(job, now));
  // Once for all of them: each time is a wait for the disk.
  if (auto saved = state_.replace(std::move(restored)); !saved)
    logging::error("jobs not saved")("text", saved.error().text);
  return lost;
}

Result<Job*> Restore::restore(const SavedJob& saved, const Moment& now) {
  if (auto fits = readmission_.check(saved); !fits) return tl::unexpected(fits.error());
  const auto places = jobs_.free_places(domains_of(saved));
  if (!places) return tl::unexpected(places.error());
  auto job = job_of(saved, *places);
  if (auto taken = resources_.retake(*job, saved); !taken) return tl::unexpected(taken.error());
  const auto epoch = state_.epoch_after(saved.epoch);
  if (!epoch) {
    resources_.give_back(*job);
    return tl::unexpected(epoch.error());
  }
  job->epoch = *epoch;
  job->reserved_until = reserved_until(saved, now);
  if (saved.above_id != 0) {
    if (config_.uplink.url.empty()) {
      resources_.give_back(*job);
      return fail(INA_ERR_INVALID,
                  "some of its workers are at a switch above, and none is "
                  "configured any more (uplink.url)");
    }
    job->above = std::make_unique<Above>(
        nullptr, saved.root == 0 ? std::nullopt : std::optional(saved.above_id));
    job->above->state = Above::State::kAway;
    job->above->joined.place.job_id = saved.above_id;
    job->above->joined.place.job_key = saved.above_key;
  }
  if (saved.reserved_until == 0) {
    job->state = Job::State::kRejoining;
    job->rejoin_deadline = now.monotonic + config_.control.rejoin_timeout_ns;
  }
  return &jobs_.add(std::move(job));
}

}  // namespace ina::switchd
