// The answer to `inactl status`: the lanes' counters and the state of the jobs, as JSON.
#pragma once

#include <optional>

#include "control/messages.h"
#include "switchd/conductor_config.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/state_file.h"
#include "switchd/jobs/wait_reasons.h"
#include "switchd/lanes/lanes.h"
#include "switchd/memory/resources.h"
#include "switchd/reports/dropped_frames.h"
#include "switchd/reports/port_watch.h"

namespace ina::switchd {

class StatusReport {
 public:
  /// The lanes' counters, by lane.
  using Snapshots = Lanes::Commands<command::TakeSnapshot>;

  /// All of them must outlive it. `started`: when the switch did.
  StatusReport(const ConductorConfig& config, const StateFile& state, Lanes& lanes,
               const JobRules& rules, Resources& resources, const JobTable& jobs,
               const WaitReasons& wait_reasons, const DroppedFrames& dropped,
               const PortWatch& ports, Nanos started)
      : config_(config),
        state_(state),
        lanes_(lanes),
        rules_(rules),
        resources_(resources),
        jobs_(jobs),
        wait_reasons_(wait_reasons),
        dropped_(dropped),
        ports_(ports),
        started_(started) {}

  /// `explain`: with the reasons for which jobs wait; otherwise only with the ranks, of jobs that
  /// hold slots.
  control::Json make(bool explain, bool draining);
  /// Why the job waits, as `inactl why` says it: for its workers' errors.
  std::string why(Job& job) const;

 private:
  /// By Ethernet port, in config order; empty if nobody looked.
  using Links = std::vector<bool>;

  Snapshots snapshots(bool find_waiting) const;
  Links links_of(const Snapshots& snapshots) const;
  control::Json job_json(Job& job, const Links* explain) const;
  void explain_job(Job& job, const Links& links, control::Json& json) const;
  std::optional<Awaited> oldest_of(const Job& job, size_t number, const Snapshots& snapshots) const;
  static std::optional<RankSet> add_late(const std::optional<Awaited>& oldest, control::Json& json);
  void explain_late(const Job& job, const RankSet& late, const Links& links,
                    control::Json& json) const;
  static void explain_creates(const Job& job, control::Json& json);
  void explain_stopped(const Job& job, const RankSet& late, control::Json& json) const;
  control::Json peers_json(const Job& job) const;
  static RankSet attached_of(const Job& job);
  control::Json tree_json(const Job& job) const;
  static std::string elsewhere_text(const Job& job, uint32_t rank);
  void add_devices(control::Json& ports) const;
  control::Json configuration_json() const;
  control::Json tenants_json() const;

  const ConductorConfig& config_;
  const StateFile& state_;
  Lanes& lanes_;
  const JobRules& rules_;
  Resources& resources_;
  const JobTable& jobs_;
  const WaitReasons& wait_reasons_;
  const DroppedFrames& dropped_;
  const PortWatch& ports_;
  const Nanos started_;
};

}  // namespace ina::switchd
