// Administrators' actions on jobs and workers: they make jobs with tickets, end jobs, and send
// workers away.
#pragma once

#include <string>

#include "switchd/admin_answer.h"
#include "switchd/config/config.h"
#include "switchd/connections.h"
#include "switchd/jobs/departures.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/wait_reasons.h"

namespace ina::switchd {

class JobAdministration {
 public:
  /// All of them must outlive it.
  JobAdministration(const config::AggregatorConfig& config, const JobTable& jobs,
                    JobRecords& records, JobMaker& maker, JobEnding& ending, JobOffers& offers,
                    Departures& departures, const WaitReasons& wait_reasons,
                    Connections& connections)
      : config_(config),
        jobs_(jobs),
        records_(records),
        maker_(maker),
        ending_(ending),
        offers_(offers),
        departures_(departures),
        wait_reasons_(wait_reasons),
        connections_(connections) {}

  // `who`: asks, for the log and for the workers.
  AdminAnswer create(const control::request::CreateJob& request, const std::string& who);
  AdminAnswer abort(const control::request::AbortJob& request, const std::string& who);
  AdminAnswer kick(const control::request::KickWorker& request, const std::string& who);

  /// Ends jobs that are reserved for a time that has passed.
  void end_overdue(Nanos now);
  /// When the time of the first of them has passed, at `until` the latest.
  Nanos next_overdue(Nanos until) const;

 private:
  control::Json description(const Job& job, Nanos ttl_ns) const;

  const config::AggregatorConfig& config_;
  const JobTable& jobs_;
  JobRecords& records_;
  JobMaker& maker_;
  JobEnding& ending_;
  JobOffers& offers_;
  Departures& departures_;
  const WaitReasons& wait_reasons_;
  Connections& connections_;
};

}  // namespace ina::switchd
