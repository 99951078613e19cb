// The `static` policy: SwitchML's pools (NSDI'21, section 3.4). Each job owns a fixed range of
// slots, two versions of its window: fragment s lives in slot s mod 2W. While W fragments are under
// way the other W hold the results that a worker may still have to ask for again, so a lost result
// is answered from the slot.
//
// Why a newer fragment may reset a slot: a worker sends s+2W only when it has every result up to
// s+W (rule C1). Result s+W needed every worker's contribution to it, sent only by workers that
// have result s. So nobody needs s any more.
#pragma once

#include "scheduler/policy.h"

namespace ina::scheduler {

/// A job's share of one lane's slots.
struct StaticPool {
  uint32_t first_slot = 0;
  uint32_t slots = 0;  ///< 2W / lanes
  uint32_t lanes = 1;
  uint32_t lane = 0;

  /// Fragment s goes to lane s mod lanes, so a lane sees every lanes-th fragment.
  uint32_t slot_of(Seq seq) const {
    return first_slot + static_cast<uint32_t>(seq.value / lanes % slots);
  }

  enum class Claim { kSame, kInstall, kTooOld };
  /// The state of its slot for a contribution to `seq`: empty, or of fragment `there`.
  static Claim claim(bool empty, Seq there, Seq seq) {
    if (empty || there < seq) return Claim::kInstall;
    return there == seq ? Claim::kSame : Claim::kTooOld;
  }
};

struct Static {
  static constexpr PolicyTraits kTraits{
      .name = "static", .summary = "each has a pool of its own", .hashed = false};
};

}  // namespace ina::scheduler
