// Who joins which job at which switch, and how long it waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "control/tls_files.h"
#include "wire/types.h"

namespace ina::membership {

struct Settings {
  std::string url;
  std::string job_owner;  ///< user or tenant that owns the job; empty: the caller
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  Nanos timeout_ns = 0;
  bool waits_for_switch = false;  ///< somebody said for how long: also for a switch to start
  Nanos rejoin_timeout_ns = 0;
  uint64_t window_bytes = 0;         ///< 0: the switch's grant
  std::string token;                 ///< shown to a switch over TCP; empty: none
  std::string ticket;                ///< shown to any switch, in place of a token; empty: none
  control::TlsFiles tls;             ///< paths, for a switch over TLS
  std::optional<uid_t> switch_user;  ///< of a switch on this host, beside the trusted ones
};

}  // namespace ina::membership
