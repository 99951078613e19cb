#include "switchd/jobs/lane_jobs.h"

#include <algorithm>
#include <ranges>
#include <vector>

#include "switchd/ports/port_kind.h"

namespace ina::switchd {

void LaneJobs::add(Job& job, Seq start) {
  // The root first: nothing may go up before it is there.
  for (Domain& domain : std::views::reverse(job.domains)) {
    const bool is_below = job.is_wide() && &domain != &job.root_domain();
    lanes_.run_each([&](uint32_t lane) {
      command::AddJob command{.job = domain.index, .id = job.id};
      rules_.fill_spec(job, domain, lane, start_of(job, domain, start), command.spec);
      if (is_below)
        command.above = LanePlace{job.root_domain().index,
                                  Rank{static_cast<uint16_t>(&domain - job.domains.data())}};
      return command;
    });
  }
  if (job.state == Job::State::kRejoining && job.home == Home::kTree) report_held(job);
}

/// Where a domain begins: workers that are not in it may be further.
Seq LaneJobs::start_of(const Job& job, const Domain& domain, Seq start) {
  if (job.home != Home::kTree || job.state != Job::State::kRejoining) return start;
  Seq end;
  for (uint32_t rank = 0; rank < job.workers; ++rank)
    if (domain.member_at(rank) != aggregator::TreePlace::kElsewhere)
      end = std::max(end, job.members[rank].results_end);
  return end;
}

/// Tells each domain the fragments whose results its members have.
void LaneJobs::report_held(const Job& job) {
  for (const Domain& domain : job.domains) {
    std::vector<std::vector<Seq>> held(domain.members);
    for (uint32_t rank = 0; rank < job.workers; ++rank) {
      const uint8_t member = domain.member_at(rank);
      if (member == aggregator::TreePlace::kElsewhere) continue;
      held[member].insert(held[member].end(), job.members[rank].held.begin(),
                          job.members[rank].held.end());
    }
    for (uint32_t member = 0; member < domain.members; ++member)
      if (!held[member].empty())
        lanes_.run(
            command::SetHeld{domain.index, Rank{static_cast<uint16_t>(member)}, held[member]});
  }
}

void LaneJobs::remove(const Job& job) {
  for (const Domain& domain : job.domains) lanes_.run(command::RemoveJob{domain.index});
}

Result<void> LaneJobs::attach(const Job& job, Rank rank) {
  return job.at(rank).way.kind->attach(job, rank);
}

void LaneJobs::detach(const Job& job, Rank rank) {
  const LanePlace place = job.lane_place(rank);
  lanes_.run(command::Detach{place.job, place.member});
}

Result<void> LaneJobs::attach_above(const Job& job, uint32_t frame_port) {
  const control::answer::Place& place = job.above->joined.place;
  return lanes_.run_each_all([&](uint32_t lane) {
    return command::AttachFrame{.job = job.index(),
                                .rank = kFallbackRank,
                                .frame_port = frame_port,
                                .address = address_of_lane(*place.address, lane),
                                .job_id = JobId{place.job_id},
                                .job_key = place.job_key,
                                .root = kSwitchFamily};
  });
}

void LaneJobs::begin_epoch(const Job& job) {
  lanes_.run(command::NewEpoch{.job = job.index(), .epoch = job.epoch, .instance = job.instance});
}

Seq LaneJobs::results_end(const Job& job) {
  Seq end;
  for (const Domain& domain : job.domains)
    for (const auto& command : lanes_.run(command::FindProgress{domain.index}))
      end = std::max(end, command.results_end);
  return end;
}

}  // namespace ina::switchd
