// The `esa` policy: preemptive allocation with priorities (ESA, arXiv 2201.06398, reconstructed
// where its abstract is silent). A fragment of higher priority takes the slot, and the victim's
// partial sum leaves for the fallback. A slot that keeps others out loses priority, so that
// fragments whose last contributions are late cannot hold it for ever.
#pragma once

#include <algorithm>

#include "scheduler/policy.h"

namespace ina::scheduler {

struct Esa {
  static constexpr PolicyTraits kTraits{
      .name = "esa",
      .summary = "the more urgent fragment takes a slot from the less urgent",
      // A slot is free again as soon as its fragment is complete.
      .held_until_acknowledged = false};

  /// The value of a slot in the comparison with a newcomer.
  static uint32_t worth(const Occupant& occupant, Nanos now, const PolicyOptions& options) {
    uint32_t worth = occupant.priority;
    if (options.decay == Decay::kTime)
      worth >>= std::min<Nanos>((now - occupant.first_arrival) / options.decay_half_life_ns, 8);
    if (options.near_full_bonus && 4 * occupant.contributed.size() >= 3 * occupant.workers)
      worth = std::min(2 * worth, 254u);
    return worth;
  }

  /// True if a contribution of `priority` may take an occupied slot. Equals never preempt.
  static bool takes_over(const Occupant& occupant, uint8_t priority, Nanos now,
                         const PolicyOptions& options) {
    return priority > worth(occupant, now, options);
  }

  /// A newcomer was turned away.
  static uint8_t kept(uint8_t priority, const PolicyOptions& options) {
    return options.decay == Decay::kPreemption ? static_cast<uint8_t>(priority / 2) : priority;
  }
};

}  // namespace ina::scheduler
