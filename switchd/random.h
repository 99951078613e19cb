// Numbers that nobody guesses.
#pragma once

#include <cstdint>

namespace ina::switchd {

/// From the kernel; for keys and tickets.
uint64_t random_u64();

}  // namespace ina::switchd
