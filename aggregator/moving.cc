// Fragments that one worker's payload moves through, without a sum: the others mark that they have
// come to it. A mark is a contribution of nothing, and needs no slot. The payload goes on once all
// marks are there, because only then may the row of an older result be written to (rule C2 of
// docs/reliability.md). Until then it waits in a slot, or at the fallback.
#include <algorithm>
#include <cstring>

#include "aggregator/aggregator.h"
#include "wire/rules.h"

namespace ina::aggregator {

using wire::Type;

size_t Aggregator::expand(const RxPacket& run, size_t first, std::span<RxPacket> marks) {
  const Job& job = jobs_[run.job];
  const Seq begin = seq_of(job, run);
  size_t count = 0;
  for (; count < marks.size() && first + count < run.message.elements; ++count) {
    const Seq seq = begin + (first + count) * shape_.lanes;
    // Marks outside the window are reported once.
    if (first + count != 0 && (!job.present || seq >= job.limit)) break;
    marks[count] = run;
    marks[count].message.seq = seq.low();
    marks[count].message.elements = 1;
    counters_.run_packets += first + count != 0;
  }
  return count;
}

bool Aggregator::agrees_on_move(const Slot& slot, const RxPacket& packet) {
  const wire::Message& message = packet.message;
  if (!same_operation(slot.signature(), message.signature())) return false;
  if (!message.bare() && message.elements == 0)  // a fragment that all contribute to
    return slot.elements == 0 && !slot.moves();
  if (!slot.moves()) return false;
  // A payload comes from one source alone; it may come again.
  return message.bare() || slot.elements == 0 || slot.bits.contains(packet.rank);
}

/// A mark or a payload, for the slot that its fragment has to itself.
void Aggregator::on_static_move(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  slot.bits.insert(packet.rank);
  const bool full = slot.bits == job.full || !rule(Rule::kAllMarks);
  if (packet.message.bare()) {
    count_mark(job, slot.seq, packet.rank, verdict);
    if (full && slot.elements != 0) finish_move(job, slot, row_of(slot), verdict);
    return;
  }
  slot.set_signature(packet.message.signature());
  slot.elements = packet.message.elements;
  slot.flags &= static_cast<uint16_t>(~wire::kFlagBare);
  count_absorbed(job, slot, packet, verdict);
  if (full)
    finish_move(job, slot, packet.payload, verdict);
  else
    std::memcpy(row_of(slot), packet.payload, packet.payload_bytes);
}

/// Hashed slots: the worker has just been entered into the anti-replay window.
void Aggregator::on_mark(Job& job, const Lookup& lookup, const RxPacket& packet, Verdict& verdict) {
  count_mark(job, lookup.seq, packet.rank, verdict);
  Slot* const slot = SlotArray::holds(*lookup.slot, packet.job, lookup.seq)
                         ? lookup.slot
                         : slots_.find(packet.job, lookup.seq, lookup.number, lookup.first);
  if (slot && !agrees_on_move(*slot, packet)) {
    --counters_.marks;
    return on_mismatch(job, *slot, verdict);
  }
  const bool all = *lookup.seen == job.full;
  if (!slot || slot->state == SlotState::kFrozen) {
    if (all) complete_parts(job, lookup.seq, packet, verdict);
    return;
  }
  slot->bits.insert(packet.rank);
  if (slot->bits == job.full) finish_move(job, *slot, row_of(*slot), verdict);
}

void Aggregator::count_mark(Job& job, Seq seq, Rank rank, Verdict& verdict) {
  note_caught_up(job, seq, rank);
  ++counters_.marks;
  verdict.fate = Verdict::Fate::kAbsorbed;
}

/// All marks are there before the payload: it needs no slot.
void Aggregator::hand_on(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  Slot passing;
  passing.set_signature(packet.message.signature());
  passing.seq = seq;
  passing.bits = job.full;
  passing.job = packet.job;
  passing.elements = packet.message.elements;
  passing.flags = packet.message.flags & wire::kFlagEcn;
  count_absorbed(job, passing, packet, verdict);
  finish_move(job, passing, packet.payload, verdict);
}

/// `slot`: of the array, or of a payload that needs none. Releases it.
void Aggregator::finish_move(Job& job, Slot& slot, const std::byte* payload, Verdict& verdict) {
  const uint32_t bytes = slot.elements * wire_bytes(slot.dtype);
  std::byte* const result = job.results.place(slot.seq, slot.target, bytes);
  if (!result) {  // as in finish(): nobody misses it
    counters_.contributions_discarded += slot.contributions();
    if (slot.state != SlotState::kEmpty) release(slot);
    return;
  }
  if (slot.target == 0 || !place_once(job, slot.seq)) std::memcpy(result, payload, bytes);
  ++counters_.results;
  ++job.counters.results;
  counters_.contributions_in_results += slot.contributions();
  note_result(job, slot.seq);
  emit_results(job, slot, {result, bytes}, verdict);
  if (hashed()) {
    if (slot.state != SlotState::kEmpty) release(slot);
  } else {
    slot.state = SlotState::kComplete;
    give_back_slot(job);
  }
}

/// The payload has gone to the fallback, which does not know that all have come to the fragment.
void Aggregator::complete_parts(const Job& job, Seq seq, const RxPacket& mark,
                                Verdict& verdict) const {
  Emission& part = add_emission(verdict, Emission::To::kFallback, mark.job);
  part.message = mark.message;
  part.message.type = Type::kPart;
  part.message.seq = seq.low();
  part.message.flags = wire::kFlagBare;
  part.message.bitmap = job.full;
  part.message.rank = mark.rank;
  part.message.epoch = job.spec.epoch;
  part.message.instance = job.spec.instance;
}

void Aggregator::make_bare(Emission& result) {
  result.message.flags |= wire::kFlagBare;
  result.message.elements = 1;
  result.message.target = 0;
  result.payload = nullptr;
  result.payload_bytes = 0;
}

/// The last emission is for all. From now on it is for its receiver alone; the others get a message
/// that the fragment is decided.
void Aggregator::bare_for_others(Verdict& verdict) {
  Emission& result = verdict.emission[verdict.emissions - 1];
  const WorkerSet receiver = WorkerSet::of(Rank{static_cast<uint8_t>(result.message.receiver - 1)});
  const WorkerSet all = result.message.bitmap;
  result.to = Emission::To::kHolders;
  result.message.bitmap = all & receiver;
  if (receiver.covers(all)) return;
  Emission& bare = add_emission(verdict, Emission::To::kHolders, result.job);
  bare.message = result.message;
  bare.message.bitmap = all - receiver;
  make_bare(bare);
}

}  // namespace ina::aggregator
