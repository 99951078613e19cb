// The `esa` policy: preemptive allocation with priorities (ESA, arXiv 2201.06398, reconstructed
// where its abstract is silent). A fragment of higher priority takes the slot, and the victim's
// partial sum leaves for the fallback. A slot that keeps others out loses priority, so that
// fragments whose last contributions are late cannot hold it for ever.
#pragma once

#include <algorithm>
#include <bit>

#include "aggregator/slot.h"
#include "scheduler/policy.h"

namespace ina::scheduler {

struct Esa {
  /// A slot is free again as soon as its fragment is complete.
  static constexpr bool kHeldUntilAcknowledged = false;

  /// What a slot counts in the comparison with a newcomer.
  static uint32_t worth(const aggregator::Slot& slot, uint32_t workers, Nanos now,
                        const PolicyOptions& options) {
    uint32_t worth = slot.priority;
    if (options.decay == Decay::kTime)
      worth >>= std::min<Nanos>((now - slot.first_arrival) / options.decay_half_life_ns, 8);
    if (options.near_full_bonus &&
        4 * static_cast<uint32_t>(std::popcount(slot.bits | slot.base)) >= 3 * workers)
      worth = std::min(2 * worth, 254u);
    return worth;
  }

  /// Whether a contribution of `priority` may take an occupied slot. Equals never preempt.
  static bool takes_over(const aggregator::Slot& slot, uint8_t priority, uint32_t workers,
                         Nanos now, const PolicyOptions& options) {
    return priority > worth(slot, workers, now, options);
  }

  /// A newcomer was turned away.
  static void kept(aggregator::Slot& slot, const PolicyOptions& options) {
    if (options.decay == Decay::kPreemption) slot.priority /= 2;
  }
};

}  // namespace ina::scheduler
