// The one place that reads the clock; pure code takes Nanos as a parameter.
#pragma once

#include <chrono>

#include "wire/types.h"

namespace ina {

/// Monotonic time in nanoseconds.
inline Nanos now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace ina
