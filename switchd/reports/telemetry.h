// Commands of DPDK's telemetry socket: /ina/info, /ina/job/list, /ina/job/stats,ID, /ina/mbufs.
// They are asked on DPDK's threads, which wait for the conductor where it has the answer.
#pragma once

#include "control/admin/queue.h"

namespace ina::switchd {

class Telemetry {
 public:
  /// Commands are answered while this lives. One at a time; `queue` must outlive it.
  explicit Telemetry(admin::Queue& queue);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;
  ~Telemetry();
};

}  // namespace ina::switchd
