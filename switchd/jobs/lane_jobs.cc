#include "switchd/jobs/lane_jobs.h"

#include <algorithm>

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

template <class Attach>
Result<void> LaneJobs::run_attach(const Attach& worker) {
  for (const auto& command : lanes_.run(worker))
    if (!command.error.empty()) return fail(INA_ERR_REFUSED, command.error);
  return {};
}

Result<void> LaneJobs::attach(Job& job, Rank rank) {
  const Job::Worker& worker = job.at(rank);
  if (worker.session)
    return run_attach(command::AttachShm{
        .job = job.index, .rank = rank, .session = worker.session.get(), .parks = worker.parks});
  return run_attach(command::AttachFrame{.job = job.index,
                                         .rank = rank,
                                         .frame_port = worker.frame_port,
                                         .address = worker.address.value_or(wire::Address{}),
                                         .job_id = job.id,
                                         .job_key = job.key,
                                         .root = job.root,
                                         .tag_keys = worker.tag_keys,
                                         .multicast = worker.multicast,
                                         .parks = worker.parks});
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
