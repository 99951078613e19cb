// Whose jobs are whose, and which job a name means. A name belongs to the user or tenant that gave
// it: others may have jobs of the same name, and none of them is in anybody's way.
#include <fmt/format.h>

#include <algorithm>

#include "switchd/conductor_state.h"

namespace ina::switchd {

Conductor::Job* Conductor::job_of(const std::string& owner, const std::string& name) const {
  const auto found = std::ranges::find_if(
      jobs_, [&](const auto& job) { return job && job->name == name && job->owner() == owner; });
  return found == jobs_.end() ? nullptr : found->get();
}

Conductor::Job* Conductor::job_of(JobId id) const {
  const auto found =
      std::ranges::find_if(jobs_, [&](const auto& job) { return job && job->id == id; });
  return found == jobs_.end() ? nullptr : found->get();
}

/// Why `client` may not take part in `job`; empty if it may. Its own, the one of its ticket, or, as
/// root on this host, the one whose owner it names.
std::string Conductor::foreign_text(const Client& client, const Job& job, const Json& body) {
  if (client.ticket) {
    if (*client.ticket == job.id) return {};
    return fmt::format("the ticket is for another job than '{}'", job.name);
  }
  if (client.owner() == job.owner()) return {};
  if (client.peer.remote)
    return fmt::format("job '{}' does not belong to tenant '{}', whose worker this is", job.name,
                       client.tenant);
  if (client.peer.uid != 0)
    return fmt::format(
        "job '{}' belongs to {}, and this is a worker of {}: it needs the job's "
        "ticket (INA_TICKET)",
        job.name, job.owner(), client.owner());
  if (body.value("owner", std::string()) == job.owner()) return {};
  return fmt::format("job '{}' belongs to {}: root joins it by naming its owner (INA_JOB_OWNER={})",
                     job.name, job.owner(), job.owner());
}

/// The job that a `join` means; a new one if there is none. nullptr: refused.
Conductor::Job* Conductor::find_or_admit(Client& client, const Json& body) {
  const std::string name = body.at("job").get<std::string>();
  const std::string own = client.owner();
  if (client.ticket) {
    Job* job = job_of(*client.ticket);
    if (job && job->name == name) return job;
    refuse(client, INA_ERR_REFUSED,
           fmt::format("the ticket is for another job than '{}' (INA_JOB)", name));
    return nullptr;
  }
  const std::string owner = body.value("owner", own);
  const bool others = owner != own;
  if (others && (client.peer.remote || client.peer.uid != 0)) {
    refuse(client, INA_ERR_REFUSED,
           fmt::format("this is a worker of {}: it may join a job of {} only with the job's ticket "
                       "(INA_TICKET), not by naming its owner (INA_JOB_OWNER)",
                       own, owner));
    return nullptr;
  }
  if (Job* job = job_of(owner, name)) return job;
  if (others) {
    refuse(client, INA_ERR_REFUSED,
           fmt::format("there is no job '{}' of {} (INA_JOB_OWNER); in another's name none is made",
                       name, owner));
    return nullptr;
  }
  SavedJob fresh = new_job(name, body.at("world_size").get<uint32_t>());
  fresh.uid = client.peer.uid;
  fresh.tenant = client.tenant;
  auto job = admit(fresh, {}, body.value("window_bytes", uint64_t{0}), client.peer.text());
  if (!job) {
    refuse(client, job.error().status, job.error().text);
    return nullptr;
  }
  offer_jobs();
  return *job;
}

/// The job that an administrator means: `owner` empty: the only one of that name. `name` may also
/// be "OWNER/NAME".
tl::expected<Conductor::Job*, admin::Error> Conductor::job_meant(const std::string& name,
                                                                 const std::string& owner) const {
  using Code = admin::Error::Code;
  std::vector<Job*> named;
  std::string owners;
  for (const auto& job : jobs_) {
    if (!job || job->name != name || (!owner.empty() && job->owner() != owner)) continue;
    named.push_back(job.get());
    owners += (owners.empty() ? "" : ", ") + job->owner();
  }
  if (named.size() == 1) return named.front();
  if (named.size() > 1)
    return tl::unexpected(admin::Error{
        Code::kInvalid, fmt::format("{} jobs are named '{}', of {}: say whose is meant, by its "
                                    "owner or as {}/{}",
                                    named.size(), name, owners, named.front()->owner(), name)});
  const size_t slash = name.find('/');
  if (owner.empty() && slash != std::string::npos)
    if (Job* job = job_of(name.substr(0, slash), name.substr(slash + 1))) return job;
  return tl::unexpected(admin::Error{
      Code::kNotFound, owner.empty() ? fmt::format("there is no job '{}'", name)
                                     : fmt::format("there is no job '{}' of {}", name, owner)});
}

}  // namespace ina::switchd
