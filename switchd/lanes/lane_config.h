// The settings of a lane, which it gets when it is made.
#pragma once

#include <cstdint>
#include <optional>

#include "aggregator/aggregator.h"
#include "common/idle.h"
#include "io/bridge/bridge.h"
#include "switchd/config/config.h"

namespace ina::switchd {

struct LaneConfig {
  aggregator::Shape shape;
  IdleMode idle = IdleMode::kAuto;
  uint32_t max_endpoints = 4096;
  bool ecn = true;                             ///< mark what goes to a worker that lags behind
  std::optional<bridge::BridgeConfig> bridge;  ///< lane 0; none: frames for others are dropped
};

/// The part of the array that lane `number` has.
aggregator::Shape lane_shape(const config::SwitchConfig& loops,
                             const config::AggregatorConfig& array, uint32_t number);
/// All but its bridge.
LaneConfig lane_config(const config::SwitchConfig& loops, const config::AggregatorConfig& array,
                       bool ecn, uint32_t number);

}  // namespace ina::switchd
