// The counters of a packet loop itself, without those of its ports and its aggregator.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "wire/counter_field.h"
#include "wire/types.h"

namespace ina::switchd {

struct LaneCounters {
  /// Bursts by size: 1, 2, 3..4, 5..8, ... packets; the last for the largest burst, 512.
  static constexpr size_t kBurstBuckets = 10;

  uint64_t polls = 0;
  uint64_t busy_polls = 0;  ///< of `polls`, those with packets: `busy_ratio`
  uint64_t packets = 0;
  uint64_t sleeps = 0;
  uint64_t unsent = 0;  ///< the worker asks again
  Nanos busy_ns = 0;
  Nanos idle_ns = 0;  ///< all other time since the first round
  std::array<uint64_t, kBurstBuckets> bursts{};
  uint64_t burst_packets = 0;

  static size_t bucket_of(size_t packets) {
    return static_cast<size_t>(std::bit_width(packets - 1));
  }
};

inline constexpr CounterField<LaneCounters> kLaneCounterFields[] = {
    {&LaneCounters::polls,
     {"polls", "rounds", "Rounds of a packet loop over its ports.", {"ina_lane_polls_total"}}},
    {&LaneCounters::packets,
     {"packets", "packets", "Packets that a packet loop took.", {"ina_lane_packets_total"}}},
    {&LaneCounters::sleeps,
     {"sleeps", "times", "Times that a packet loop went to sleep.", {"ina_lane_sleeps_total"}}},
    {&LaneCounters::burst_packets,
     {"burst_packets", "packets", "Packets in all that `bursts` counts."}},
};
inline constexpr CounterField<LaneCounters, Nanos> kLaneTimeFields[] = {
    {&LaneCounters::busy_ns,
     {"busy_s",
      "seconds",
      "Time that a packet loop spent in rounds with packets.",
      {"ina_lane_busy_seconds_total"}}},
    {&LaneCounters::idle_ns,
     {"idle_s",
      "seconds",
      "Time that a packet loop polled in vain or slept.",
      {"ina_lane_idle_seconds_total"}}},
};
/// Shown for all lanes together, in `aggregator`.
inline constexpr CounterField<LaneCounters> kLaneTotalFields[] = {
    {&LaneCounters::unsent,
     {"results_unsent",
      "results",
      "Results that a port did not take.",
      {"ina_unsent_results_total"}}},
};
static_assert(sizeof(LaneCounters) == bytes_of(kLaneCounterFields) + bytes_of(kLaneTimeFields) +
                                          bytes_of(kLaneTotalFields) +
                                          sizeof(LaneCounters::busy_polls) +
                                          sizeof(LaneCounters::bursts),
              "a counter needs a row in one of the tables");

}  // namespace ina::switchd
