#include "switchd/jobs/readmission.h"

#include <fmt/format.h>

#include <algorithm>

namespace ina::switchd {

Result<void> Readmission::check(const SavedJob& saved) const {
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
  if (std::string text = rules_.too_wide_text(saved.workers); !text.empty())
    return fail(INA_ERR_INVALID, std::move(text));
  if (auto home = check_home(saved); !home) return home;
  if (auto root = check_root(saved); !root) return root;
  if (auto slots = check_slots(saved); !slots) return slots;
  return check_room(saved);
}

/// The home must not change: there its workers keep partial sums, or ask for them.
Result<void> Readmission::check_home(const SavedJob& saved) const {
  const std::string_view home = name(rules_.home_for(saved.workers, saved.spread));
  const bool told = saved.reserved_until == 0;
  if (!told || saved.home.empty() || saved.home == home) return {};
  return fail(INA_ERR_INVALID,
              fmt::format("its workers look for the fallback where it was when they joined "
                          "(fallback.home: {}), and now it is elsewhere ({})",
                          saved.home, home));
}

Result<void> Readmission::check_root(const SavedJob& saved) const {
  if (saved.root == 0) return {};
  const Job* root = jobs_.find(JobId{saved.root});
  if (!root || root->state != Job::State::kRejoining ||
      std::ranges::any_of(saved.root_ranks, [&](uint32_t rank) { return rank >= root->workers; }))
    return fail(INA_ERR_INVALID, "it is a group of a job that does not come back");
  return {};
}

Result<void> Readmission::check_slots(const SavedJob& saved) const {
  if (config_.aggregator.fixed_slots()) {
    // Without a pool it ran under another policy, and may get one.
    if (saved.slots_per_lane == 0 || saved.slots_per_lane == 2 * (saved.window / saved.lanes))
      return {};
    return fail(INA_ERR_INVALID,
                fmt::format("its pool of {} slots is none for its window of {} fragments",
                            saved.slots_per_lane * saved.lanes, saved.window));
  }
  if (saved.in_switch > saved.window || saved.park_room > saved.window ||
      saved.park_room % saved.lanes != 0 || (saved.in_switch == 0 && saved.park_room != 0))
    return fail(INA_ERR_INVALID,
                fmt::format("its window is {} fragments, of which {} cannot be in the switch and "
                            "{} with a worker",
                            saved.window, saved.in_switch, saved.park_room));
  return {};
}

Result<void> Readmission::check_room(const SavedJob& saved) const {
  const bool group = saved.root != 0;
  if (group && jobs_.groups() >= config_.switchd.max_groups)
    return fail(INA_ERR_REFUSED, "switch.max_groups is smaller than it was");
  if (!group && jobs_.jobs() >= config_.switchd.max_jobs)
    return fail(INA_ERR_REFUSED, "switch.max_jobs is smaller than it was");
  return {};
}

namespace {

/// Admits a job that ran under a policy of the other kind, or of which the state file does not say
/// how many shared slots it was promised: older switches did not write that down.
Result<scheduler::Grant> admit_anew(bool fixed_slots, scheduler::Admission& admission,
                                    scheduler::JobRequest request, const SavedJob& saved) {
  // Exactly the slots that its window needs: lanes divide it (Readmission::check).
  if (fixed_slots) request.slots_floor = 2 * saved.window;
  const auto grant = admission.admit(request);
  if (!grant) return fail(INA_ERR_REFUSED, grant.error());
  return *grant;
}

}  // namespace

Result<scheduler::Grant> readmit(const ConductorConfig& config, uint32_t lanes,
                                 scheduler::Admission& admission, const Job& job,
                                 const SavedJob& saved) {
  const scheduler::JobRequest request{.tenant = job.owner(),
                                      .workers = saved.workers,
                                      .window = saved.window,
                                      .priority_max = saved.priority_max,
                                      .group = job.is_group()};
  const bool fixed_slots = config.aggregator.fixed_slots();
  const bool known = (fixed_slots ? saved.slots_per_lane : saved.ceiling_per_lane) != 0;
  if (!known) return admit_anew(fixed_slots, admission, request, saved);
  // The array may be smaller than it was.
  const uint32_t ceiling = std::min(saved.ceiling_per_lane, config.aggregator.slots / lanes);
  const auto grant =
      admission.readmit(request, {saved.first_slot, saved.slots_per_lane, saved.window,
                                  saved.floor_per_lane, ceiling, saved.priority_max});
  if (!grant) return fail(INA_ERR_REFUSED, grant.error());
  return *grant;
}

}  // namespace ina::switchd
