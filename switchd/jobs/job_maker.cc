#include "switchd/jobs/job_maker.h"

#include <fmt/format.h>

#include "common/logging/record.h"

namespace ina::switchd {

Result<Job*> JobMaker::admit(const SavedJob& fresh, scheduler::JobRequest request,
                             uint64_t window_bytes, const std::string& who) {
  const auto refused = [&](ina_status status, const std::string& text) {
    return fail(status, fmt::format("job '{}' does not fit: {}", fresh.name, text));
  };
  if (draining_)
    return fail(INA_ERR_REFUSED,
                fmt::format("the switch is drained and takes no new job, such as '{}'; `inactl "
                            "undrain` would open it again",
                            fresh.name));
  if (const std::string text = lane_jobs_.rules().too_wide_text(fresh.workers); !text.empty())
    return refused(INA_ERR_REFUSED, text);
  if (const uint32_t running = jobs_.jobs(); running >= config_.max_jobs)
    return refused(INA_ERR_REFUSED,
                   fmt::format("the switch runs {} jobs already (switch.max_jobs)", running));
  const auto places = jobs_.free_places(domains_of(fresh));
  if (!places) return refused(places.error().status, places.error().text);
  auto job = job_of(fresh, *places);
  if (auto taken = resources_.take(*job, std::move(request), window_bytes); !taken)
    return refused(taken.error().status, taken.error().text);
  // Of a spread job the members are known when all its workers have come.
  if (!job->spread) lane_jobs_.add(*job, Seq{});
  logging::info("job admitted", job->owner())("job", job->name)("id", value(job->id))(
      "workers", job->workers)("window", job->grant.window)(
      "memory_bytes", job->grant.memory_bytes)("by", who)("owner", job->owner());
  return &jobs_.add(std::move(job));
}

}  // namespace ina::switchd
