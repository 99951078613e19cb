// The counters of one lane of an Ethernet port.
#pragma once

#include "io/ethdev/ethdev_counters.h"
#include "io/port.h"

namespace ina::io {

/// The parts of a lane's port count here, each what it does.
struct LaneCounters {
  PortCounters port;
  EthdevCounters ethdev;
};

}  // namespace ina::io
