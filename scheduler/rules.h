// The rules of a job, which its workers and the switch's lanes go by: one struct, which the
// configuration fills in, the answer to a join carries (control/messages.h), and the worker's
// engine and the switch's aggregator hold by value.
#pragma once

#include "scheduler/policies.h"
#include "wire/types.h"

namespace ina::scheduler {

/// How large a job may be is its grant (scheduler/admission.h). That stays as it is for the job's
/// life, whereas a switch may come back with other rules, but for `home`.
struct Rules {
  uint8_t priority_max = 255;  ///< as granted: higher priorities of its fragments count as this
  PolicyKind policy{};         ///< as of all jobs of the switch
  // As configured; the initialisers are the defaults.
  Home home = Home::kWorkers;
  bool ecn = true;  ///< workers that lag behind get marks, and have a window for congestion
  bool aggregator_window = true;  ///< workers have a window for aggregators (A2TP, EuroSys'23)
  Nanos rto_min_ns = 20'000'000;  ///< nothing is asked for or sent again sooner than this
  Nanos rto_max_ns = 200'000'000;

  /// The switch keeps a slot for each fragment of the window (policy static): lost contributions
  /// are sent again. Otherwise a contribution leaves once, and the fallback is asked.
  bool fixed_slots() const {
    return with_policy(policy, [](auto of) { return !of.kTraits.hashed; });
  }
  bool operator==(const Rules&) const = default;
};

}  // namespace ina::scheduler
