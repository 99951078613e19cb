// Contributions in slots: the first takes a slot, others are added to its sum, the last makes the
// result, or the partial sum goes on to the fallback. Which slot that is, others decide.
#pragma once

#include <array>
#include <cstring>

#include "aggregator/ascent.h"
#include "aggregator/kernels.h"
#include "aggregator/pending_sum.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

class Contributions {
 public:
  /// All must outlive it.
  Contributions(Shard& shard, Results& results, Ascent& ascent);

  /// The group of a burst that is being decided.
  PendingSum& pending() { return pending_; }
  const PendingSum& pending() const { return pending_; }
  /// Adds what is pending to the row of its slot.
  void add_pending();

  /// The contribution's fragment gets an empty slot. Nothing is added yet.
  void install(ShardJob& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now);
  /// Adds a contribution to the slot's sum.
  void absorb(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  /// The contribution is in the slot; its payload is where it has to be.
  void count_absorbed(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  /// The last contribution to a sum: added and rounded straight into the job's result ring.
  void finish(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  /// The pending group is all contributions to a fragment, and needs no slot. All is as if it had
  /// taken one, that was empty, and left it. `seen`: of the replay window.
  void finish_at_once(ShardJob& job, Seq seq, WorkerSet& seen, const RxPacket& first,
                      Verdict& verdict);

  /// The contribution has no slot: it goes to the fallback alone, straight from the worker's
  /// memory.
  void bypass(ShardJob& job, const RxPacket& packet, Verdict& verdict);
  /// The slot's partial sum goes to the fallback of its job, which need not be the packet's.
  void leave_as_part(Slot& slot, Verdict& verdict);
  /// The slot's sum goes to the fallback, and the slot keeps it until the fallback acknowledges it.
  void freeze(Slot& slot, Verdict& verdict);
  /// What a frozen slot holds goes to the fallback once more.
  void emit_part(const Slot& slot, Verdict& verdict);

 private:
  const Kernels& kernels_of(DType dtype, Op op) const {
    return *kernels_[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
  }
  bool make_result(const ShardJob& job, const Slot& slot, const RxPacket& last, std::byte* result);
  void absorb_sum(const Slot& slot, const RxPacket& packet);
  void count_group(uint32_t contributions);

  Shard& shard_;
  Results& results_;
  Ascent& ascent_;
  /// By data type and operation, for the best instruction set of this machine.
  std::array<std::array<const Kernels*, std::size(kAllOps) + 1>, std::size(kAllDTypes) + 1>
      kernels_{};
  PendingSum pending_;
};

[[gnu::always_inline]] inline void Contributions::count_absorbed(ShardJob& job, Slot& slot,
                                                                 const RxPacket& packet,
                                                                 Verdict& verdict) {
  slot.bits.insert(packet.rank);
  shard_.note_caught_up(job, slot.seq, packet.rank);
  ++shard_.counters.absorbed;
  ++job.counters.absorbed;
  shard_.counters.absorbed_bytes += packet.payload_bytes;
  verdict.fate = Verdict::Fate::kAbsorbed;
}

[[gnu::always_inline]] inline void Contributions::absorb(ShardJob& job, Slot& slot,
                                                         const RxPacket& packet, Verdict& verdict) {
  if (slot.moves()) [[unlikely]] {
    std::memcpy(shard_.slots.row_of(slot), packet.payload, packet.payload_bytes);
  } else if (pending_.collects()) {
    pending_.add(slot, packet.payload);
  } else {
    const Kernels& kernel = kernels_of(slot.dtype, slot.op);
    if (packet.message.type == wire::Type::kPart) [[unlikely]]
      absorb_sum(slot, packet);
    else
      (slot.bits.empty() ? kernel.load : kernel.add)(shard_.slots.row_of(slot), packet.payload,
                                                     slot.elements);
  }
  count_absorbed(job, slot, packet, verdict);
}

}  // namespace ina::aggregator
