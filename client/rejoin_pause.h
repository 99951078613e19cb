// How often a worker looks whether its switch is back.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace ina::client {

/// Between two attempts, after so long without a switch: a quarter of that, so that no job stands
/// still for much longer than its switch is gone, and few attempts are made in vain.
constexpr Nanos rejoin_pause(Nanos away_ns) {
  return std::clamp<Nanos>(away_ns / 4, 5'000'000, 200'000'000);
}

}  // namespace ina::client
