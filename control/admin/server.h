// The gRPC server of administrators (ina_admin.proto), over a unix socket and over TCP with
// certificates. Its threads ask the conductor and wait. The conductor never waits for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"
#include "control/admin/requests.h"
#include "control/tls_files.h"

namespace ina::admin {

struct ServerConfig {
  std::string socket{};       ///< path; empty: none
  std::string group{};        ///< may use it beside root and this user; empty: none
  std::string listen{};       ///< "ADDRESS:PORT", port 0: any; empty: none
  control::TlsFiles tls{};    ///< for `listen`
  int handshake_ms = 10'000;  ///< a connection over TCP that takes longer is closed
};

class Server {
 public:
  /// `queue` must outlive it. Errors name setting and file.
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config, Queue& queue);
  /// Ends the calls under way, and waits for that.
  virtual ~Server() = default;
  /// Of `listen`.
  virtual uint16_t tcp_port() const = 0;
};

}  // namespace ina::admin
