// How long a client waits for a switch that is not there.
#pragma once

#include "wire/types.h"

namespace ina::control {

/// Unless its user says how long. The error then comes within a second.
inline constexpr Nanos kAbsentNs = 500'000'000;

}  // namespace ina::control
