#include "switchd/jobs/job_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "control/tokens.h"

namespace ina::switchd {

Result<std::vector<aggregator::JobIndex>> JobTable::free_places(uint32_t needed) const {
  std::vector<aggregator::JobIndex> found;
  for (size_t place = 0; place < domains_.size() && found.size() < needed; ++place)
    if (!domains_[place]) found.push_back(static_cast<aggregator::JobIndex>(place));
  if (found.size() == needed) return found;
  return fail(INA_ERR_REFUSED,
              fmt::format("the switch has {} places for jobs and groups (switch.max_jobs and "
                          "switch.max_groups), {} of them free; it needs {}{}",
                          domains_.size(), found.size(), needed,
                          needed == 1 ? "" : ", one for each 64 workers, and one above these"));
}

Job& JobTable::add(std::unique_ptr<Job> job) {
  auto& place = places_[job->index()];
  assert(!place);
  place = std::move(job);
  note_domains(*place);
  used_ = std::max<size_t>(used_, place->index() + 1);
  return *place;
}

void JobTable::note_domains(Job& job) {
  for (const Domain& domain : job.domains) domains_[domain.index] = &job;
}

void JobTable::remove(const Job& job) {
  for (const Domain& domain : job.domains) domains_[domain.index] = nullptr;
  places_[job.index()].reset();
  while (used_ != 0 && !places_[used_ - 1]) --used_;
}

Job* JobTable::find(JobId id) const {
  for (Job& job : *this)
    if (job.id == id) return &job;
  return nullptr;
}

Job* JobTable::find(const std::string& owner, const std::string& name) const {
  for (Job& job : *this)
    if (!job.is_group() && job.name == name && job.owner() == owner) return &job;
  return nullptr;
}

Job* JobTable::find_ticket(const std::string& ticket) const {
  Job* found = nullptr;
  for (Job& job : *this)
    if (!job.ticket.empty() && control::equal_in_constant_time(job.ticket, ticket)) found = &job;
  return found;
}

tl::expected<Job*, AdminError> JobTable::meant(const std::string& name,
                                               const std::string& owner) const {
  using Code = AdminError::Code;
  std::vector<Job*> named;
  std::string owners;
  for (Job& job : *this) {
    if (job.name != name || (!owner.empty() && job.owner() != owner)) continue;
    named.push_back(&job);
    owners += (owners.empty() ? "" : ", ") + job.owner();
  }
  if (named.size() == 1) return named.front();
  if (named.size() > 1)
    return tl::unexpected(AdminError{
        Code::kInvalid, fmt::format("{} jobs are named '{}', of {}: say whose is meant, by its "
                                    "owner or as {}/{}",
                                    named.size(), name, owners, named.front()->owner(), name)});
  const size_t slash = name.find('/');
  if (owner.empty() && slash != std::string::npos)
    if (Job* job = find(name.substr(0, slash), name.substr(slash + 1))) return job;
  return tl::unexpected(AdminError{
      Code::kNotFound, owner.empty() ? fmt::format("there is no job '{}'", name)
                                     : fmt::format("there is no job '{}' of {}", name, owner)});
}

}  // namespace ina::switchd
