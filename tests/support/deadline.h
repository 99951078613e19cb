// How long tests wait for what should happen at once.
#pragma once

#include "wire/types.h"

namespace ina::test {

/// Ends what hangs; nothing that works takes a tenth of it, even on a loaded machine.
inline constexpr Nanos kTimeoutNs = 120'000'000'000;

}  // namespace ina::test
