// Requests of users and administrators: status, traces, a map of the slots, jobs made and ended,
// the configuration read again.
#pragma once

#include "switchd/administration.h"
#include "switchd/jobs/departures.h"
#include "switchd/jobs/job_administration.h"
#include "switchd/jobs/job_services.h"
#include "switchd/reload.h"
#include "switchd/reports/slot_map.h"
#include "switchd/reports/status.h"
#include "switchd/reports/status_answers.h"
#include "switchd/reports/trace_answers.h"
#include "switchd/reports/tracing.h"

namespace ina::switchd {

struct UserRequests {
  UserRequests(const ControlState& control, JobServices& services, StatusReport& report,
               Departures& departures)
      : status(report, services.maker, control.connections),
        slot_map(control.config.aggregator.slots, control.lanes, control.jobs),
        tracing(control.config, control.lanes, control.jobs),
        traces(tracing, control.jobs, status, control.connections),
        reload(control.config, control.state, control.jobs, control.resources, services.ending,
               control.connections, control.credentials),
        jobs(control.config.aggregator, control.jobs, services.records, services.maker,
             services.ending, services.offers, departures, services.wait_reasons,
             control.connections),
        administration(control.jobs, services.maker, jobs, reload, report, slot_map, status, traces,
                       control.connections) {}

  StatusAnswers status;
  SlotMap slot_map;
  Tracing tracing;
  TraceAnswers traces;
  Reload reload;
  JobAdministration jobs;
  Administration administration;
};

}  // namespace ina::switchd
