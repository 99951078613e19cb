// Fallback servers (ina-psd): one process that serves all jobs of a switch whose fallback has a
// home of its own. It has one connection on which it asks for jobs, and one more in each job, on
// which it attaches like a worker, over the shm port or an Ethernet port. docs/protocol.md,
// "Control socket", lists the messages.
#pragma once

#include "control/messages.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/gathering.h"
#include "switchd/job_ending.h"
#include "switchd/job_offers.h"
#include "switchd/job_records.h"
#include "switchd/job_table.h"
#include "switchd/lane_jobs.h"
#include "switchd/placement.h"
#include "switchd/resources.h"
#include "switchd/transports.h"

namespace ina::switchd {

class FallbackServers {
 public:
  /// All of them must outlive it.
  FallbackServers(const ConductorConfig& config, const JobTable& jobs, JobRecords& records,
                  LaneJobs& lane_jobs, Resources& resources, Transports& transports,
                  Placement& placement, Gathering& gathering, JobEnding& ending, JobOffers& offers,
                  Connections& connections)
      : config_(config),
        jobs_(jobs),
        records_(records),
        lane_jobs_(lane_jobs),
        resources_(resources),
        transports_(transports),
        placement_(placement),
        gathering_(gathering),
        ending_(ending),
        offers_(offers),
        connections_(connections) {}

  /// Whether the message is a server's.
  static bool is_from_server(const Client& client, const control::request::Message& message);
  void handle(Client& client, const control::request::Message& message);
  /// Its region is there, if it needs one.
  void attach(Client& client);
  /// The connection of a job's server is gone. The job goes on and waits: what left the switch as
  /// partial sums comes back when the server does.
  void on_gone(Client& client);

 private:
  void on_serve(Client& client, const control::request::Serve& serve);
  void on_join(Client& client, const control::request::JoinFallback& join);
  void on_attach(Client& client);
  Result<Job*> job_of_join(const Client& client, const control::request::JoinFallback& join) const;
  Result<void> take(Client& client, Job& job, const MemberTransport& transport);
  Result<void> attach_to_lanes(Job& job);

  const ConductorConfig& config_;
  const JobTable& jobs_;
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  Transports& transports_;
  Placement& placement_;
  Gathering& gathering_;
  JobEnding& ending_;
  JobOffers& offers_;
  Connections& connections_;
};

}  // namespace ina::switchd
