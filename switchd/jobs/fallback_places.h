// The place that a fallback server has in a job: it is given, taken up when the server attaches,
// and lost with its connection. A successor takes the place in a new epoch, because its
// predecessor's sums are gone.
#pragma once

#include "switchd/config/config.h"
#include "switchd/connections.h"
#include "switchd/jobs/gathering.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/jobs/placement.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class FallbackPlaces {
 public:
  /// All of them must outlive it.
  FallbackPlaces(const config::AggregatorConfig& config, JobRecords& records, LaneJobs& lane_jobs,
                 Resources& resources, Placement& placement, Gathering& gathering,
                 Connections& connections)
      : config_(config),
        records_(records),
        lane_jobs_(lane_jobs),
        resources_(resources),
        placement_(placement),
        gathering_(gathering),
        connections_(connections) {}

  /// Gives the place to a client of the job, which has no server, and tells the client.
  Result<void> give(Client& client, Job& job, Way way);
  /// The lanes reach the server from here on, and the job goes on if it waited for nobody else.
  Result<void> attach(Client& client);
  /// The job goes on and waits: fragments with partial sums complete when a server is back.
  void lose(Client& client);

 private:
  Result<void> attach_to_lanes(Job& job);

  const config::AggregatorConfig& config_;
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  Placement& placement_;
  Gathering& gathering_;
  Connections& connections_;
};

}  // namespace ina::switchd
