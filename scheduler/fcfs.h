// The `fcfs` policy: ATP's allocation (NSDI'21, section 3.2). The first fragment keeps the slot,
// and others go to the fallback. The complete sum goes to the fallback, too. Only the result that
// comes back from there, its acknowledgement, frees the slot.
#pragma once

#include "scheduler/policy.h"

namespace ina::scheduler {

struct Fcfs {
  static constexpr PolicyTraits kTraits{
      .name = "fcfs",
      .summary = "the fragment that comes first keeps a slot until it is done",
      .held_until_acknowledged = true};

  static uint32_t worth(const Occupant&, Nanos, const PolicyOptions&) { return UINT32_MAX; }
  static bool takes_over(const Occupant&, uint8_t, Nanos, const PolicyOptions&) { return false; }
  static uint8_t kept(uint8_t priority, const PolicyOptions&) { return priority; }
};

}  // namespace ina::scheduler
