// Payloads of a group (BurstGroups) that are to be added to a slot's row in one pass. Their
// contributions count as added already. They are added when the row is needed or the group ends, at
// the latest.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "aggregator/burst_groups.h"
#include "aggregator/kernels.h"
#include "aggregator/slot.h"
#include "aggregator/verdict.h"

namespace ina::aggregator {

/// A group's packets behind the first, taken together.
struct Followers {
  WorkerSet bits = {};    ///< their workers
  bool repeated = false;  ///< one of which has several of them
  uint8_t ranks = 0;      ///< or-ed: a rank that no set has may be among them
  uint8_t priority = 0;   ///< the highest
  uint16_t flags = 0;     ///< of any
  const RxPacket* last = nullptr;
  Verdict* last_verdict = nullptr;
  const std::byte** payloads = nullptr;  ///< theirs, behind a place for that of the first packet

  void add(const RxPacket& packet) {
    const Rank rank{static_cast<uint8_t>(value(packet.rank) % kMaxWorkers)};
    repeated |= bits.contains(rank);
    bits.insert(rank);
    ranks |= value(packet.rank);
    priority = std::max(priority, packet.message.priority);
    flags |= packet.message.flags;
  }
  /// True if each is a worker of a job whose workers are `full`.
  bool are_within(WorkerSet full) const { return full.covers(bits) && ranks < kMaxWorkers; }
  /// True if there is one packet of each worker but `first`, who is one of `full`.
  bool are_all_but(Rank first, WorkerSet full) const {
    return bits == full - WorkerSet::of(first) && ranks < kMaxWorkers && !repeated;
  }
};

class PendingSum {
 public:
  /// Where the payloads of a burst's groups stand, one group after the other.
  const std::byte** list() { return list_.data(); }
  void begin_group(const Followers& followers) { followers_ = &followers; }
  void end_group() { followers_ = nullptr; }
  /// True while a group is being decided.
  bool collects() const { return followers_ != nullptr; }
  /// The followers of this group.
  const Followers& followers() const { return *followers_; }
  /// The slot whose row the payloads are for; nullptr: none wait.
  Slot* slot() const { return slot_; }

  void add(Slot& slot, const std::byte* payload) {
    if (!slot_) {
      slot_ = &slot;
      held_ = !slot.bits.empty();
      count_ = 0;
    }
    followers_->payloads[count_++] = payload;
  }
  /// After the first packet of the group has been added: so many behind it are added, too.
  void add_followers(size_t payloads) { count_ += static_cast<uint32_t>(payloads); }

  /// Adds what is pending to the row. Returns how many payloads that were.
  uint32_t add_to(const Kernels& kernel, std::byte* row) {
    const Slot& slot = *std::exchange(slot_, nullptr);
    kernel.add_all(row, held_, followers_->payloads, count_, slot.elements);
    return count_;
  }
  /// The sum of the pending payloads, of the row if it holds a sum, and of the last contribution.
  /// `overflow`: whether numbers were too large. Returns as add_to().
  uint32_t finish(const Kernels& kernel, std::byte* result, const std::byte* row,
                  const std::byte* last, uint32_t divisor, bool& overflow) {
    const Slot& slot = *std::exchange(slot_, nullptr);
    followers_->payloads[count_++] = last;
    overflow = (slot.target != 0 ? kernel.finish_all_stream : kernel.finish_all)(
        result, held_ ? row : nullptr, followers_->payloads, count_, slot.elements, divisor);
    return count_;
  }

 private:
  const Followers* followers_ = nullptr;
  bool held_ = false;  ///< the row holds something
  Slot* slot_ = nullptr;
  uint32_t count_ = 0;  ///< payloads of the group's list that are pending
  std::array<const std::byte*, BurstGroups::kMaxBurst> list_;
};

}  // namespace ina::aggregator
