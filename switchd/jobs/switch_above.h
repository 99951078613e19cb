// The switch above this one, for each job that is spread: who is here is told there, and what it
// says is done here (docs/protocol.md, "Trees").
#pragma once

#include "control/messages.h"
#include "switchd/conductor_config.h"
#include "switchd/conductor_events.h"
#include "switchd/connections.h"
#include "switchd/jobs/departures.h"
#include "switchd/jobs/gathering.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/jobs/tree_groups.h"

namespace ina::switchd {

class SwitchAbove {
 public:
  /// All of them must outlive it. `rings`: when it has said something.
  SwitchAbove(const ConductorConfig& config, const JobTable& jobs, LaneJobs& lane_jobs,
              JobRecords& records, JobEnding& ending, Gathering& gathering, Departures& departures,
              TreeGroups& tree_groups, Connections& connections, ConductorEvent& rings)
      : config_(config),
        jobs_(jobs),
        lane_jobs_(lane_jobs),
        records_(records),
        ending_(ending),
        gathering_(gathering),
        departures_(departures),
        tree_groups_(tree_groups),
        connections_(connections),
        rings_(rings) {}

  /// It has said something about some jobs.
  void on_events();
  /// Some workers of a job that gathers are here or below, and others are not.
  void tell(Job& job);
  /// All members are back at a job of an earlier life of this switch, which is above, too.
  void come_back(Job& job);

 private:
  control::request::Member identity(const Job& job) const;
  void handle(Job& job, const control::answer::Message& message);
  void on_joined(Job& job, const control::answer::Joined& joined);
  void on_ready(Job& job);
  void go_on(Job& job);
  void go_away(Job& job, const std::string& text);
  void ask_again(Job& job);
  Job* meant(Job& job, std::optional<uint32_t> channel) const;
  void on_lost(Job& job, const Error& error);
  void rejoin(Job& job, const std::vector<Seq>& held, Seq end);
  void end(Job& job, ina_status status, const std::string& text);

  const ConductorConfig& config_;
  const JobTable& jobs_;
  LaneJobs& lane_jobs_;
  JobRecords& records_;
  JobEnding& ending_;
  Gathering& gathering_;
  Departures& departures_;
  TreeGroups& tree_groups_;
  Connections& connections_;
  ConductorEvent& rings_;
};

}  // namespace ina::switchd
