// Where a lane finds the workers of its jobs: on the shm port, or at an Ethernet port. Used by the
// lane's thread.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "common/result.h"
#include "io/shm/shm_port.h"
#include "switchd/lanes/lane_commands.h"

namespace ina::switchd {

/// Where a worker is to be found.
template <class FramePort>
struct Member {
  bool bound = false;
  FramePort* port = nullptr;  ///< nullptr: on the shm port
  io::EndpointIndex endpoint = 0;
  bool multicast = false;  ///< results for all come to its group
  bool covered = false;    ///< and are sent there for another worker of the job at this port

  bool is_at_shm() const { return bound && !port; }
};

template <class FramePort>
struct JobMembers {
  explicit JobMembers(JobId of = {}) : id(of) {}

  JobId id;
  std::array<Member<FramePort>, kMaxWorkers + 1> member{};  ///< by rank; kFallbackRank is the last
  bool reported = false;                                    ///< that its workers disagree

  /// Endpoints of the workers at the shm port, by rank.
  std::span<const io::EndpointIndex> at_shm() const {
    return std::span(at_shm_).first(at_shm_count_);
  }
  void list_those_at_shm() {
    at_shm_count_ = 0;
    for (const Member<FramePort>& worker : std::span(member).first(kMaxWorkers))
      if (worker.is_at_shm()) at_shm_[at_shm_count_++] = worker.endpoint;
  }

  /// One worker at each port has its job's results sent to the group of all.
  void cover() {
    for (size_t i = 0; i < member.size(); ++i) {
      if (!member[i].multicast) continue;
      const auto before = std::span(member).first(i);
      member[i].covered = std::ranges::any_of(before, [&](const Member<FramePort>& other) {
        return other.multicast && other.port == member[i].port;
      });
    }
  }

 private:
  std::array<io::EndpointIndex, kMaxWorkers> at_shm_{};
  uint32_t at_shm_count_ = 0;
};

template <class FramePort>
class LaneMembers {
 public:
  /// The ports must outlive it.
  LaneMembers(io::shm::ShmPort& shm, const std::vector<FramePort*>& frame_ports, uint32_t max_jobs)
      : shm_(shm), frame_ports_(frame_ports), jobs_(max_jobs) {}

  JobMembers<FramePort>& of(aggregator::JobIndex job) { return jobs_[job]; }
  const Member<FramePort>& at(aggregator::JobIndex job, Rank rank) const {
    return jobs_[job].member[value(rank)];
  }

  void add(aggregator::JobIndex job, JobId id) { jobs_[job] = JobMembers<FramePort>(id); }
  void remove(aggregator::JobIndex job) {
    for (Member<FramePort>& member : jobs_[job].member) release(member);
    for (FramePort* port : frame_ports_) port->forget(jobs_[job].id);
    jobs_[job] = JobMembers<FramePort>{};
  }

  Result<void> attach(const command::AttachShm& worker) {
    const auto endpoint = shm_.attach(*worker.session, worker.job, worker.rank);
    if (!endpoint) return tl::unexpected(endpoint.error());
    jobs_[worker.job].member[value(worker.rank)] = {.bound = true, .endpoint = *endpoint};
    jobs_[worker.job].list_those_at_shm();
    return {};
  }
  Result<void> attach(const command::AttachFrame& worker) {
    // Its frames may come in by the wrong port, which then says so. A switch has a key of its own,
    // and the port remembers one.
    if (worker.root != kSwitchFamily)
      for (FramePort* port : frame_ports_) port->expect(worker.job_id, worker.job_key);
    FramePort* const port = frame_ports_[worker.frame_port];
    const auto endpoint = port->bind(worker.address, worker.job_id, worker.job_key, worker.job,
                                     worker.rank, worker.tag_keys, worker.root);
    if (!endpoint) return tl::unexpected(endpoint.error());
    JobMembers<FramePort>& job = jobs_[worker.job];
    job.member[value(worker.rank)] = {
        .bound = true, .port = port, .endpoint = *endpoint, .multicast = worker.multicast};
    job.list_those_at_shm();
    job.cover();
    return {};
  }
  void detach(aggregator::JobIndex job, Rank rank) {
    release(jobs_[job].member[value(rank)]);
    jobs_[job].list_those_at_shm();
    jobs_[job].cover();
  }

  void set_registered(const command::SetRegistered& region) {
    const Member<FramePort>& member = at(region.job, region.rank);
    if (member.is_at_shm()) shm_.set_registered(member.endpoint, region.number, region.memory);
  }

  /// Which frames of a job came in and which did not.
  void find(command::FindArrivals& arrivals) const {
    const JobMembers<FramePort>& job = jobs_[arrivals.job];
    for (const Rank rank : WorkerSet::first(kMaxWorkers)) {
      const Member<FramePort>& member = job.member[value(rank)];
      if (member.bound && member.port && member.port->heard(member.endpoint))
        arrivals.heard.insert(rank);
    }
    for (uint32_t port = 0; port < frame_ports_.size(); ++port)
      for (const io::DroppedFrames& frames : frame_ports_[port]->dropped(job.id))
        if (frames.count != 0) arrivals.dropped.push_back({port, frames});
  }

 private:
  void release(Member<FramePort>& member) {
    if (!member.bound) return;
    if (member.port)
      member.port->unbind(member.endpoint);
    else
      shm_.detach(member.endpoint);
    member = {};
  }

  io::shm::ShmPort& shm_;
  const std::vector<FramePort*>& frame_ports_;
  std::vector<JobMembers<FramePort>> jobs_;
};

}  // namespace ina::switchd
