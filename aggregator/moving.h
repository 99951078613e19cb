// Fragments that one worker's payload moves through, without a sum: the others mark that they have
// come to it. A mark is a contribution of nothing, and needs no slot. The payload goes on once all
// marks are there, because only then may the row of an older result be written to (rule C2 of
// docs/reliability.md). Until then it waits in a slot, or at the fallback.
#pragma once

#include <span>

#include "aggregator/contributions.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

class Moving {
 public:
  /// All must outlive it.
  Moving(Shard& shard, Results& results, Contributions& contributions, Ascent& ascent)
      : shard_(shard), results_(results), contributions_(contributions), ascent_(ascent) {}

  /// The marks that a run stands for, from its `first` one on, as many as `marks` has room for.
  /// Returns how many; those beyond the job's window are left out, but for the first of all.
  size_t expand(const RxPacket& run, size_t first, std::span<RxPacket> marks);

  /// True if a mark or a payload agrees with the first message of its fragment.
  static bool agrees(const Slot& slot, const RxPacket& packet);
  /// A mark or a payload, for the slot that its fragment has to itself in a pool.
  void join_pool_slot(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  /// A mark or a payload where slots are hashed. The worker has just been entered into the replay
  /// window. False: it is a payload that needs a slot, and nothing has been done.
  bool take_without_slot(ShardJob& job, const Lookup& lookup, const RxPacket& packet,
                         Verdict& verdict);
  /// The last contribution to a fragment that has a slot is its payload.
  void finish_with(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
    contributions_.count_absorbed(job, slot, packet, verdict);
    finish(job, slot, packet.payload, verdict);
  }

 private:
  void on_mark(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Verdict& verdict);
  void count_mark(ShardJob& job, Seq seq, Rank rank, Verdict& verdict);
  void hand_on(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void finish(ShardJob& job, Slot& slot, const std::byte* payload, Verdict& verdict);
  static void complete_parts(const ShardJob& job, Seq seq, const RxPacket& mark, Verdict& verdict);

  Shard& shard_;
  Results& results_;
  Contributions& contributions_;
  Ascent& ascent_;
};

}  // namespace ina::aggregator
