// The slots of a shard, their value rows, and where the slot of a fragment is.
#pragma once

#include <bit>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "aggregator/slot.h"
#include "aggregator/slot_tags.h"

namespace ina::aggregator {

class SlotArray {
 public:
  /// `ways`: slots side by side that a fragment may choose from. `rows`: slots + spare rows of
  /// row_bytes each, owned by the caller. `memory`: for the slots and their tags.
  SlotArray(uint32_t slots, uint32_t ways, uint32_t spare_rows, uint32_t row_bytes, std::byte* rows,
            std::pmr::memory_resource* memory)
      : rows_(rows), row_bytes_(row_bytes), slots_(slots, memory), tags_(slots, ways, memory) {
    for (uint32_t i = 0; i < slots; ++i) slots_[i].row = i;
    for (uint32_t i = 0; i < spare_rows; ++i) spare_rows_.push_back(slots + i);
  }

  Slot& operator[](uint32_t index) { return slots_[index]; }
  std::span<const Slot> all() const { return slots_; }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  std::byte* row_of(const Slot& slot) const { return rows_ + size_t{slot.row} * row_bytes_; }

  /// True if a fragment may choose between slots.
  bool has_sets() const { return tags_.ways() > 1; }
  const SlotTags& tags() const { return tags_; }
  static bool holds(const Slot& slot, JobIndex job, Seq seq) {
    return slot.state != SlotState::kEmpty && slot.seq == seq && slot.job == job;
  }
  /// The slot that holds a fragment, which is the `number`th of its job in this lane and whose hash
  /// names the slot `first`. nullptr: none does.
  Slot* find(JobIndex job, Seq seq, uint64_t number, uint32_t first) {
    if (!has_sets()) return holds(slots_[first], job, seq) ? &slots_[first] : nullptr;
    const uint32_t set = tags_.set_of(first);
    uint32_t left = tags_.matches(first, SlotTags::tag_of(job, number));
    for (; left != 0; left &= left - 1)
      if (Slot& slot = slots_[set + static_cast<uint32_t>(std::countr_zero(left))];
          holds(slot, job, seq))
        return &slot;
    return nullptr;
  }

  /// The fragment in the slot is the `number`th of its job.
  void tag(const Slot& slot, uint64_t number) {
    if (has_sets()) tags_.set(index_of(slot), SlotTags::tag_of(slot.job, number));
  }
  /// The slot's row is on its way out: the slot has another, and no slot has this one within the
  /// burst.
  void change_row(Slot& slot) {
    std::swap(slot.row, spare_rows_[next_spare_]);
    next_spare_ = (next_spare_ + 1) % spare_rows_.size();
  }
  /// Empties the slot.
  void clear(Slot& slot) {
    if (has_sets()) tags_.set(index_of(slot), SlotTags::kEmpty);
    const uint32_t row = slot.row;
    slot = Slot{};
    slot.row = row;
  }

 private:
  uint32_t index_of(const Slot& slot) const { return static_cast<uint32_t>(&slot - slots_.data()); }

  std::byte* rows_;
  uint32_t row_bytes_;
  std::pmr::vector<Slot> slots_;
  SlotTags tags_;                     ///< of `slots_`; kept where fragments have a choice
  std::vector<uint32_t> spare_rows_;  ///< ring
  size_t next_spare_ = 0;
};

}  // namespace ina::aggregator
