#include "switchd/lanes/lane_config.h"

#include <algorithm>

namespace ina::switchd {

aggregator::Shape lane_shape(const config::SwitchConfig& loops,
                             const config::AggregatorConfig& array, uint32_t number) {
  return {.slots = array.slots / loops.lcores,
          .slot_bytes = array.slot_bytes,
          .max_jobs = loops.job_places(),
          .burst = loops.burst,
          .lanes = loops.lcores,
          .lane = number,
          .policy = array.policy};
}

LaneConfig lane_config(const config::SwitchConfig& loops, const config::AggregatorConfig& array,
                       bool ecn, uint32_t number) {
  LaneConfig lane;
  lane.shape = lane_shape(loops, array, number);
  lane.idle = loops.idle;
  lane.ecn = ecn;
  // Most groups are small: an eighth of the most members that they could have.
  const uint32_t places = loops.max_jobs + loops.max_groups / 8;
  lane.max_endpoints = std::min<uint32_t>(places * (kMaxWorkers + 1), 65535);
  return lane;
}

}  // namespace ina::switchd
