#include "scheduler/admission.h"

#include <algorithm>

namespace ina::scheduler {

StaticAdmission::StaticAdmission(uint32_t slots, uint32_t lanes)
    : slots_per_lane_(slots / lanes), lanes_(lanes), free_{{0, slots_per_lane_}} {}

tl::expected<Grant, std::string> StaticAdmission::admit(uint32_t slots_per_job,
                                                        uint64_t window_wanted) {
  const auto window = std::min<uint64_t>(slots_per_job / 2, window_wanted);
  const uint32_t window_per_lane = std::max<uint32_t>(1, static_cast<uint32_t>(window) / lanes_);
  const uint32_t need = 2 * window_per_lane;
  uint32_t largest = 0;
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    largest = std::max(largest, range->count);
    if (range->count < need) continue;
    const Grant grant{range->first, need, window_per_lane * lanes_};
    range->first += need;
    range->count -= need;
    if (range->count == 0) free_.erase(range);
    reserved_per_lane_ += need;
    return grant;
  }
  return tl::unexpected("the job needs " + std::to_string(need * lanes_) + " slots in one piece, " +
                        std::to_string(slots_total() - slots_reserved()) + " of " +
                        std::to_string(slots_total()) + " are free and the largest piece is " +
                        std::to_string(largest * lanes_) + ": short by " +
                        std::to_string((need - largest) * lanes_) +
                        "; wait for a job to end, ask for a smaller window, or raise "
                        "aggregator.slots");
}

bool StaticAdmission::reserve(const Grant& grant) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const uint64_t range_end = uint64_t{range->first} + range->count;
    const uint64_t end = uint64_t{grant.first_slot} + grant.slots_per_lane;
    if (grant.first_slot < range->first || end > range_end) continue;
    const Range after{static_cast<uint32_t>(end), static_cast<uint32_t>(range_end - end)};
    range->count = grant.first_slot - range->first;
    if (range->count == 0)
      range = free_.erase(range);
    else
      ++range;
    if (after.count != 0) free_.insert(range, after);
    reserved_per_lane_ += grant.slots_per_lane;
    return true;
  }
  return false;
}

void StaticAdmission::release(const Grant& grant) {
  reserved_per_lane_ -= grant.slots_per_lane;
  const Range range{grant.first_slot, grant.slots_per_lane};
  auto next = std::lower_bound(free_.begin(), free_.end(), range,
                               [](const Range& a, const Range& b) { return a.first < b.first; });
  next = free_.insert(next, range);
  if (const auto after = next + 1;
      after != free_.end() && next->first + next->count == after->first) {
    next->count += after->count;
    free_.erase(after);
  }
  if (next != free_.begin()) {
    const auto before = next - 1;
    if (before->first + before->count == next->first) {
      before->count += next->count;
      free_.erase(next);
    }
  }
}

}  // namespace ina::scheduler
