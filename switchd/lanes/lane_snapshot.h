// The counters of a lane, and a copy of them at one moment, which the lane makes for the conductor
// (command::TakeSnapshot).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "aggregator/aggregator.h"
#include "common/clock.h"
#include "io/bridge/bridge.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/port.h"
#include "switchd/lanes/lane_counters.h"

namespace ina::switchd {

/// Counters of an Ethernet port beyond io::PortCounters.
struct FramePortSnapshot {
  io::EthdevCounters counters;
  // Lane 0 alone knows:
  bool link_up = false;
  bridge::PortAddresses addresses = {};
  bridge::PortBlock block = {};
};

struct BridgeSnapshot {
  bridge::MacTableCounters counters;
  uint32_t mac_entries = 0;
  uint32_t mac_capacity = 0;
};

struct JobSnapshot {
  aggregator::JobIndex job = 0;
  aggregator::JobCounters counters = {};
  std::optional<aggregator::OldestWaiting> waiting = std::nullopt;  ///< see command::TakeSnapshot
};

/// A lane's counters at one moment.
struct LaneSnapshot {
  LaneCounters lane;
  aggregator::Counters aggregator;
  std::vector<JobSnapshot> jobs;        ///< those that the conductor asked for
  std::vector<io::PortCounters> ports;  ///< shm first, then the Ethernet ports in config order
  std::vector<FramePortSnapshot> frame_ports;  ///< the Ethernet ports, in config order
  std::optional<BridgeSnapshot> bridge;
};

/// A slot as it was at one moment.
struct SlotView {
  Nanos first_arrival = 0;
  aggregator::JobIndex job = 0;
  aggregator::SlotState state{};
  uint8_t contributions = 0;

  static SlotView of(const aggregator::Slot& slot) {
    return {slot.first_arrival, slot.job, slot.state, static_cast<uint8_t>(slot.contributions())};
  }
};

}  // namespace ina::switchd
