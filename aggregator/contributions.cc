#include "aggregator/contributions.h"

#include <algorithm>

namespace ina::aggregator {

using wire::Message;
using wire::Type;

Contributions::Contributions(Shard& shard, Results& results, Ascent& ascent)
    : shard_(shard), results_(results), ascent_(ascent) {
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps)
      if (is_valid(dtype, op))
        kernels_[static_cast<size_t>(dtype)][static_cast<size_t>(op)] = &kernels(dtype, op);
}

void Contributions::install(ShardJob& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now) {
  const Message& message = packet.message;
  const uint64_t number = shard_.number_of(seq);
  slot.set_signature(message.signature());
  slot.seq = seq;
  slot.at_fallback = shard_.hashed ? shard_.gone_to_fallback(job, seq, packet) : WorkerSet();
  // Workers that had come to the fragment before its payload.
  slot.bits = shard_.hashed && carries_move(message)
                  ? job.recent.seen(number) - WorkerSet::of(packet.rank)
                  : WorkerSet();
  slot.first_arrival = now;
  slot.job = packet.job;
  slot.elements = message.bare() ? uint16_t{0} : message.elements;
  slot.flags = message.flags & wire::kFlagBare;
  slot.priority = std::max<uint8_t>(1, std::min(message.priority, job.spec.rules.priority_max));
  slot.state = SlotState::kFilling;
  shard_.slots.tag(slot, number);
  shard_.take_slot(job);
}

void Contributions::add_pending() {
  const Slot& slot = *pending_.slot();
  count_group(pending_.add_to(kernels_of(slot.dtype, slot.op), shard_.slots.row_of(slot)));
}

void Contributions::count_group(uint32_t contributions) {
  if (contributions < 2) return;
  ++shard_.counters.groups;
  shard_.counters.grouped += contributions;
}

/// A child switch's sum: accumulators.
void Contributions::absorb_sum(const Slot& slot, const RxPacket& packet) {
  std::byte* const row = shard_.slots.row_of(slot);
  if (!slot.bits.empty())
    kernels_of(slot.dtype, slot.op).merge(row, packet.payload, slot.elements);
  else if (packet.payload_bytes != 0)
    std::memcpy(row, packet.payload, packet.payload_bytes);
}

void Contributions::finish(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  if (job.has_parent()) [[unlikely]] {
    absorb(job, slot, packet, verdict);
    return leave_as_part(slot, verdict);
  }
  const uint32_t bytes = packet.message.type == Type::kPart  // whose accumulators may be wider
                             ? slot.elements * wire_bytes(slot.dtype)
                             : packet.payload_bytes;
  // Not there only if the buffer has gone under the operation: then nobody misses the result.
  std::byte* const result = job.results.place(slot.seq, slot.target, bytes);
  if (!result) return shard_.drop(verdict, DropReason::kBadOffset);
  if (slot.target != 0) shard_.place_once(job, slot.seq);
  const bool overflow = make_result(job, slot, packet, result);
  count_absorbed(job, slot, packet, verdict);
  if (overflow) slot.flags |= wire::kFlagOverflow;
  ++shard_.counters.results;
  ++job.counters.results;
  shard_.counters.contributions_in_results +=
      slot.bits == job.full ? job.spec.workers : slot.contributions();
  job.note_result(slot.seq);
  results_.give(job, slot, {result, bytes}, verdict);
  if (shard_.hashed) {
    shard_.release(slot);
  } else {  // kept, to answer those that ask again
    slot.state = SlotState::kComplete;
    shard_.give_back_slot(job);
  }
}

/// Makes the result of the slot's sum and the last contribution. True: numbers were too large.
inline bool Contributions::make_result(const ShardJob& job, const Slot& slot, const RxPacket& last,
                                       std::byte* result) {
  const Kernels& kernel = kernels_of(slot.dtype, slot.op);
  std::byte* const row = shard_.slots.row_of(slot);
  const uint32_t divisor = slot.op == Op::kAvg ? job.ranks() : 1;
  if (last.message.type == Type::kPart) [[unlikely]] {
    absorb_sum(slot, last);
    return kernel.finish(result, row, slot.elements, divisor);
  }
  if (pending_.slot()) {
    bool overflow = false;
    count_group(pending_.finish(kernel, result, row, last.payload, divisor, overflow));
    return overflow;
  }
  if (slot.bits.empty()) {  // a job of one worker
    kernel.load(row, last.payload, slot.elements);
    return kernel.finish(result, row, slot.elements, divisor);
  }
  const auto add_finish = slot.target != 0 ? kernel.add_finish_stream : kernel.add_finish;
  return add_finish(result, row, last.payload, slot.elements, divisor);
}

