// What administrators ask for, carried out: jobs with tickets, ending jobs and workers, draining,
// tokens. On the conductor's thread, between other events, and never waiting for who asked.
#include <sys/random.h>

#include <charconv>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

using Code = admin::Error::Code;

tl::unexpected<admin::Error> decline(Code code, std::string text) {
  return tl::unexpected(admin::Error{code, std::move(text)});
}

/// 128 random bits: nobody guesses them.
std::string new_ticket() {
  uint8_t bytes[16];
  size_t got = 0;
  while (got < sizeof(bytes))
    if (const ssize_t more = ::getrandom(bytes + got, sizeof(bytes) - got, 0); more > 0)
      got += static_cast<size_t>(more);
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// The number of "uid:1000"; nothing if it is something else.
std::optional<uid_t> uid_of(const std::string& tenant) {
  constexpr std::string_view kUser = "uid:";
  if (!tenant.starts_with(kUser)) return std::nullopt;
  uid_t uid = 0;
  const char* end = tenant.data() + tenant.size();
  const auto [stop, error] = std::from_chars(tenant.data() + kUser.size(), end, uid);
  if (error != std::errc() || stop != end || uid == static_cast<uid_t>(-1)) return std::nullopt;
  return uid;
}

/// What is wrong with the request, whatever the switch's state; empty if nothing.
std::string problem_of(const admin::CreateJob& request) {
  if (request.name.empty() || request.name.size() > 128)
    return "the job's name must have 1 to 128 characters";
  if (request.workers < 1 || request.workers > kMaxWorkers)
    return fmt::format("{} workers are not in 1..{}: a worker bitmap has {} bits", request.workers,
                       kMaxWorkers, kMaxWorkers);
  if (!uid_of(request.tenant))
    if (const std::string problem = control::tenant_problem(request.tenant); !problem.empty())
      return problem + ", nor uid: and the number of a user";
  if (request.priority_max < 1) return "priority_max is not in 1..255";
  if (request.ttl_ns < 1'000'000'000 || request.ttl_ns > admin::kMaxTtlNs)
    return fmt::format("the ttl is not in 1 s..{} days", admin::kMaxTtlNs / 86'400'000'000'000);
  return {};
}

}  // namespace

admin::Answer Conductor::administer(const admin::Request& request, const std::string& who) {
  admin::Answer answer = Json();
  try {
    answer = std::visit([&](const auto& asked) { return carry_out(asked, who); }, request);
  } catch (const std::exception& e) {
    answer = decline(Code::kInternal, std::string("the request failed: ") + e.what());
  }
  if (!answer)
    logging::warn("administrator refused", "administrators")("by", who)("text",
                                                                        answer.error().text);
  return answer;
}

// ---- jobs and tickets

admin::Answer Conductor::carry_out(const admin::CreateJob& request, const std::string& who) {
  if (const std::string problem = problem_of(request); !problem.empty())
    return decline(Code::kInvalid, problem);
  if (jobs_.find(request.tenant, request.name))
    return decline(Code::kExists,
                   fmt::format("there is a job '{}' of {} already", request.name, request.tenant));
  if (draining_) return decline(Code::kUnavailable, "the switch is drained: it takes no new job");
  SavedJob fresh = new_job(request.name, request.workers);
  fresh.ticket = new_ticket();
  const auto uid = uid_of(request.tenant);
  fresh.uid = uid.value_or(static_cast<uid_t>(-1));
  if (!uid) fresh.tenant = request.tenant;
  const auto admitted = admit(fresh,
                              {.slots_floor = request.slots_floor,
                               .slots_ceiling = request.slots_ceiling,
                               .priority_max = request.priority_max},
                              request.window_bytes, who);
  if (!admitted) return decline(Code::kNoRoom, admitted.error().text);
  Job& job = **admitted;
  job.reserved_until = now_ns() + request.ttl_ns;
  save(job);  // on disk before anybody hears of it
  offer_jobs();
  const scheduler::Grant& grant = job.grant;
  const uint32_t lanes = job.geometry.lanes;
  const bool fixed = config_.fixed_slots();
  return Json{{"name", job.name},
              {"ticket", job.ticket},
              {"job_id", value(job.id)},
              {"workers", job.workers},
              {"tenant", job.owner()},
              {"window", grant.window},
              {"slots_floor", (fixed ? grant.slots_per_lane : grant.floor_per_lane) * lanes},
              {"slots_ceiling", (fixed ? grant.slots_per_lane : grant.ceiling_per_lane) * lanes},
              {"priority_max", grant.priority_max},
              {"memory_bytes", grant.memory_bytes},
              {"expires_in_s", request.ttl_ns / 1'000'000'000}};
}

admin::Answer Conductor::carry_out(const admin::AbortJob& request, const std::string& who) {
  const auto meant = jobs_.meant(request.name, request.owner);
  if (!meant) return tl::unexpected(meant.error());
  Job* job = *meant;
  const std::string text =
      fmt::format("an administrator ({}) ended job '{}'{}", who, job->name,
                  request.reason.empty() ? "" : ": " + request.reason.substr(0, 1024));
  const JobId id = job->id;
  end_job(*job, INA_ERR_ABORTED, text);
  end_groups_of(id, INA_ERR_ABORTED, text, false);
  return Json::object();
}

admin::Answer Conductor::carry_out(const admin::KickWorker& request, const std::string& who) {
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
    end_job(*job, INA_ERR_ABORTED, text);
    return Json::object();
  }
  logging::warn("worker sent away")("text", text);
  send(*client, answer::Abort{INA_ERR_ABORTED, text});
  worker_gone(*client);
  return Json::object();
}

/// False: refused, and `client` was told.
bool Conductor::check_ticket(Client& client, const std::string& ticket) {
  const Job* found = jobs_.find_ticket(ticket);
  if (!found) {
    refuse(client, INA_ERR_REFUSED,
           "the ticket is unknown: its job has ended, or its time has passed, or it was made for "
           "another switch (INA_TICKET)");
    return false;
  }
  client.ticket = found->id;
  client.tenant = found->owner();
  return true;
}

void Conductor::end_overdue_reservations(Nanos now) {
  for (Job& job : jobs_) {
    if (job.reserved_until == 0 || now < job.reserved_until) continue;
    end_job(job, INA_ERR_TIMEOUT,
            fmt::format("job '{}' was made for a time that has passed: {}", job.name,
                        waiting_.text(job)));
  }
}

// ---- draining

admin::Answer Conductor::carry_out(const admin::Drain&, const std::string& who) {
  if (!draining_) logging::info("drained: no new jobs")("by", who);
  draining_ = true;
  return carry_out(admin::GetDrain{}, who);
}

admin::Answer Conductor::carry_out(const admin::Undrain&, const std::string& who) {
  if (draining_) logging::info("drained no more")("by", who);
  draining_ = false;
  return carry_out(admin::GetDrain{}, who);
}

admin::Answer Conductor::carry_out(const admin::GetDrain&, const std::string&) {
  Json left = Json::array();
  for (const Job& job : jobs_) left.push_back({{"name", job.name}, {"owner", job.owner()}});
  return Json{{"draining", draining_}, {"jobs", left}};
}

// ---- the rest

admin::Answer Conductor::carry_out(const admin::GetStatus&, const std::string&) {
  return status_.make(true, draining_);
}

admin::Answer Conductor::carry_out(const admin::GetCounters&, const std::string&) {
  return status_.make(false, draining_);
}

admin::Answer Conductor::carry_out(const admin::GetSlots&, const std::string&) {
  return slot_map_.make();
}

admin::Answer Conductor::carry_out(const admin::Reload&, const std::string& who) {
  const bool has_credentials = connections_.tcp_listener() &&
                               !(config_.token_file.empty() && config_.tls.certificate.empty());
  if (!has_credentials && !config_.reopen_log)
    return decline(Code::kInvalid,
                   "this switch has neither a token file (control.token_file) nor certificates "
                   "(control.tls_certificate) nor a log of its own (log.file)");
  if (config_.reopen_log) {
    if (const auto reopened = config_.reopen_log(); !reopened)
      return decline(Code::kInvalid, reopened.error().text);
    logging::info("log opened again")("by", who);
  }
  if (!has_credentials) return Json{{"tokens", 0}};
  if (const auto loaded = credentials_.load(*connections_.tcp_listener()); !loaded)
    return decline(Code::kInvalid, loaded.error().text + "; all stays as it is");
  const size_t tokens = credentials_.tokens();
  logging::info("credentials read again")("tokens", tokens)("by", who);
  return Json{{"tokens", tokens}};
}

}  // namespace ina::switchd
