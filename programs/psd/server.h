// A fallback server's connection to its switch: it learns of jobs and serves each.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/fd.h"
#include "programs/psd/job_server.h"

namespace ina::psd {

struct ServerConfig {
  std::string socket;
  std::string url{};         ///< of an Ethernet port of the switch; empty: the shm port
  control::TlsClient tls{};  ///< for a socket that wants it
  IdleMode idle = IdleMode::kAuto;
};

class Server {
 public:
  explicit Server(ServerConfig config);

  /// Serves until stop(), through restarts of the switch. Error: the switch wants no fallback
  /// server, or not this one.
  Result<void> run();
  /// From any thread or signal handler.
  void stop();

 private:
  Result<void> find_way();
  Result<void> serve();
  Result<void> on_message(const answer::Message& message);
  Result<void> look_after_jobs();
  bool stopped(int timeout_ms) const;

  ServerConfig config_;
  Way way_;
  Fd stop_event_;
  control::Connection control_;
  std::map<uint32_t, std::unique_ptr<JobServer>> jobs_;  ///< by identifier
};

}  // namespace ina::psd
