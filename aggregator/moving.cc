#include "aggregator/moving.h"

#include <cstring>

#include "wire/rules.h"

namespace ina::aggregator {

using wire::Type;

size_t Moving::expand(const RxPacket& run, size_t first, std::span<RxPacket> marks) {
  const ShardJob& job = shard_.jobs[run.job];
  const Seq begin = Shard::seq_of(job, run);
  size_t count = 0;
  for (; count < marks.size() && first + count < run.message.elements; ++count) {
    const Seq seq = begin + (first + count) * shard_.shape.lanes;
    // Marks outside the window are reported once.
    if (first + count != 0 && (!job.present || seq >= job.limit)) break;
    marks[count] = run;
    marks[count].message.seq = seq.low();
    marks[count].message.elements = 1;
    shard_.counters.run_packets += first + count != 0;
  }
  return count;
}

bool Moving::agrees(const Slot& slot, const RxPacket& packet) {
  const wire::Message& message = packet.message;
  if (!same_operation(slot.signature(), message.signature())) return false;
  if (!message.bare() && message.elements == 0)  // a fragment that all contribute to
    return slot.elements == 0 && !slot.moves();
  if (!slot.moves()) return false;
  // A payload comes from one source alone; it may come again.
  return message.bare() || slot.elements == 0 || slot.bits.contains(packet.rank);
}

void Moving::join_pool_slot(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  slot.bits.insert(packet.rank);
  const bool full = slot.bits == job.full || !rule(Rule::kAllMarks);
  if (packet.message.bare()) {
    count_mark(job, slot.seq, packet.rank, verdict);
    if (full && slot.elements != 0) finish(job, slot, shard_.slots.row_of(slot), verdict);
    return;
  }
  slot.set_signature(packet.message.signature());
  slot.elements = packet.message.elements;
  slot.flags &= static_cast<uint16_t>(~wire::kFlagBare);
  contributions_.count_absorbed(job, slot, packet, verdict);
  if (full)
    finish(job, slot, packet.payload, verdict);
  else
    std::memcpy(shard_.slots.row_of(slot), packet.payload, packet.payload_bytes);
}

bool Moving::take_without_slot(ShardJob& job, const Lookup& lookup, const RxPacket& packet,
                               Verdict& verdict) {
  if (job.in_tree) return ascent_.move(job, lookup, packet, verdict);
  if (packet.message.bare()) {
    on_mark(job, lookup, packet, verdict);
    return true;
  }
  // All contribute to a fragment without elements.
  if (packet.message.elements == 0) return false;
  if (*lookup.seen != job.full && rule(Rule::kAllMarks)) return false;
  hand_on(job, lookup.seq, packet, verdict);
  return true;
}

void Moving::on_mark(ShardJob& job, const Lookup& lookup, const RxPacket& packet,
                     Verdict& verdict) {
  count_mark(job, lookup.seq, packet.rank, verdict);
  Slot* const slot = shard_.find_slot(lookup, packet.job);
  if (slot && !agrees(*slot, packet)) {
    --shard_.counters.marks;
    return shard_.abort_mismatch(job, *slot, verdict);
  }
  const bool all = *lookup.seen == job.full;
  if (!slot || slot->state == SlotState::kFrozen) {
    if (all) complete_parts(job, lookup.seq, packet, verdict);
    return;
  }
  slot->bits.insert(packet.rank);
  if (slot->bits == job.full) finish(job, *slot, shard_.slots.row_of(*slot), verdict);
}

void Moving::count_mark(ShardJob& job, Seq seq, Rank rank, Verdict& verdict) {
  shard_.note_caught_up(job, seq, rank);
  ++shard_.counters.marks;
  verdict.fate = Verdict::Fate::kAbsorbed;
}

/// All marks are there before the payload: it needs no slot.
void Moving::hand_on(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  Slot passing;
  passing.set_signature(packet.message.signature());
  passing.seq = seq;
  passing.bits = job.full;
  passing.job = packet.job;
  passing.elements = packet.message.elements;
  passing.flags = packet.message.flags & wire::kFlagEcn;
  finish_with(job, passing, packet, verdict);
}

/// `slot`: of the array, or of a payload that needs none. Releases it.
void Moving::finish(ShardJob& job, Slot& slot, const std::byte* payload, Verdict& verdict) {
  Counters& counters = shard_.counters;
  const uint32_t bytes = slot.elements * wire_bytes(slot.dtype);
  std::byte* const result = job.results.place(slot.seq, slot.target, bytes);
  if (!result) {  // as in Contributions::finish(): nobody misses it
    counters.contributions_discarded += slot.contributions();
    if (slot.state != SlotState::kEmpty) shard_.release(slot);
    return;
  }
  if (slot.target == 0 || !shard_.place_once(job, slot.seq)) std::memcpy(result, payload, bytes);
  ++counters.results;
  ++job.counters.results;
  counters.contributions_in_results += slot.contributions();
  job.note_result(slot.seq);
  results_.give(job, slot, {result, bytes}, verdict);
  if (shard_.hashed) {
    if (slot.state != SlotState::kEmpty) shard_.release(slot);
  } else {
    slot.state = SlotState::kComplete;
    shard_.give_back_slot(job);
  }
}

/// The payload has gone to the fallback, which does not know that all have come to the fragment.
void Moving::complete_parts(const ShardJob& job, Seq seq, const RxPacket& mark, Verdict& verdict) {
  Emission& part = verdict.add(Emission::To::kFallback, mark.job);
  part.message = mark.message;
  part.message.type = Type::kPart;
  part.message.seq = seq.low();
  part.message.flags = wire::kFlagBare;
  part.message.bitmap = job.full;
  part.message.rank = mark.rank;
  part.message.epoch = job.spec.epoch;
  part.message.instance = job.spec.instance;
}

}  // namespace ina::aggregator
