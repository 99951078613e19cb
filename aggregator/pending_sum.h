// Payloads of a group (BurstGroups) that are to be added to a slot's row in one pass. Their
// contributions count as added already. They are added when the row is needed or the group ends, at
// the latest.
#pragma once

#include <array>
#include <utility>

#include "aggregator/burst_groups.h"
#include "aggregator/kernels.h"
#include "aggregator/slot.h"

namespace ina::aggregator {

class PendingSum {
 public:
  void begin_group() { collects_ = true; }
  void end_group() { collects_ = false; }
  /// Whether a group is being decided.
  bool collects() const { return collects_; }
  /// The slot whose row the payloads are for; nullptr: none wait.
  Slot* slot() const { return slot_; }

  void add(Slot& slot, const std::byte* payload) {
    if (!slot_) {
      slot_ = &slot;
      held_ = slot.bits != 0;
      count_ = 0;
    }
    payloads_[count_++] = payload;
  }
  /// Where further payloads for slot() are written to, of which `add_more` then takes some.
  const std::byte** more() { return payloads_.data() + count_; }
  void add_more(size_t payloads) { count_ += static_cast<uint32_t>(payloads); }

  /// Adds what is pending to the row. Returns how many payloads that were.
  uint32_t add_to(const Kernels& kernel, std::byte* row) {
    const Slot& slot = *std::exchange(slot_, nullptr);
    kernel.add_all(row, held_, payloads_.data(), count_, slot.elements);
    return count_;
  }
  /// The sum of the pending payloads, of the row if it holds a sum, and of the last contribution.
  /// `overflow`: whether numbers were too large. Returns as add_to().
  uint32_t finish(const Kernels& kernel, std::byte* result, const std::byte* row,
                  const std::byte* last, uint32_t divisor, bool& overflow) {
    const Slot& slot = *std::exchange(slot_, nullptr);
    payloads_[count_++] = last;
    overflow = (slot.target != 0 ? kernel.finish_all_stream : kernel.finish_all)(
        result, held_ ? row : nullptr, payloads_.data(), count_, slot.elements, divisor);
    return count_;
  }

 private:
  bool collects_ = false;
  bool held_ = false;  ///< the row holds something
  Slot* slot_ = nullptr;
  uint32_t count_ = 0;
  std::array<const std::byte*, BurstGroups::kMaxBurst> payloads_;
};

}  // namespace ina::aggregator
