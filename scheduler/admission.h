// Admission of jobs to the slots: what a job may use is fixed when it is created, and a job that
// does not fit is refused with the numbers. Used by the conductor only.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "scheduler/static_pool.h"

namespace ina::scheduler {

/// What a job gets under the `static` policy, the same in each lane.
struct Grant {
  uint32_t first_slot = 0;      ///< within a lane
  uint32_t slots_per_lane = 0;  ///< 2W / lanes
  uint32_t window = 0;          ///< W, fragments over all lanes
};

/// Gives out ranges of slots, first fit. All lanes have the same layout, so one map serves them
/// all.
class StaticAdmission {
 public:
  /// `slots`: of the whole array; `lanes`: it is divided evenly among these.
  StaticAdmission(uint32_t slots, uint32_t lanes);

  /// Grants 2W slots, W = min(window_wanted, slots_per_job / 2), rounded down to a multiple of the
  /// lanes but at least one fragment a lane. Error: a sentence with the job's need, what is free
  /// and the shortfall.
  tl::expected<Grant, std::string> admit(uint32_t slots_per_job, uint64_t window_wanted);
  /// Takes exactly what was granted before. False: it is not free, or there are not so many slots.
  bool reserve(const Grant& grant);
  void release(const Grant& grant);

  uint32_t slots_total() const { return slots_per_lane_ * lanes_; }
  uint32_t slots_reserved() const { return reserved_per_lane_ * lanes_; }

 private:
  struct Range {
    uint32_t first;
    uint32_t count;
  };
  uint32_t slots_per_lane_;
  uint32_t lanes_;
  uint32_t reserved_per_lane_ = 0;
  std::vector<Range> free_;  ///< sorted, disjoint, never adjacent
};

}  // namespace ina::scheduler
