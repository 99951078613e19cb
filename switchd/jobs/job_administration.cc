#include "switchd/jobs/job_administration.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/tokens.h"
#include "switchd/jobs/job_name.h"
#include "switchd/random.h"

namespace ina::switchd {

namespace request = control::request;

namespace {

using Code = AdminError::Code;
using control::Json;

tl::unexpected<AdminError> decline(Code code, std::string text) {
  return tl::unexpected(AdminError{code, std::move(text)});
}

/// 128 random bits.
std::string new_ticket() {
  return fmt::format("{:016x}{:016x}", random_u64(), random_u64());
}

/// The problem of a request that would be wrong in any state of the switch; empty: none.
std::string problem_of(const request::CreateJob& request) {
  if (const std::string problem = job_name_problem(request.name); !problem.empty()) return problem;
  if (request.workers < 1 || request.workers > kMaxRanks)
    return fmt::format("{} workers are not in 1..{}", request.workers, kMaxRanks);
  if (!control::uid_of(request.tenant))
    if (const std::string problem = control::tenant_problem(request.tenant); !problem.empty())
      return problem + ", nor uid: and the number of a user";
  if (request.priority_max < 1) return "priority_max is not in 1..255";
  if (request.ttl_ns < 1'000'000'000 || request.ttl_ns > request::kMaxTtlNs)
    return fmt::format("the ttl is not in 1 s..{} days", request::kMaxTtlNs / 86'400'000'000'000);
  return {};
}

}  // namespace

AdminAnswer JobAdministration::create(const request::CreateJob& request, const std::string& who) {
  if (const std::string problem = problem_of(request); !problem.empty())
    return decline(Code::kInvalid, problem);
  if (jobs_.find(request.tenant, request.name))
    return decline(Code::kExists,
                   fmt::format("there is a job '{}' of {} already", request.name, request.tenant));
  if (maker_.draining())
    return decline(Code::kUnavailable, "the switch is drained: it takes no new job");
  SavedJob fresh = records_.new_job(request.name, request.workers);
  fresh.ticket = new_ticket();
  const auto uid = control::uid_of(request.tenant);
  fresh.uid = uid.value_or(static_cast<uid_t>(-1));
  if (!uid) fresh.tenant = request.tenant;
  const auto admitted = maker_.admit(fresh,
                                     {.slots_floor = request.slots_floor,
                                      .slots_ceiling = request.slots_ceiling,
                                      .priority_max = request.priority_max},
                                     request.window_bytes, who);
  if (!admitted) return decline(Code::kNoRoom, admitted.error().text);
  Job& job = **admitted;
  job.reserved_until = now_ns() + request.ttl_ns;
  // On disk before anybody hears of it: whoever has the ticket relies on that.
  if (const auto saved = records_.save(job); !saved) {
    ending_.remove(job);
    return decline(Code::kUnavailable, "the job was not made: " + saved.error().text);
  }
  offers_.offer();
  return description(job, request.ttl_ns);
}

/// The answer to the administrator who made the job.
Json JobAdministration::description(const Job& job, Nanos ttl_ns) const {
  const scheduler::Grant& grant = job.grant;
  const uint32_t lanes = job.geometry.lanes;
  const bool fixed = config_.fixed_slots();
  return {{"name", job.name},
          {"ticket", job.ticket},
          {"job_id", value(job.id)},
          {"workers", job.workers},
          {"tenant", job.owner()},
          {"window", grant.window},
          {"slots_floor", (fixed ? grant.slots_per_lane : grant.floor_per_lane) * lanes},
          {"slots_ceiling", (fixed ? grant.slots_per_lane : grant.ceiling_per_lane) * lanes},
          {"priority_max", grant.priority_max},
          {"memory_bytes", grant.memory_bytes},
          {"expires_in_s", ttl_ns / 1'000'000'000}};
}

AdminAnswer JobAdministration::abort(const request::AbortJob& request, const std::string& who) {
  const auto meant = jobs_.meant(request.name, request.owner);
  if (!meant) return tl::unexpected(meant.error());
  Job* job = *meant;
  const std::string text =
      fmt::format("an administrator ({}) ended job '{}'{}", who, job->name,
                  request.reason.empty() ? "" : ": " + request.reason.substr(0, 1024));
  const JobId id = job->id;
  ending_.end(*job, INA_ERR_ABORTED, text);
  ending_.end_groups_of(id, INA_ERR_ABORTED, text);
  return Json::object();
}

AdminAnswer JobAdministration::kick(const request::KickWorker& request, const std::string& who) {
  const auto meant = jobs_.meant(request.job, request.owner);
  if (!meant) return tl::unexpected(meant.error());
  Job* job = *meant;
  Client* client = request.rank < job->workers ? job->members[request.rank].client : nullptr;
  if (!client)
    return decline(Code::kNotFound,
                   fmt::format("job '{}' has no rank {} at present", job->name, request.rank));
  const std::string text =
      fmt::format("an administrator ({}) sent rank {} ({}) of job '{}' away{}", who, request.rank,
                  client->peer.text(), job->name,
                  request.reason.empty() ? "" : ": " + request.reason.substr(0, 1024));
  connections_.close_later(*client);
  if (job->state == Job::State::kRunning || job->state == Job::State::kLeaving) {
    ending_.end(*job, INA_ERR_ABORTED, text);
    return Json::object();
  }
  logging::warn("worker sent away")("text", text);
  connections_.send(*client, control::answer::Abort{INA_ERR_ABORTED, text});
  departures_.on_gone(*client);
  return Json::object();
}

void JobAdministration::end_overdue(Nanos now) {
  for (Job& job : jobs_) {
    if (job.reserved_until == 0 || now < job.reserved_until) continue;
    ending_.end(job, INA_ERR_TIMEOUT,
                fmt::format("job '{}' was made for a time that has passed: {}", job.name,
                            wait_reasons_.text(job)));
  }
}

Nanos JobAdministration::next_overdue(Nanos until) const {
  for (const Job& job : jobs_)
    if (job.reserved_until != 0) until = std::min(until, job.reserved_until);
  return until;
}

}  // namespace ina::switchd
