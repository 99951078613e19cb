// What a switch reads again while it runs: tokens, certificates, and its log's file.
#pragma once

#include <string>

#include "control/admin/requests.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"

namespace ina::switchd {

class Reload {
 public:
  /// All of them must outlive it.
  Reload(const ConductorConfig& config, Connections& connections, Credentials& credentials)
      : config_(config), connections_(connections), credentials_(credentials) {}

  /// What cannot be read stays as it is. `who`: asks, for the log.
  admin::Answer carry_out(const std::string& who);

 private:
  const ConductorConfig& config_;
  Connections& connections_;
  Credentials& credentials_;
};

}  // namespace ina::switchd
