// How often a worker looks whether its switch is back, and for how long at once.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace ina::membership {

/// How long one attempt to open an Ethernet port may block, and with it the end of the context.
inline constexpr Nanos kOpenPortNs = 500'000'000;

/// Between two attempts, after so long without a switch: a quarter of that, so that no job stands
/// still for much longer than its switch is gone, and few attempts are made in vain. A switch whose
/// socket has just appeared is about to listen to it.
constexpr Nanos rejoin_pause(Nanos away_ns, Nanos since_appeared_ns = INT64_MAX) {
  constexpr Nanos kAboutToListenNs = 100'000'000;
  if (since_appeared_ns < kAboutToListenNs) return 1'000'000;
  return std::clamp<Nanos>(away_ns / 4, 5'000'000, 200'000'000);
}

}  // namespace ina::membership
