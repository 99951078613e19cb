// The parts of the control plane that change jobs, for all requests alike.
#pragma once

#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"
#include "switchd/identification.h"
#include "switchd/jobs/group_places.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_rules.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/jobs/placement.h"
#include "switchd/jobs/state_file.h"
#include "switchd/jobs/wait_reasons.h"
#include "switchd/lanes/lanes.h"
#include "switchd/memory/resources.h"
#include "switchd/ports/ports.h"

namespace ina::switchd {

/// What the control plane has from its start on. All of it outlives those that refer to it.
struct ControlState {
  ConductorConfig& config;
  StateFile& state;
  Lanes& lanes;
  const JobRules& rules;
  Resources& resources;
  JobTable& jobs;
  Credentials& credentials;
  Connections& connections;
};

struct JobServices {
  explicit JobServices(const ControlState& control)
      : records(control.state, control.config.spreads()),
        lane_jobs(control.lanes, control.rules),
        group_places(control.connections),
        ending(control.jobs, records, lane_jobs, control.resources, control.connections,
               group_places),
        maker(control.config.switchd, control.jobs, lane_jobs, control.resources),
        offers(control.jobs, control.connections),
        wait_reasons(control.rules, control.lanes),
        ports(control.config, control.lanes, control.resources),
        placement(control.config, control.rules, control.jobs, control.resources,
                  control.connections),
        identification(control.credentials, control.jobs, control.connections) {}

  JobRecords records;
  LaneJobs lane_jobs;
  GroupPlaces group_places;
  JobEnding ending;
  JobMaker maker;
  JobOffers offers;
  WaitReasons wait_reasons;
  Ports ports;
  Placement placement;
  Identification identification;
};

}  // namespace ina::switchd
