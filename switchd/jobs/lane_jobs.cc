#include "switchd/jobs/lane_jobs.h"

#include <algorithm>

#include "switchd/ports/port_kind.h"

namespace ina::switchd {

void LaneJobs::add(Job& job, Seq start) {
  lanes_.run_each([&](uint32_t lane) {
    command::AddJob command{.job = job.index};
    rules_.fill_spec(job, lane, start, command.spec);
    return command;
  });
}

void LaneJobs::remove(const Job& job) {
  lanes_.run(command::RemoveJob{job.index});
}

Result<void> LaneJobs::attach(const Job& job, Rank rank) {
  return job.at(rank).way.kind->attach(job, rank);
}

void LaneJobs::detach(const Job& job, Rank rank) {
  lanes_.run(command::Detach{job.index, rank});
}

void LaneJobs::begin_epoch(const Job& job) {
  lanes_.run(command::NewEpoch{.job = job.index, .epoch = job.epoch, .instance = job.instance});
}

Seq LaneJobs::results_end(const Job& job) {
  Seq end;
  for (const auto& command : lanes_.run(command::FindProgress{job.index}))
    end = std::max(end, command.results_end);
  return end;
}

}  // namespace ina::switchd
