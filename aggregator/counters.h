// The counters of a shard.
#pragma once

#include <cstdint>

#include "wire/drop_reason.h"

namespace ina::aggregator {

/// Written by the shard's thread only.
struct Counters {
  uint64_t packets = 0;
  uint64_t absorbed = 0;  ///< contributions added to a slot; bytes below are their payload
  uint64_t absorbed_bytes = 0;
  uint64_t spill_packets = 0;  ///< of `packets`, those of fallbacks within the lane
  uint64_t run_packets = 0;    ///< of `packets`, marks of a run beyond its first
  uint64_t marks = 0;          ///< of workers that add nothing to a fragment
  uint64_t groups = 0;         ///< sums of several contributions made in one pass
  uint64_t grouped = 0;        ///< of `absorbed`, contributions in such sums
  uint64_t forwarded = 0;      ///< packets passed on, bypassing contributions among them
  uint64_t bypassed = 0;       ///< contributions that found no slot and went to the fallback alone
  uint64_t bypassed_bytes = 0;
  uint64_t results = 0;           ///< fragments completed in a slot
  uint64_t results_again = 0;     ///< results given again to one that asked, from slot or ring
  uint64_t asked_again = 0;       ///< questions answered by asking others for contributions again
  uint64_t fallback_results = 0;  ///< results of the fallback, passed on to the workers
  uint64_t preemptions = 0;       ///< slots taken over
  uint64_t parts = 0;             ///< partial sums sent to the fallback from slots
  uint64_t part_bytes = 0;
  uint64_t parked = 0;  ///< of these, because a straggler kept them waiting; at a worker or not
  uint64_t parker_results = 0;  ///< results of workers that kept the sums, passed on to all
  uint64_t reminders = 0;       ///< REMINDs that found their fragment in a slot
  // Contributions accepted (absorbed + bypassed) = held in slots + the following (I5).
  uint64_t contributions_in_results = 0;
  uint64_t contributions_moved = 0;      ///< to the fallback
  uint64_t contributions_discarded = 0;  ///< superseded by a result, or of a job that ended
  uint64_t slots_used = 0;               ///< slots that hold contributions now
  uint64_t slots_used_peak = 0;
  DropCounters drops;

  uint64_t dropped() const {
    uint64_t sum = 0;
    for (const uint64_t count : drops.count) sum += count;
    return sum;
  }
};

/// Counters of one job in this shard.
struct JobCounters {
  uint64_t slots_held = 0;
  uint64_t slots_held_peak = 0;
  uint64_t absorbed = 0;
  uint64_t bypassed = 0;
  uint64_t preempted = 0;  ///< slots lost to others or to its own more urgent fragments
  uint64_t results = 0;
  uint64_t fallback_results = 0;
  uint64_t parked = 0;
  uint64_t parked_now = 0;  ///< this and the peak need JobSpec::parked_at
  uint64_t parked_now_peak = 0;
  uint64_t parker_results = 0;
};

}  // namespace ina::aggregator
