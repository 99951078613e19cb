// Floors and ceilings of jobs that share hashed slots (invariant I4 of docs/reliability.md).
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/policy.h"

namespace ina::aggregator {

/// The slots that one job holds, beside those that it is entitled to.
struct SlotAccount {
  uint32_t held = 0;
  uint32_t peak = 0;
  scheduler::Quota quota;

  bool below_floor() const { return held < quota.floor; }
  bool below_ceiling() const { return held < quota.ceiling; }
};

/// Decides which of an array's jobs may have a slot.
class SlotQuotas {
 public:
  explicit SlotQuotas(uint32_t slots) : slots_(slots) {}

  /// The job holds nothing.
  void open(const SlotAccount& job) { reserved_ += job.quota.floor; }
  void close(const SlotAccount& job) { reserved_ -= job.quota.floor; }

  void take(SlotAccount& job) {
    if (job.below_floor()) --reserved_;
    job.peak = std::max(job.peak, ++job.held);
    peak_ = std::max(peak_, ++used_);
  }
  void give_back(SlotAccount& job) {
    --job.held;
    if (job.below_floor()) ++reserved_;
    --used_;
  }

  /// A job below its floor takes any empty slot, another job only one that no floor is short of.
  bool may_take_empty(const SlotAccount& job) const {
    if (!job.below_ceiling()) return false;
    return job.below_floor() || slots_ - used_ > reserved_;
  }
  /// True if `job` may compete for a slot of `owner`: a job that holds no more than its floor loses
  /// slots to nobody but itself.
  static bool may_preempt(const SlotAccount& job, const SlotAccount& owner) {
    return &job == &owner || (job.below_ceiling() && owner.held > owner.quota.floor);
  }
  /// True if `job` wins a slot of `owner` that it may compete for with any priority.
  static bool is_entitled(const SlotAccount& job, const SlotAccount& owner) {
    return &job != &owner && job.below_floor();
  }

  uint32_t used() const { return used_; }
  uint32_t peak() const { return peak_; }

 private:
  uint32_t slots_;
  uint32_t used_ = 0;
  uint32_t peak_ = 0;
  uint64_t reserved_ = 0;  ///< slots that jobs below their floors are still entitled to
};

}  // namespace ina::aggregator
