// Workers come back to their jobs and groups after a restart of the switch. See docs/protocol.md,
// "Restart of the switch".
#pragma once

#include "control/messages.h"
#include "switchd/config/config.h"
#include "switchd/connections.h"
#include "switchd/identification.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/placement.h"
#include "switchd/jobs/restore.h"
#include "switchd/jobs/wait_reasons.h"
#include "switchd/memory/resources.h"
#include "switchd/ports/ports.h"

namespace ina::switchd {

/// The fragments of request::Rejoin::held, if are_held().
std::vector<Seq> fragments_of(const std::vector<uint64_t>& held);
/// True if they are ascending runs of fragments before the end of the results.
bool are_held(const control::request::Rejoin& message, uint32_t window);

class Rejoin {
 public:
  /// All of them must outlive it.
  Rejoin(const config::ControlConfig& config, const JobTable& jobs, Identification& identification,
         Ports& ports, Placement& placement, Resources& resources, JobEnding& ending,
         const WaitReasons& wait_reasons, Connections& connections)
      : config_(config),
        jobs_(jobs),
        identification_(identification),
        ports_(ports),
        placement_(placement),
        resources_(resources),
        ending_(ending),
        wait_reasons_(wait_reasons),
        connections_(connections) {}

  /// Their workers hear why they cannot come back.
  void set_lost(std::vector<LostJob> lost) { lost_ = std::move(lost); }
  /// A worker that has just connected.
  void on_rejoin(Client& client, const control::request::Rejoin& message);
  /// A worker comes back to a job or group that is its own.
  void come_back(Client& client, Job& job, const control::request::Rejoin& message);
  /// Ends jobs whose workers did not all come back in time.
  void end_overdue(Nanos now);
  /// When the first job is overdue, at `until` the latest.
  Nanos next_overdue(Nanos until) const;

 private:
  static Result<void> check(const Job& job, const control::request::Rejoin& message);
  std::string lost_text(const control::request::Rejoin& message) const;
  void replace(Job& job, Rank rank);

  const config::ControlConfig& config_;
  const JobTable& jobs_;
  Identification& identification_;
  Ports& ports_;
  Placement& placement_;
  Resources& resources_;
  JobEnding& ending_;
  const WaitReasons& wait_reasons_;
  Connections& connections_;
  std::vector<LostJob> lost_;
};

}  // namespace ina::switchd
