#include "switchd/jobs/outlook.h"

#include <string>
#include <utility>

#include "switchd/jobs/readmission.h"
#include "switchd/memory/resources.h"
#include "switchd/ports/port_kind.h"

namespace ina::switchd {

namespace {

/// The part of a switch that admits jobs.
class Successor {
 public:
  explicit Successor(const ConductorConfig& next)
      : next_(next),
        rules_(next, next.switchd.lcores),
        admission_(admission_config(next, next.switchd.lcores)),
        jobs_(next.switchd.job_places()),
        readmission_(next_, rules_, jobs_) {}

  Result<void> take(const Job& job, const SavedJob& saved) {
    if (auto reached = check_reach(job); !reached) return reached;
    if (auto fits = readmission_.check(saved); !fits) return fits;
    const auto places = jobs_.free_places(domains_of(saved));
    if (!places) return tl::unexpected(places.error());
    auto again = job_of(saved, *places);
    auto grant = readmit(next_, rules_.lanes(), admission_, *again, saved);
    if (!grant) return tl::unexpected(grant.error());
    again->grant = *grant;
    const uint64_t bytes = rules_.memory_bytes(*again);
    if (auto taken = admission_.take_memory(again->owner(), again->grant, bytes); !taken) {
      admission_.release(again->owner(), again->workers, again->grant);
      return fail(INA_ERR_NO_MEMORY, taken.error());
    }
    again->state = Job::State::kRejoining;
    jobs_.add(std::move(again));
    return {};
  }

 private:
  Result<void> check_reach(const Job& job) const {
    for (const Job::Worker& worker : job.members) {
      if (!worker.client) continue;
      if (std::string text = worker.way.kind->lost_text(worker.way, next_); !text.empty())
        return fail(INA_ERR_INVALID, std::move(text));
    }
    return {};
  }

  const ConductorConfig& next_;
  const JobRules rules_;
  scheduler::Admission admission_;
  JobTable jobs_;
  const Readmission readmission_;
};

/// Its workers were not told to begin, so they join again.
bool is_unsaved(const Job& job) {
  return job.state == Job::State::kJoining && job.reserved_until == 0;
}

}  // namespace

std::vector<Loss> losses_under(const ConductorConfig& next, const JobTable& jobs,
                               const Moment& moment) {
  Successor successor(next);
  std::vector<Loss> losses;
  for (const bool groups : {false, true})  // these need their jobs
    for (Job& job : jobs) {
      if (job.is_group() != groups || is_unsaved(job)) continue;
      if (auto taken = successor.take(job, saved_of(job, moment)); !taken)
        losses.push_back({&job, taken.error().text});
    }
  return losses;
}

}  // namespace ina::switchd
