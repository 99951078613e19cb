#include "switchd/lane_jobs.h"

#include <algorithm>

namespace ina::switchd {

void LaneJobs::add(Job& job, Seq start) {
  lanes_.run(LaneCommand::Kind::kAddJob, [&](LaneCommand& command, uint32_t lane) {
    command.job = job.index;
    rules_.fill_spec(job, lane, start, command.spec);
  });
}

void LaneJobs::remove(const Job& job) {
  lanes_.run(LaneCommand::Kind::kRemoveJob,
             [&](LaneCommand& command, uint32_t) { command.job = job.index; });
}

Result<void> LaneJobs::attach(Job& job, Rank rank) {
  const Job::Worker& worker = job.at(rank);
  const auto commands =
      lanes_.run(worker.session ? LaneCommand::Kind::kAttachShm : LaneCommand::Kind::kAttachFrame,
                 [&](LaneCommand& command, uint32_t) {
                   command.job = job.index;
                   command.rank = rank;
                   command.session = worker.session.get();
                   command.frame_port = worker.frame_port;
                   command.multicast = worker.multicast;
                   command.parks = worker.parks;
                   command.spec.id = job.id;
                   command.job_key = job.key;
                   command.root = job.root;
                   if (worker.address) command.address = *worker.address;
                   command.tag_keys = worker.tag_keys;
                 });
  for (const auto& command : commands)
    if (!command->error.empty()) return fail(INA_ERR_REFUSED, command->error);
  return {};
}

void LaneJobs::detach(const Job& job, Rank rank) {
  lanes_.run(LaneCommand::Kind::kDetach, [&](LaneCommand& command, uint32_t) {
    command.job = job.index;
    command.rank = rank;
  });
}

void LaneJobs::begin_epoch(const Job& job) {
  lanes_.run(LaneCommand::Kind::kNewEpoch, [&](LaneCommand& command, uint32_t) {
    command.job = job.index;
    command.spec.epoch = job.epoch;
    command.spec.instance = job.instance;
  });
}

Seq LaneJobs::results_end(const Job& job) {
  Seq end;
  for (const auto& command : lanes_.run(LaneCommand::Kind::kProgress,
                                        [&](LaneCommand&c, uint32_t) { c.job = job.index; }))
    end = std::max(end, command->results_end);
  return end;
}

}  // namespace ina::switchd
