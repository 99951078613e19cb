// A worker's settings from its caller, the environment and the launcher, resolved to one struct.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/idle.h"
#include "common/result.h"
#include "control/tls_files.h"

namespace ina::client {

struct Settings {
  std::string url;
  std::string job_owner;  ///< user or tenant that owns the job; empty: the caller
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  Nanos timeout_ns = 0;
  bool waits_for_switch = false;  ///< somebody said for how long: also for a switch to start
  Nanos rejoin_timeout_ns = 0;
  uint64_t window_bytes = 0;  ///< 0: the switch's grant
  IdleMode idle = IdleMode::kAuto;
  int copy_threads = 0;
  size_t coalesce_bytes = 0;         ///< 0: asynchronous all-reduces are not fused
  std::string token;                 ///< shown to a switch over TCP; empty: none
  std::string ticket;                ///< shown to any switch, in place of a token; empty: none
  control::TlsFiles tls;             ///< paths, for a switch over TLS
  std::optional<uid_t> switch_user;  ///< of a switch on this host, beside the trusted ones
  bool reproducible = false;         ///< sums of floats do not depend on the order of arrival
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
