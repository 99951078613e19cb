// The HTTP server: figures for Prometheus, and a page for people with its data. The server's
// threads ask the conductor and wait. The conductor waits for nobody, and gets a few requests a
// second for any number of clients.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "control/admin/queue.h"
#include "control/metrics/counter_lists.h"

namespace ina::metrics {

struct ServerConfig {
  std::string listen{};              ///< "ADDRESS:PORT", port 0: any
  size_t most_jobs = 20;             ///< jobs, and tenants, with series of their own
  bool page = true;                  ///< for people; otherwise there is /metrics alone
  std::vector<std::string> hosts{};  ///< is_own_host()
  CounterLists counters{};           ///< of the status
};

class Server {
 public:
  /// `queue` must outlive it. Errors name the setting.
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config, admin::Queue& queue);
  /// Ends what is under way, and waits for that.
  virtual ~Server() = default;
  virtual uint16_t port() const = 0;
};

}  // namespace ina::metrics
