// A worker's settings from its caller, the environment and the launcher, resolved to one struct.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/idle.h"
#include "common/result.h"
#include "membership/settings.h"

namespace ina::client {

struct Settings : membership::Settings {
  IdleMode idle = IdleMode::kAuto;
  int copy_threads = 0;
  size_t coalesce_bytes = 0;  ///< 0: asynchronous all-reduces are not fused
  bool reproducible = false;  ///< sums of floats do not depend on the order of arrival
};

/// The settings that all ranks must share, by the names of their variables. What else must be the
/// same is a part of each operation, or decided by the switch.
std::map<std::string, std::string> shared_settings(const Settings& settings);

/// Returns the value of an environment variable or nullptr.
using Environment = std::function<const char*(const char*)>;

/// Fields that `config` leaves open come from the environment: INA_*, then torchrun's, Open MPI's,
/// MPICH's and Slurm's variables. `config` may be nullptr. Errors name the field or the variable.
Result<Settings> resolve(const ina_config* config, const Environment& environment);

}  // namespace ina::client
