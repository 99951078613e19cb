// The counters of a lane, and a copy of them at one moment, which the lane makes for the conductor
// (command::TakeSnapshot).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "aggregator/aggregator.h"
#include "common/clock.h"
#include "io/bridge/bridge.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/port.h"

namespace ina::switchd {

struct LaneCounters {
  /// Bursts by size: 1, 2, 3..4, 5..8, ... packets; the last for the largest burst, 512.
  static constexpr size_t kBurstBuckets = 10;

  uint64_t polls = 0;
  uint64_t busy_polls = 0;
  uint64_t packets = 0;
  uint64_t sleeps = 0;
  uint64_t unsent = 0;  ///< results that a port did not take; the worker asks again
  Nanos busy_ns = 0;    ///< spent in rounds that found a packet
  Nanos idle_ns = 0;    ///< all other time since the first round, sleep included
  std::array<uint64_t, kBurstBuckets> bursts{};
  uint64_t burst_packets = 0;  ///< in all of `bursts`

  static size_t bucket_of(size_t packets) {
    return static_cast<size_t>(std::bit_width(packets - 1));
  }
};

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
