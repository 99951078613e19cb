// How far two cores are from each other right now: on virtual machines it changes within seconds by
// a factor of five, and all shared-memory figures with it.
#pragma once

#include <cstdint>

namespace ina::perf {

/// Median round trip of a cache line between the first two CPUs this process may use, in ns. Takes
/// about a millisecond. 0 with one CPU, or when others keep the two busy for 50 ms.
int64_t core_round_trip_ns();

}  // namespace ina::perf
