#include "aggregator/slot_allocation.h"

namespace ina::aggregator {

using scheduler::StaticPool;

void SlotAllocation::take_in_pool(ShardJob& job, const Lookup& lookup, const RxPacket& packet,
                                  Nanos now, Verdict& verdict) {
  const Seq seq = lookup.seq;
  Slot& slot = *lookup.slot;
  if (seq >= job.recent.end()) shard_.advance(job, seq);
  switch (StaticPool::claim(slot.state == SlotState::kEmpty, slot.seq, seq)) {
    case StaticPool::Claim::kTooOld:
      return shard_.drop(verdict, DropReason::kTooOld);
    case StaticPool::Claim::kInstall:
      if (slot.state == SlotState::kFilling) {
        // Only a worker that breaks C1 can get here; its job alone suffers.
        return shard_.drop(verdict, DropReason::kOutsideWindow);
      }
      contributions_.install(job, slot, seq, packet, now);
      break;
    case StaticPool::Claim::kSame:
      if (!agrees(slot, packet)) return shard_.abort_mismatch(job, slot, verdict);
      if (slot.bits.contains(packet.rank)) {
        shard_.drop(verdict, DropReason::kDuplicate);
        // A result of the fallback is not repeated: only the fallback knows whom it has bound.
        if (slot.state == SlotState::kComplete) results_.repeat(job, slot, packet.rank, verdict);
        return;
      }
      break;
  }
  if (slot.moves()) return moving_.join_pool_slot(job, slot, packet, verdict);
  if ((slot.bits | WorkerSet::of(packet.rank)) == job.full)
    return contributions_.finish(job, slot, packet, verdict);
  contributions_.absorb(job, slot, packet, verdict);
}

}  // namespace ina::aggregator
