// Topologies, plans and numbers for tests of the planner.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plans/themis/planner.h"

namespace ina::themis {

inline constexpr uint64_t kGbit = 1'000'000'000;

inline Dimension dimension(DimensionKind kind, uint32_t size, uint64_t gbps,
                           Picos step_latency_ps = 0) {
  return {.name = std::string(name(kind)),
          .kind = kind,
          .size = size,
          .bits_per_s = gbps * kGbit,
          .step_latency_ps = step_latency_ps};
}

/// Figure 5 of the paper: 4 x 4, the first dimension twice as fast.
inline Topology figure5() {
  return {.name = "4x4",
          .dimensions = {dimension(DimensionKind::kDirect, 4, 2),
                         dimension(DimensionKind::kDirect, 4, 1)}};
}

inline Planned plan(const Topology& topology, const std::vector<Request>& requests,
                    const PlanOptions& options = {}) {
  auto planned = make_plan(topology, requests, options);
  EXPECT_TRUE(planned) << planned.error().text;
  return std::move(planned.value());
}

inline std::string error_of(const Topology& topology, const std::vector<Request>& requests,
                            const PlanOptions& options = {}) {
  const auto planned = make_plan(topology, requests, options);
  return planned ? "" : planned.error().text;
}

/// SplitMix64: the same cases everywhere.
class Cases {
 public:
  explicit Cases(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t limit) {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % limit;
  }

  /// 1 to 4 dimensions of any kind.
  Topology topology(bool may_aggregate) {
    Topology made{.name = "random"};
    const uint64_t dimensions = 1 + below(4);
    for (uint64_t d = 0; d < dimensions; ++d) {
      const auto kind = static_cast<DimensionKind>(below(may_aggregate ? 4 : 3));
      const bool is_power = kind >= DimensionKind::kHalvingDoubling;
      const auto size = static_cast<uint32_t>(is_power ? 2u << below(4) : 2 + below(9));
      made.dimensions.push_back(
          dimension(kind, size, 100 * (1 + below(20)), static_cast<Picos>(1000 * below(2000))));
      if (kind == DimensionKind::kIna && below(2) == 0)
        made.dimensions.back().aggregation_bits_per_s = size * kGbit * (50 + below(1000));
    }
    return made;
  }

 private:
  uint64_t state_;
};

}  // namespace ina::themis
