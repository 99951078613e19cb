// Questions that every client may ask a running switch over its control connection.
#pragma once

#include "control/socket.h"

namespace ina::control {

inline constexpr const char* kDefaultSocket = "/run/ina/switch.sock";

/// The switch's status, as `inactl status --json` prints it. `path`: the control socket, or
/// "tcp:HOST:PORT", or "tls:HOST:PORT". `token`: over TCP, see control/tokens.h; the jobs are those
/// of its tenant then, or of the certificate's. `tls`: Connection::open().
/// `connect_timeout_ns`: how long to wait for a switch that is being started; negative:
/// `timeout_ns`.
Result<Json> query_status(const std::string& path, Nanos timeout_ns, const std::string& token = "",
                          const TlsClient& tls = {}, Nanos connect_timeout_ns = -1);

}  // namespace ina::control
