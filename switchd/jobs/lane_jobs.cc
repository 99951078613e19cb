#include "switchd/jobs/lane_jobs.h"

#include <algorithm>
#include <vector>

#include "switchd/ports/port_kind.h"

namespace ina::switchd {

void LaneJobs::add(Job& job, Seq start) {
  // The root first: nothing may go up before it is there.
  for (size_t number = job.domains.size(); number-- > 0;) {
    Domain& domain = job.domains[number];
    const bool is_below = job.is_wide() && &domain != &job.root_domain();
    lanes_.run_each([&](uint32_t lane) {
      command::AddJob command{.job = domain.index, .id = job.id};
      rules_.fill_spec(job, domain, lane, start_of(job, domain, start), command.spec);
      if (is_below)
        command.above = LanePlace{job.root_domain().index, Rank{static_cast<uint16_t>(number)}};
      return command;
    });
  }
  if (job.state == Job::State::kRejoining && job.home == Home::kTree) report_held(job);
}

namespace {

/// The members of a domain, and those below them: `visit(member, worker)`.
void for_each_member(const Job& job, const Domain& domain, auto&& visit) {
  job.for_each_place([&](Rank place, const Job::Worker& worker) {
    const Job::Below* const below = job.below_at(place);
    const uint32_t member = domain.member_at(value(below ? *below->ranks.begin() : place));
    if (member != aggregator::TreePlace::kElsewhere) visit(member, worker);
  });
}

}  // namespace

/// Where a domain begins: workers that are not in it may be further.
Seq LaneJobs::start_of(const Job& job, const Domain& domain, Seq start) {
  if (job.home != Home::kTree || job.state != Job::State::kRejoining) return start;
  Seq end;
  for_each_member(job, domain, [&](uint32_t, const Job::Worker& worker) {
    end = std::max(end, worker.results_end);
  });
  return end;
}

/// Tells each domain the fragments whose results its members have.
void LaneJobs::report_held(const Job& job) {
  for (const Domain& domain : job.domains) {
    std::vector<std::vector<Seq>> held(domain.members);
    for_each_member(job, domain, [&](uint32_t member, const Job::Worker& worker) {
      held[member].insert(held[member].end(), worker.held.begin(), worker.held.end());
    });
    for (uint32_t member = 0; member < domain.members; ++member)
      if (!held[member].empty())
        lanes_.run(
            command::SetHeld{domain.index, Rank{static_cast<uint16_t>(member)}, held[member]});
  }
}

void LaneJobs::set_held(const Job& job, Rank rank) {
  const LanePlace place = job.lane_place(rank);
  lanes_.run(command::SetHeld{place.job, place.member, job.at(rank).held});
}

void LaneJobs::set_parent_epoch(const Job& job, uint32_t epoch) {
  lanes_.run(command::SetParentEpoch{job.root_domain().index, epoch});
}

std::vector<Seq> LaneJobs::held(const Job& job) {
  std::vector<Seq> held;
  for (const auto& command : lanes_.run(command::FindHeld{job.root_domain().index}))
    held.insert(held.end(), command.held.begin(), command.held.end());
  std::ranges::sort(held);
  return held;
}

void LaneJobs::detach_above(const Job& job) {
  lanes_.run(command::Detach{job.root_domain().index, kFallbackRank});
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
    return command::AttachFrame{.job = job.root_domain().index,
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
