// Requests of administrators and of other threads, carried out on the conductor's thread, between
// other events. The conductor never waits for those who ask.
#pragma once

#include <string>

#include "control/admin/requests.h"
#include "switchd/jobs/job_administration.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_table.h"
#include "switchd/reload.h"
#include "switchd/reports/slot_map.h"
#include "switchd/reports/status.h"
#include "switchd/reports/status_answers.h"
#include "switchd/reports/trace_answers.h"
#include "switchd/reports/tracing.h"

namespace ina::switchd {

class Administration {
 public:
  /// All of them must outlive it.
  Administration(const JobTable& jobs, JobMaker& maker, JobAdministration& admin_jobs,
                 Reload& reload, StatusReport& status, SlotMap& slot_map, Tracing& tracing,
                 StatusAnswers& status_answers, TraceAnswers& trace_answers,
                 Connections& connections)
      : jobs_(jobs),
        maker_(maker),
        admin_jobs_(admin_jobs),
        reload_(reload),
        status_(status),
        slot_map_(slot_map),
        tracing_(tracing),
        status_answers_(status_answers),
        trace_answers_(trace_answers),
        connections_(connections) {}

  /// A message on a connection of an administrator. One whose sender has gone does nothing.
  void on_message(Client& client, const control::request::Message& message);

  /// Carries out what another thread or a signal asks for. `who`: asks, for the log.
  admin::Answer administer(const admin::Request& request, const std::string& who);

 private:
  void carry_out(Client& client, const admin::Request& asked);
  admin::Answer carry_out(const admin::Request& request, const std::string& who);
  admin::Answer drain(bool on, const std::string& who);
  admin::Answer draining() const;

  const JobTable& jobs_;
  JobMaker& maker_;
  JobAdministration& admin_jobs_;
  Reload& reload_;
  StatusReport& status_;
  SlotMap& slot_map_;
  Tracing& tracing_;
  StatusAnswers& status_answers_;
  TraceAnswers& trace_answers_;
  Connections& connections_;
};

}  // namespace ina::switchd
