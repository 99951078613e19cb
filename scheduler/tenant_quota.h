// The share of the switch that one tenant may have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ina::scheduler {

/// Name of the quota that holds for each tenant without one of its own.
inline constexpr std::string_view kOtherTenants = "*";

/// 0: no limit.
struct TenantQuota {
  std::string name{};
  uint32_t slots_floor = 0;    ///< of the whole array; kept for it even while it has no job
  uint32_t slots_ceiling = 0;  ///< of all its jobs together
  uint32_t jobs_max = 0;
  uint32_t workers_max = 0;
  uint64_t memory_bytes = 0;
  uint8_t priority_max = 255;
  bool operator==(const TenantQuota&) const = default;
};

}  // namespace ina::scheduler
