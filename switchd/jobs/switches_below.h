// Switches below this one, each of which is one member of a job for its workers (docs/protocol.md,
// "Trees"): they join, tell who has come there, and go.
#pragma once

#include <string>

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/identification.h"
#include "switchd/jobs/departures.h"
#include "switchd/jobs/gathering.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/placement.h"
#include "switchd/ports/ports.h"

namespace ina::switchd {

class SwitchesBelow {
 public:
  /// All of them must outlive it.
  SwitchesBelow(const ConductorConfig& config, const JobTable& jobs, Identification& identification,
                Ports& ports, Placement& placement, JobRecords& records, JobMaker& maker,
                JobEnding& ending, LaneJobs& lane_jobs, Resources& resources, Gathering& gathering,
                Departures& departures, Splits& splits, MemberGroups& member_groups,
                GroupPlaces& group_places, Connections& connections)
      : config_(config),
        jobs_(jobs),
        identification_(identification),
        ports_(ports),
        placement_(placement),
        records_(records),
        maker_(maker),
        ending_(ending),
        lane_jobs_(lane_jobs),
        resources_(resources),
        gathering_(gathering),
        departures_(departures),
        splits_(splits),
        member_groups_(member_groups),
        group_places_(group_places),
        connections_(connections) {}

  /// A Join with ranks.
  void on_join(Client& client, const control::request::Join& join);
  /// A Join with ranks, for its workers in a group.
  void on_join_group(Client& line, uint32_t channel, const control::request::Join& join);
  void on_rejoin_group(Client& line, uint32_t channel, const control::request::Rejoin& message);
  /// A Rejoin with ranks: the switch, or its connection, was away, or this switch has started
  /// again.
  void on_rejoin(Client& client, const control::request::Rejoin& message);
  /// Messages that it has in common with workers.
  static bool may_say(const control::request::Message& message) {
    using namespace control::request;
    return std::holds_alternative<Attach>(message) || std::holds_alternative<Abort>(message) ||
           std::holds_alternative<Mismatch>(message) || std::holds_alternative<Explain>(message);
  }
  /// False: it is no message of a switch about a job that runs here; others handle it.
  bool handle(Client& client, const control::request::Message& message);
  /// Its connection is gone.
  void on_gone(Client& client);
  /// Ends jobs of which a switch did not come back in time.
  void end_overdue(Nanos now);
  /// When end_overdue() is wanted, at `until` the latest.
  Nanos next_overdue(Nanos until) const;

 private:
  Result<Way> way_of(const control::PeerCredentials& peer, const control::request::Reach& reach);
  Result<void> take(Client& client, const control::request::Join& join);
  Result<Job*> find_or_admit(const std::string& owner, const Client& client,
                             const control::request::Join& join);
  static Result<void> check_free(const Client& client, const Job& job,
                                 const control::request::Join& join, const RankSet& ranks);
  Result<void> come_back(Client& client, const control::request::Rejoin& message);
  Result<void> add(Client& client, Job& job, const RankSet& ranks, Way way);
  Result<void> take_in_group(Client& line, Client& place, Job& group,
                             const control::request::Join& join);
  void on_ranks(Client& client, const control::request::Ranks& said);
  void on_leave(Client& client);

  const ConductorConfig& config_;
  const JobTable& jobs_;
  Identification& identification_;
  Ports& ports_;
  Placement& placement_;
  JobRecords& records_;
  JobMaker& maker_;
  JobEnding& ending_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  Gathering& gathering_;
  Departures& departures_;
  Splits& splits_;
  MemberGroups& member_groups_;
  GroupPlaces& group_places_;
  Connections& connections_;
};

}  // namespace ina::switchd
