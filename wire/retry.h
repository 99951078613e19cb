// When a worker asks for a result that does not come, unless the switch's configuration says
// otherwise (recovery.rto_min, recovery.rto_max).
#pragma once

#include "wire/types.h"

namespace ina {

inline constexpr Nanos kDefaultRtoMinNs = 20'000'000;
inline constexpr Nanos kDefaultRtoMaxNs = 200'000'000;

}  // namespace ina
