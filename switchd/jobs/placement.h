// Gives workers and fallback servers their places in jobs, and the data with which they reach the
// switch from there.
#pragma once

#include <string>
#include <vector>

#include "control/messages.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/job_table.h"
#include "switchd/memory/resources.h"
#include "switchd/ports/way.h"

namespace ina::switchd {

class Placement {
 public:
  /// All of them must outlive it.
  Placement(const ConductorConfig& config, const JobRules& rules, JobTable& jobs,
            Resources& resources, Connections& connections)
      : config_(config),
        rules_(rules),
        jobs_(jobs),
        resources_(resources),
        connections_(connections) {}

  /// The number of one more member of a spread job, which has one more domain for it if need be.
  Result<uint32_t> number_for(Job& job);

  /// Gives the worker its place, and tells it; or refuses it.
  void place(Client& client, Job& job, Rank rank, Way way);
  /// Gives a place over a connection that the worker has already, and tells it. Error: the worker
  /// has no place, and was not told.
  Result<void> take(Client& client, Job& job, Rank rank, Way way);

  /// The fields that all places in the job have in common.
  control::answer::Place common(const Job& job) const;
  /// Gives a worker, or the fallback server, its way: PortKind::give().
  Result<std::vector<int>> give(Job& job, Rank rank, Way way, control::answer::Place& place);

 private:
  std::string crowded_text(const Job& job) const;

  const ConductorConfig& config_;
  const JobRules& rules_;
  JobTable& jobs_;
  Resources& resources_;
  Connections& connections_;
};

}  // namespace ina::switchd
