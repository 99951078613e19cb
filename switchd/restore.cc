#include "switchd/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/logging/record.h"

namespace ina::switchd {

void Restore::run(const Moment& now) {
  const std::vector<SavedJob> saved_jobs = state_.jobs();
  for (const bool groups : {false, true})  // these need their jobs
    for (const SavedJob& saved : saved_jobs) {
      if ((saved.root != 0) != groups) continue;
      if (const auto job = restore(saved, now); job)
        logging::info("job waits for its workers")("job", saved.name)("id", saved.id)(
            "epoch", (*job)->epoch)("workers", saved.workers)("owner", (*job)->owner());
      else
        logging::error("job not restored")("job", saved.name)("id", saved.id)("text",
                                                                              job.error().text);
    }
  std::vector<SavedJob> restored;
  for (const Job& job : jobs_) restored.push_back(saved_of(job, now));
  // Once for all of them: each time is a wait for the disk.
  if (auto saved = state_.replace(std::move(restored)); !saved)
    logging::error("jobs not saved")("text", saved.error().text);
}

Result<Job*> Restore::restore(const SavedJob& saved, const Moment& now) {
  if (auto fits = check(saved); !fits) return tl::unexpected(fits.error());
  auto job = job_of(saved, jobs_.free_place());
  if (auto taken = resources_.retake(*job, saved); !taken) return tl::unexpected(taken.error());
  const auto epoch = state_.epoch_after(saved.epoch);
  if (!epoch) {
    resources_.give_back(*job);
    return tl::unexpected(epoch.error());
  }
  job->epoch = *epoch;
  job->reserved_until = reserved_until(saved, now);
  if (saved.reserved_until == 0) {
    job->state = Job::State::kRejoining;
    job->rejoin_deadline = now.monotonic + config_.control.rejoin_timeout_ns;
  }
  return &jobs_.add(std::move(job));
}

/// Whether a switch with this configuration could have granted it. The file may have been written
/// by a switch with another one, or by hand.
Result<void> Restore::check(const SavedJob& saved) const {
  const auto lanes = rules_.lanes();
  if (saved.lanes != lanes || saved.slot_bytes != config_.aggregator.slot_bytes)
    return fail(INA_ERR_INVALID,
                fmt::format("it ran with switch.lcores {} and aggregator.slot_bytes {}",
                            saved.lanes, saved.slot_bytes));
  const uint32_t per_lane = saved.window / lanes;
  if (saved.window % lanes != 0 || per_lane == 0 || per_lane > scheduler::kMostWindowPerLane)
    return fail(INA_ERR_INVALID,
                fmt::format("its window of {} fragments is none that a switch with {} lanes grants",
                            saved.window, lanes));
  if (auto root = check_root(saved); !root) return root;
  if (auto slots = check_slots(saved); !slots) return slots;
  return check_room(saved);
}

Result<void> Restore::check_root(const SavedJob& saved) const {
  if (saved.root == 0) return {};
  const Job* root = jobs_.find(JobId{saved.root});
  if (!root || root->state != Job::State::kRejoining ||
      std::ranges::any_of(saved.root_ranks, [&](uint32_t rank) { return rank >= root->workers; }))
    return fail(INA_ERR_INVALID, "it is a group of a job that does not come back");
  return {};
}

Result<void> Restore::check_slots(const SavedJob& saved) const {
  if (config_.aggregator.fixed_slots()) {
    if (saved.slots_per_lane == 2 * (saved.window / saved.lanes)) return {};
    return fail(INA_ERR_INVALID,
                "it has no pool of slots of its own: it ran with another aggregator.policy");
  }
  if (saved.in_switch > saved.window || saved.park_room > saved.window ||
      saved.park_room % saved.lanes != 0 || (saved.in_switch == 0 && saved.park_room != 0))
    return fail(INA_ERR_INVALID,
                fmt::format("its window is {} fragments, of which {} cannot be in the switch and "
                            "{} with a worker",
                            saved.window, saved.in_switch, saved.park_room));
  return {};
}

Result<void> Restore::check_room(const SavedJob& saved) const {
  const bool group = saved.root != 0;
  if (group && jobs_.groups() >= config_.switchd.max_groups)
    return fail(INA_ERR_REFUSED, "switch.max_groups is smaller than it was");
  if (!group && jobs_.jobs() >= config_.switchd.max_jobs)
    return fail(INA_ERR_REFUSED, "switch.max_jobs is smaller than it was");
  return {};
}

}  // namespace ina::switchd
