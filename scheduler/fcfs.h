// The `fcfs` policy: ATP's allocation (NSDI'21, section 3.2). The first fragment keeps the slot,
// and others go to the fallback. The complete sum goes to the fallback, too. Only the result that
// comes back from there, its acknowledgement, frees the slot.
#pragma once

#include "aggregator/slot.h"
#include "scheduler/policy.h"

namespace ina::scheduler {

struct Fcfs {
  static constexpr bool kHeldUntilAcknowledged = true;

  static uint32_t worth(const aggregator::Slot&, uint32_t, Nanos, const PolicyOptions&) {
    return UINT32_MAX;
  }
  static bool takes_over(const aggregator::Slot&, uint8_t, uint32_t, Nanos, const PolicyOptions&) {
    return false;
  }
  static void kept(aggregator::Slot&, const PolicyOptions&) {}
};

}  // namespace ina::scheduler
