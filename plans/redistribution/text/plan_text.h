// Redistribution plans as text for a person.
#pragma once

#include <cstdint>
#include <string>

#include "plans/redistribution/plan.h"

namespace ina::redistribution {

inline constexpr double kBytesPerUsOfGbps = 125;

/// "1536 B", "12.0 KiB", "10.5 MiB"
std::string bytes_text(uint64_t bytes);

/// The steps as a table, and their total time.
std::string plan_text(const Plan& plan);

/// The effect of each step, and the costs of the methods.
std::string explanation_text(const Plan& plan);

}  // namespace ina::redistribution
