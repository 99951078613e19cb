// What admission says to a worker's engine: its place, the rules of its job, and its link.
#pragma once

#include <cstdint>

#include "scheduler/rules.h"
#include "wire/types.h"

namespace ina::client {

struct EngineConfig {
  Rank rank{};
  Rank member{};  ///< in_tree(): the worker's bit at its switch; elsewhere that is its rank
  uint32_t workers = 1;
  uint32_t epoch = 0;
  uint32_t window = 0;  ///< W: fragments a worker may run ahead of its oldest incomplete one
  /// Fragments that may be in the switch at once: contributions sent, no result yet, and not
  /// parked. 0: W.
  uint32_t in_switch = 0;
  uint32_t slot_bytes = 0;
  uint32_t lanes = 1;
  scheduler::Rules rules;
  /// A received payload stays readable where it lies until 2W fragments later (the shm port's
  /// result ring); otherwise the engine keeps the last results itself.
  bool results_stay = false;
  /// Fragments whose partial sums it keeps for the switch while somebody is slow.
  uint32_t park_room = 0;
  /// Lets the engine cap what is in flight by the rate of delivery, on a lossy link with the window
  /// for aggregators. Where stragglers get help (in_switch is set) there is no cap: those ahead of
  /// them shall run ahead. False: an ablation.
  bool window_cap = true;
  /// A network that drops packets when it is overloaded lies between worker and switch. The
  /// congestion window begins small, sending is spread over the round trip, and an overtaken
  /// fragment is recovered at once.
  bool lossy_link = false;
  /// Most fragments under way of operations whose results are copied to the user, 0: W. No more
  /// than the caches hold is faster. Where stragglers get help, in_switch counts in its place.
  uint32_t most_in_flight = 0;
  /// Without a lossy link: the fragments that the congestion window begins with, 0: W.
  /// Contributions that find no slot must find room where they go instead.
  uint32_t first_window = 0;

  /// The job is in a tree of switches: whoever misses a result sends its contribution again, in any
  /// epoch (docs/protocol.md, "Trees").
  bool in_tree() const { return rules.home == Home::kTree; }
  Rank at_switch() const { return in_tree() ? member : rank; }
};

}  // namespace ina::client
