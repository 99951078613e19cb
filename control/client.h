// What anybody may ask a running switch over its control socket.
#pragma once

#include "control/socket.h"

namespace ina::control {

inline constexpr const char* kDefaultSocket = "/run/ina/switch.sock";

/// The switch's status, as `inactl status --json` prints it. `path`: the control socket.
Result<Json> query_status(const std::string& path, Nanos timeout_ns);

}  // namespace ina::control
