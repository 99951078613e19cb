// Admission of jobs to the slots: what a job may use is fixed when it is created, and a job that
// does not fit is refused with the numbers. Used by the conductor only.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "scheduler/static_pool.h"

namespace ina::scheduler {

/// What a job gets, the same in each lane.
struct Grant {
  uint32_t first_slot = 0;        ///< within a lane; policy static
  uint32_t slots_per_lane = 0;    ///< 2W / lanes; policy static
  uint32_t window = 0;            ///< W, fragments over all lanes; a multiple of the lanes
  uint32_t floor_per_lane = 0;    ///< slots kept for the job; shared slots
  uint32_t ceiling_per_lane = 0;  ///< most slots it may hold; shared slots
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

/// Policies that share all slots among the jobs: nothing is given out, but floors are promised.
class SharedAdmission {
 public:
  SharedAdmission(uint32_t slots, uint32_t lanes) : slots_per_lane_(slots / lanes), lanes_(lanes) {}

  /// `window`: W wanted, rounded down to a multiple of the lanes but at least one fragment a lane.
  /// `floor`, `ceiling` (0: all): slots of the whole array, rounded up to a multiple of the lanes.
  /// Error: a sentence with what the floor needs, what is free and the shortfall.
  tl::expected<Grant, std::string> admit(uint64_t window, uint32_t floor, uint32_t ceiling);
  void release(const Grant& grant) { floors_per_lane_ -= grant.floor_per_lane; }

  uint32_t slots_total() const { return slots_per_lane_ * lanes_; }
  /// Sum of the floors.
  uint32_t slots_reserved() const { return floors_per_lane_ * lanes_; }

 private:
  uint32_t slots_per_lane_;
  uint32_t lanes_;
  uint32_t floors_per_lane_ = 0;
};

/// Memory that the jobs of a switch may take together: a job's share is known when it is admitted
/// and does not grow (I6).
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : total_(bytes) {}

  /// Error: a sentence with what the job needs, what is free and the shortfall.
  tl::expected<void, std::string> take(uint64_t bytes);
  void give_back(uint64_t bytes) { used_ -= bytes; }

  uint64_t total() const { return total_; }
  uint64_t used() const { return used_; }

 private:
  uint64_t total_;
  uint64_t used_ = 0;
};

}  // namespace ina::scheduler
