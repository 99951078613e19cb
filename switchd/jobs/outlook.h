// Which jobs could not go on under another configuration, found out before it is used.
#pragma once

#include <string>
#include <vector>

#include "switchd/conductor_config.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"

namespace ina::switchd {

/// A job, or a group, that a switch with another configuration would drop.
struct Loss {
  Job* job = nullptr;
  std::string why;
};

/// Jobs of the state file that a switch that starts again with `next` would drop, in the order in
/// which it would look at them.
std::vector<Loss> losses_under(const ConductorConfig& next, const JobTable& jobs,
                               const Moment& moment);

}  // namespace ina::switchd
