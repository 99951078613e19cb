// What anybody may ask a running switch over its control connection.
#pragma once

#include "control/socket.h"

namespace ina::control {

inline constexpr const char* kDefaultSocket = "/run/ina/switch.sock";

/// The switch's status, as `inactl status --json` prints it. `path`: the control socket, or
/// "tcp:HOST:PORT", or "tls:HOST:PORT". `token`: over TCP, see control/tokens.h; the jobs are those
/// of its tenant then, or of the certificate's. `tls`: Connection::open().
Result<Json> query_status(const std::string& path, Nanos timeout_ns, const std::string& token = "",
                          const TlsClient& tls = {});

}  // namespace ina::control