void Contributions::finish_at_once(ShardJob& job, Seq seq, WorkerSet& seen, const RxPacket& first,
                                   Verdict& verdict) {
  const Followers& followers = pending_.followers();
  const Message& message = first.message;
  const uint32_t workers = job.spec.workers;
  const Kernels& kernel = kernels_of(message.dtype, message.op);
  std::byte* const result = job.results.place(seq, message.target, first.payload_bytes);
  if (message.target != 0) shard_.place_once(job, seq);
  followers.payloads[0] = first.payload;
  const bool overflow = (message.target != 0 ? kernel.finish_all_stream : kernel.finish_all)(
      result, nullptr, followers.payloads, workers, message.elements,
      message.op == Op::kAvg ? job.ranks() : 1);
  pending_.end_group();

  seen = job.full;
  shard_.take_slot(job);
  shard_.give_back_slot(job);
  count_group(workers);
  Counters& counters = shard_.counters;
  counters.absorbed += workers;
  counters.absorbed_bytes += uint64_t{workers} * first.payload_bytes;
  counters.contributions_in_results += workers;
  ++counters.results;
  job.counters.absorbed += workers;
  ++job.counters.results;
  job.note_result(seq);
  verdict.fate = Verdict::Fate::kAbsorbed;

  Emission& emission = followers.last_verdict->add(Emission::To::kAll, first.job);
  emission.message.set_signature(message.signature());
  emission.message.flags = (message.flags | followers.flags) & wire::kResultFlags;
  if (overflow) emission.message.flags |= wire::kFlagOverflow;
  emission.message.elements = message.elements;
  results_.complete(job, seq, {result, first.payload_bytes}, emission);
  results_.remember(job, seq, emission.message);
}

void Contributions::bypass(ShardJob& job, const RxPacket& packet, Verdict& verdict) {
  if (job.in_tree) [[unlikely]]
    return ascent_.add(job, packet, verdict);
  shard_.count_bypassed(job, packet, verdict);
  Emission& part = verdict.add(Emission::To::kFallback, packet.job);
  part.message = packet.message;
  part.message.type = Type::kPart;
  part.message.flags = wire::kFlagRaw | (packet.message.flags & wire::kFlagEcn);
  part.message.bitmap = WorkerSet::of(packet.rank);
  if (carries_move(packet.message))
    part.message.bitmap |= job.recent.seen(shard_.number_of(Shard::seq_of(job, packet)));
  part.message.rank = packet.rank;
  part.message.epoch = job.spec.epoch;
  part.message.instance = job.spec.instance;
  part.payload = packet.payload;
  part.payload_bytes = packet.payload_bytes;
}

void Contributions::leave_as_part(Slot& slot, Verdict& verdict) {
  shard_.counters.contributions_moved += slot.contributions();
  ShardJob& owner = shard_.jobs[slot.job];
  if (owner.in_tree) [[unlikely]] {
    if (pending_.slot() == &slot) add_pending();
    ascent_.take(owner, slot, verdict);
    return shard_.release(slot);
  }
  emit_part(slot, verdict);
  if (owner.left_behind(shard_.number_of(slot.seq))) [[unlikely]]
    shard_.follow_parked(owner, slot.seq, verdict.emission[verdict.emissions - 1]);
  // The row must stay until the verdict has been carried out.
  shard_.slots.change_row(slot);
  shard_.release(slot);
}

void Contributions::freeze(Slot& slot, Verdict& verdict) {
  shard_.counters.contributions_moved += slot.contributions();
  slot.state = SlotState::kFrozen;
  emit_part(slot, verdict);
}

void Contributions::emit_part(const Slot& slot, Verdict& verdict) {
  if (pending_.slot() == &slot) add_pending();
  const ShardJob& job = shard_.jobs[slot.job];
  Emission& part = verdict.add(Emission::To::kFallback, slot.job);
  Message& message = part.message;
  message.set_signature(slot.signature());
  message.type = Type::kPart;
  message.bitmap = slot.bits;
  message.epoch = job.spec.epoch;
  message.seq = slot.seq.low();
  message.instance = job.spec.instance;
  message.elements = slot.elements;
  message.flags = slot.flags & wire::kFlagEcn;
  message.rank = slot.any_rank();
  message.lane = static_cast<uint8_t>(shard_.shape.lane);
  part.payload = shard_.slots.row_of(slot);
  part.payload_bytes = wire::payload_bytes(message);
  ++shard_.counters.parts;
  shard_.counters.part_bytes += part.payload_bytes;
}

}  // namespace ina::aggregator
