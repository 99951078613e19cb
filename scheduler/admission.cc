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

tl::expected<Grant, std::string> SharedAdmission::admit(uint64_t window, uint32_t floor,
                                                        uint32_t ceiling) {
  const auto per_lane = [this](uint32_t slots) { return (slots + lanes_ - 1) / lanes_; };
  Grant grant;
  // Sequence numbers are compared over distances below 2^31, of which windows are a small part.
  constexpr uint64_t kMostPerLane = 1 << 24;
  grant.window =
      static_cast<uint32_t>(std::clamp<uint64_t>(window / lanes_, 1, kMostPerLane)) * lanes_;
  grant.floor_per_lane = per_lane(floor);
  grant.ceiling_per_lane =
      ceiling == 0 ? slots_per_lane_ : std::min(per_lane(ceiling), slots_per_lane_);
  if (grant.ceiling_per_lane < grant.floor_per_lane && grant.ceiling_per_lane < slots_per_lane_)
    return tl::unexpected("its ceiling of " + std::to_string(ceiling) +
                          " slots is below its floor of " + std::to_string(floor));
  const uint32_t free = slots_per_lane_ - floors_per_lane_;
  if (grant.floor_per_lane > free)
    return tl::unexpected("its floor needs " + std::to_string(grant.floor_per_lane * lanes_) +
                          " slots, " + std::to_string(free * lanes_) + " of " +
                          std::to_string(slots_total()) +
                          " are not promised to other jobs: short by " +
                          std::to_string((grant.floor_per_lane - free) * lanes_) +
                          "; wait for a job to end, lower jobs.slots_floor, or raise "
                          "aggregator.slots");
  floors_per_lane_ += grant.floor_per_lane;
  return grant;
}

tl::expected<void, std::string> MemoryBudget::take(uint64_t bytes) {
  const uint64_t free = total_ - used_;
  if (bytes > free)
    return tl::unexpected("it needs " + std::to_string(bytes) + " bytes of memory, " +
                          std::to_string(free) + " of " + std::to_string(total_) +
                          " are free: short by " + std::to_string(bytes - free) +
                          "; wait for a job to end, ask for a smaller window, or raise "
                          "jobs.memory");
  used_ += bytes;
  return {};
}

}  // namespace ina::scheduler
