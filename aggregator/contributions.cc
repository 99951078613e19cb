// The way of a contribution: it goes to the slot of its fragment, takes a slot, or goes to the
// fallback. The last one of a fragment makes the result.
#include <algorithm>
#include <cstring>

#include "aggregator/aggregator.h"
#include "wire/rules.h"

namespace ina::aggregator {

using scheduler::StaticPool;
using wire::Message;
using wire::Type;

void Aggregator::advance(Job& job, Seq seq) {
  job.recent.advance(seq, number_of(seq), [&](uint64_t number) {
    if (job.spec.parked_at) unpark(job, number);
  });
}

[[gnu::always_inline]] inline bool Aggregator::agrees(const Slot& slot, const RxPacket& packet) {
  if (is_moved(packet.message.collective)) [[unlikely]]
    return agrees_on_move(slot, packet);
  return slot.signature() == packet.message.signature() && slot.elements == packet.message.elements;
}

void Aggregator::on_static_grad(Job& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                                Verdict& verdict) {
  const Seq seq = lookup.seq;
  Slot& slot = *lookup.slot;
  if (seq >= job.recent.end()) advance(job, seq);
  switch (StaticPool::claim(slot.state == SlotState::kEmpty, slot.seq, seq)) {
    case StaticPool::Claim::kTooOld:
      return drop(verdict, DropReason::kTooOld);
    case StaticPool::Claim::kInstall:
      if (slot.state == SlotState::kFilling) {
        // Only a worker that breaks C1 can get here; its job alone suffers.
        return drop(verdict, DropReason::kOutsideWindow);
      }
      install(job, slot, seq, packet, now);
      break;
    case StaticPool::Claim::kSame:
      if (!agrees(slot, packet)) return on_mismatch(job, slot, verdict);
      if (slot.bits.contains(packet.rank)) {
        drop(verdict, DropReason::kDuplicate);
        // A result of the fallback is not repeated: only the fallback knows whom it has bound.
        if (slot.state == SlotState::kComplete) repeat_result(job, slot, packet.rank, verdict);
        return;
      }
      break;
  }
  if (slot.moves()) return on_static_move(job, slot, packet, verdict);
  if ((slot.bits | WorkerSet::of(packet.rank)) == job.full)
    return finish(job, slot, packet, verdict);
  absorb(job, slot, packet, verdict);
}

template <class Policy>
void Aggregator::on_hashed_grad(Job& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                                Verdict& verdict) {
  const Seq seq = lookup.seq;
  if (job.recent.is_below(seq)) return drop(verdict, DropReason::kTooOld);
  const bool remembered = job.recent.remembers(seq);
  if (seq >= job.recent.end()) advance(job, seq);
  if (remembered) {
    WorkerSet& seen = *lookup.seen;
    if (seen.contains(packet.rank) && rule(Rule::kAntiReplay))
      return drop(verdict, DropReason::kDuplicate);
    seen.insert(packet.rank);
  }
  if (job.spec.park_after != 0) [[unlikely]]
    job.late.came(packet.rank, seq);
  if (is_moved(packet.message.collective)) [[unlikely]] {
    if (packet.message.bare()) return on_mark(job, lookup, packet, verdict);
    if (packet.message.elements != 0 && (*lookup.seen == job.full || !rule(Rule::kAllMarks)))
      return hand_on(job, seq, packet, verdict);
  }
  // Most find their fragment where it was when the burst was looked up.
  Slot* slot = lookup.slot;
  if (!SlotArray::holds(*slot, packet.job, seq)) [[unlikely]]
    slot = slots_.has_sets() ? slots_.find(packet.job, seq, lookup.number, lookup.first) : nullptr;
  if (slot) [[likely]]
    return join<Policy>(job, *slot, packet, verdict);
  Slot* place = slots_.has_sets() ? &slots_[slots_.tags().empty_or(lookup.first)] : lookup.slot;
  if (place->state != SlotState::kEmpty) place = make_room<Policy>(job, lookup, now);
  if (left_behind(job, lookup.number)) [[unlikely]] {
    if (!Policy::kTraits.held_until_acknowledged && place->state == SlotState::kEmpty &&
        !moves(packet.message) && quotas_.may_take_empty(job.slots) && worth_combining(job, seq))
      return install_late(job, *place, seq, packet, now, verdict);
    return pass_to_parker(job, seq, packet, verdict);
  }
  if (place->state != SlotState::kEmpty) {
    // A last contribution, of a fragment whose others have all gone, need not take a slot.
    const WorkerSet gone = gone_to_fallback(job, seq, packet);
    if (!gone.empty() && (gone | WorkerSet::of(packet.rank)) == job.full)
      return bypass(job, packet, verdict);
    return contend<Policy>(job, *place, seq, packet, now, verdict);
  }
  if (!quotas_.may_take_empty(job.slots)) return bypass(job, packet, verdict);
  if constexpr (!Policy::kTraits.held_until_acknowledged)
    if (pending_.collects() && remembered && holds_all(job, lookup, packet))
      return finish_at_once(job, lookup, packet, verdict);
  install(job, *place, seq, packet, now);
  add_to<Policy>(job, *place, packet, verdict);
}

/// True if the group is all contributions to a fragment, of which none has come before.
inline bool Aggregator::holds_all(const Job& job, const Lookup& lookup,
                                  const RxPacket& first) const {
  return pending_.followers().are_all_but(first.rank, job.full) &&
         *lookup.seen == WorkerSet::of(first.rank) && first.message.receiver == 0 &&
         job.spec.park_after == 0;
}

/// Such a group needs no slot. All is as if it had taken one, that was empty, and left it.
void Aggregator::finish_at_once(Job& job, const Lookup& lookup, const RxPacket& first,
                                Verdict& verdict) {
  const Followers& followers = pending_.followers();
  const Message& message = first.message;
  const uint32_t workers = job.spec.workers;
  const Kernels& kernel =
      *kernels_[static_cast<size_t>(message.dtype)][static_cast<size_t>(message.op)];
  std::byte* const result = job.results.place(lookup.seq, message.target, first.payload_bytes);
  if (message.target != 0) place_once(job, lookup.seq);
  followers.payloads[0] = first.payload;
  const bool overflow = (message.target != 0 ? kernel.finish_all_stream : kernel.finish_all)(
      result, nullptr, followers.payloads, workers, message.elements,
      message.op == Op::kAvg ? workers : 1);
  pending_.end_group();

  *lookup.seen = job.full;
  take_slot(job);
  give_back_slot(job);
  count_group(workers);
  counters_.absorbed += workers;
  counters_.absorbed_bytes += uint64_t{workers} * first.payload_bytes;
  counters_.contributions_in_results += workers;
  ++counters_.results;
  job.counters.absorbed += workers;
  ++job.counters.results;
  note_result(job, lookup.seq);
  verdict.fate = Verdict::Fate::kAbsorbed;

  Emission& emission = add_emission(*followers.last_verdict, Emission::To::kAll, first.job);
  emission.message.set_signature(message.signature());
  emission.message.flags = (message.flags | followers.flags) & wire::kResultFlags;
  if (overflow) emission.message.flags |= wire::kFlagOverflow;
  emission.message.elements = message.elements;
  complete_result(job, lookup.seq, {result, first.payload_bytes}, emission);
  remember_given(job, lookup.seq, emission.message);
}

/// Empties a slot whose sum nobody needs: a zombie's, of which everyone has the result, or that of
/// a job that ends.
void Aggregator::reap(Slot& slot) {
  if (slot.state == SlotState::kFilling) counters_.contributions_discarded += slot.contributions();
  release(slot);
}

/// All slots that the fragment could have are taken: one whose fragment nobody needs any more,
/// empty now, or else the one that is worth least among those that the job may take.
template <class Policy>
Slot* Aggregator::make_room(const Job& job, const Lookup& lookup, Nanos now) {
  const uint32_t set = slots_.tags().set_of(lookup.first);
  const uint32_t ways = std::min(slots_.tags().ways(), shape_.slots - set);
  Slot* place = nullptr;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < ways; ++i) {
    Slot& slot = slots_[set + (lookup.first - set + i) % ways];
    const Job& owner = jobs_[slot.job];
    if (owner.recent.is_below(slot.seq)) {
      reap(slot);
      return &slot;
    }
    uint64_t worth = UINT64_MAX - 1;  // not to be had
    if (!Policy::kTraits.held_until_acknowledged && quotas_.may_preempt(job.slots, owner.slots))
      worth = Policy::worth(occupant_of(slot, owner.spec.workers), now, shape_.policy) +
              (quotas_.is_entitled(job.slots, owner.slots) ? 0 : uint64_t{1} << 32);
    if (worth >= least) continue;
    least = worth;
    place = &slot;
  }
  return place;
}

/// The slot holds contributions to the same fragment.
template <class Policy>
[[gnu::always_inline]] inline void Aggregator::join(Job& job, Slot& slot, const RxPacket& packet,
                                                    Verdict& verdict) {
  if (!agrees(slot, packet)) return on_mismatch(job, slot, verdict);
  if (slot.state == SlotState::kFrozen) return bypass(job, packet, verdict);
  if ((slot.bits | slot.at_fallback).contains(packet.rank))
    return drop(verdict, DropReason::kDuplicate);
  if (left_behind(job, number_of(slot.seq))) [[unlikely]]
    return add_late(job, slot, packet, verdict);
  slot.priority = std::max(slot.priority, std::min(packet.message.priority, job.spec.priority_max));
  add_to<Policy>(job, slot, packet, verdict);
}

/// The slot belongs to another fragment.
template <class Policy>
void Aggregator::contend(Job& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now,
                         Verdict& verdict) {
  Job& owner = jobs_[slot.job];
  const uint8_t priority =
      std::max<uint8_t>(1, std::min(packet.message.priority, job.spec.priority_max));
  bool wins = false;
  if (!Policy::kTraits.held_until_acknowledged && quotas_.may_preempt(job.slots, owner.slots)) {
    wins = quotas_.is_entitled(job.slots, owner.slots) ||
           Policy::takes_over(occupant_of(slot, owner.spec.workers), priority, now, shape_.policy);
    if (!wins) slot.priority = Policy::kept(slot.priority, shape_.policy);
  }
  if (!wins) return bypass(job, packet, verdict);
  ++counters_.preemptions;
  ++owner.counters.preempted;
  leave_as_part(slot, verdict);
  install(job, slot, seq, packet, now);
  add_to<Policy>(job, slot, packet, verdict);
}

void Aggregator::on_mismatch(Job& job, const Slot& slot, Verdict& verdict) {
  verdict.first_rank = slot.first_rank;
  verdict.first_signature = slot.signature();
  job.aborted = true;
  drop(verdict, DropReason::kMismatch);
}

void Aggregator::install(Job& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now) {
  const Message& message = packet.message;
  slot.set_signature(message.signature());
  slot.seq = seq;
  slot.at_fallback = hashed() ? gone_to_fallback(job, seq, packet) : WorkerSet();
  // Workers that had come to the fragment before its payload.
  slot.bits = hashed() && moves(message)
                  ? job.recent.seen(number_of(seq)) - WorkerSet::of(packet.rank)
                  : WorkerSet();
  slot.first_arrival = now;
  slot.job = packet.job;
  slot.elements = message.bare() ? uint16_t{0} : message.elements;
  slot.flags = message.flags & wire::kFlagBare;
  slot.first_rank = packet.rank;
  slot.priority = std::max<uint8_t>(1, std::min(message.priority, job.spec.priority_max));
  slot.state = SlotState::kFilling;
  slots_.tag(slot, number_of(seq));
  take_slot(job);
}

void Aggregator::count_absorbed(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  slot.bits.insert(packet.rank);
  note_caught_up(job, slot.seq, packet.rank);
  ++counters_.absorbed;
  ++job.counters.absorbed;
  counters_.absorbed_bytes += packet.payload_bytes;
  verdict.fate = Verdict::Fate::kAbsorbed;
}

/// Adds a contribution to the slot's row.
[[gnu::always_inline]] inline void Aggregator::absorb_here(Job& job, Slot& slot,
                                                           const RxPacket& packet,
                                                           Verdict& verdict) {
  if (slot.moves()) [[unlikely]] {
    std::memcpy(row_of(slot), packet.payload, packet.payload_bytes);
  } else if (pending_.collects()) {
    pending_.add(slot, packet.payload);
  } else {
    const Kernels& kernel = kernels_of(slot);
    (slot.bits.empty() ? kernel.load : kernel.add)(row_of(slot), packet.payload, slot.elements);
  }
  count_absorbed(job, slot, packet, verdict);
}

template <class Policy>
[[gnu::always_inline]] inline void Aggregator::add_to(Job& job, Slot& slot, const RxPacket& packet,
                                                      Verdict& verdict) {
  const bool full = (slot.bits | slot.at_fallback | WorkerSet::of(packet.rank)) == job.full;
  slot.flags |= packet.message.flags & wire::kResultFlags;
  if (full && !Policy::kTraits.held_until_acknowledged &&
      (slot.at_fallback.empty() || !rule(Rule::kPartialTest)))
    return finish(job, slot, packet, verdict);
  absorb_here(job, slot, packet, verdict);
  if (!full) return;
  if (Policy::kTraits.held_until_acknowledged) {
    counters_.contributions_moved += slot.contributions();
    slot.state = SlotState::kFrozen;
    return emit_part(slot, verdict);
  }
  leave_as_part(slot, verdict);
}

void Aggregator::absorb(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  absorb_here(job, slot, packet, verdict);
}

void Aggregator::add_pending() {
  const Slot& slot = *pending_.slot();
  count_group(pending_.add_to(kernels_of(slot), row_of(slot)));
}

/// Makes the result of the pending sum. True: numbers were too large.
bool Aggregator::finish_pending(std::byte* result, const std::byte* last, uint32_t divisor) {
  const Slot& slot = *pending_.slot();
  bool overflow = false;
  count_group(pending_.finish(kernels_of(slot), result, row_of(slot), last, divisor, overflow));
  return overflow;
}

void Aggregator::count_group(uint32_t contributions) {
  if (contributions < 2) return;
  ++counters_.groups;
  counters_.grouped += contributions;
}

/// The last contribution: added and rounded straight into the job's result ring.
void Aggregator::finish(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  if (slot.moves()) [[unlikely]] {
    count_absorbed(job, slot, packet, verdict);
    return finish_move(job, slot, packet.payload, verdict);
  }
  const Kernels& kernel = kernels_of(slot);
  // Not there only if the buffer has gone under the operation: then nobody misses the result.
  std::byte* result = job.results.place(slot.seq, slot.target, packet.payload_bytes);
  if (!result) return drop(verdict, DropReason::kBadOffset);
  auto add_finish = kernel.add_finish;
  if (slot.target != 0) {
    add_finish = kernel.add_finish_stream;
    place_once(job, slot.seq);
  }
  const uint32_t divisor = slot.op == Op::kAvg ? job.spec.workers : 1;
  bool overflow = false;
  if (pending_.slot()) {
    overflow = finish_pending(result, packet.payload, divisor);
  } else if (slot.bits.empty()) {  // a job of one worker
    kernel.load(row_of(slot), packet.payload, slot.elements);
    overflow = kernel.finish(result, row_of(slot), slot.elements, divisor);
  } else {
    overflow = add_finish(result, row_of(slot), packet.payload, slot.elements, divisor);
  }
  count_absorbed(job, slot, packet, verdict);
  if (overflow) slot.flags |= wire::kFlagOverflow;
  ++counters_.results;
  ++job.counters.results;
  counters_.contributions_in_results +=
      slot.bits == job.full ? job.spec.workers : slot.contributions();
  note_result(job, slot.seq);
  emit_results(job, slot, {result, packet.payload_bytes}, verdict);
  if (hashed()) {
    release(slot);
  } else {  // kept, to answer those that ask again
    slot.state = SlotState::kComplete;
    give_back_slot(job);
  }
}

/// No slot for it: the contribution goes to the fallback alone, straight from the worker's memory.
void Aggregator::bypass(Job& job, const RxPacket& packet, Verdict& verdict) {
  ++counters_.bypassed;
  ++counters_.contributions_moved;
  counters_.bypassed_bytes += packet.payload_bytes;
  ++job.counters.bypassed;
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& part = add_emission(verdict, Emission::To::kFallback, packet.job);
  part.message = packet.message;
  part.message.type = Type::kPart;
  part.message.flags = wire::kFlagRaw | (packet.message.flags & wire::kFlagEcn);
  part.message.bitmap = WorkerSet::of(packet.rank);
  if (moves(packet.message)) part.message.bitmap |= job.recent.seen(number_of(seq_of(job, packet)));
  part.message.rank = packet.rank;
  part.message.epoch = job.spec.epoch;
  part.message.instance = job.spec.instance;
  part.payload = packet.payload;
  part.payload_bytes = packet.payload_bytes;
}

void Aggregator::emit_part(const Slot& slot, Verdict& verdict) {
  if (pending_.slot() == &slot) add_pending();
  const Job& job = jobs_[slot.job];
  Emission& part = add_emission(verdict, Emission::To::kFallback, slot.job);
  Message& message = part.message;
  message.set_signature(slot.signature());
  message.type = Type::kPart;
  message.bitmap = slot.bits;
  message.epoch = job.spec.epoch;
  message.seq = slot.seq.low();
  message.instance = job.spec.instance;
  message.elements = slot.elements;
  message.flags = slot.flags & wire::kFlagEcn;
  message.rank = slot.first_rank;
  message.lane = static_cast<uint8_t>(shape_.lane);
  part.payload = row_of(slot);
  part.payload_bytes = wire::payload_bytes(message);
  ++counters_.parts;
  counters_.part_bytes += part.payload_bytes;
}

/// The slot's partial sum goes to the fallback of its job, which need not be the packet's.
void Aggregator::leave_as_part(Slot& slot, Verdict& verdict) {
  counters_.contributions_moved += slot.contributions();
  emit_part(slot, verdict);
  if (Job& owner = jobs_[slot.job]; left_behind(owner, number_of(slot.seq))) [[unlikely]]
    follow(owner, slot.seq, verdict.emission[verdict.emissions - 1]);
  // The row must stay until the verdict has been carried out.
  slots_.change_row(slot);
  release(slot);
}

/// To all that it is for, and to all others that it is decided.
void Aggregator::emit_results(Job& job, const Slot& slot, std::span<const std::byte> payload,
                              Verdict& verdict) const {
  const Emission& result = emit_result(job, slot, Emission::To::kAll, payload, verdict);
  remember_given(job, slot.seq, result.message);
  if (slot.receiver != 0) [[unlikely]]
    bare_for_others(verdict);
}

/// To one that asks again.
void Aggregator::repeat_result(const Job& job, const Slot& slot, Rank rank, Verdict& verdict) {
  ++counters_.results_again;
  const uint32_t bytes =
      (slot.flags & wire::kFlagBare) != 0 ? 0 : slot.elements * wire_bytes(slot.dtype);
  Emission& emission =
      emit_result(job, slot, Emission::To::kSender,
                  {job.results.place(slot.seq, slot.target, bytes), bytes}, verdict);
  emission.message.flags |= wire::kFlagAgain;
  if (!has_role(static_cast<uint8_t>(slot.receiver), rank)) make_bare(emission);
}

Emission& Aggregator::emit_result(const Job& job, const Slot& slot, Emission::To to,
                                  std::span<const std::byte> payload, Verdict& verdict) const {
  Emission& emission = add_emission(verdict, to, slot.job);
  Message& message = emission.message;
  message.set_signature(slot.signature());
  message.elements = slot.elements;
  message.flags = slot.flags;
  complete_result(job, slot.seq, payload, emission);
  return emission;
}

/// What results of the switch have in common.
inline void Aggregator::complete_result(const Job& job, Seq seq, std::span<const std::byte> payload,
                                        Emission& emission) const {
  Message& message = emission.message;
  message.bitmap = job.full;
  message.epoch = job.spec.epoch;
  message.seq = seq.low();
  message.type = Type::kResult;
  message.origin = wire::Origin::kSwitch;
  message.lane = static_cast<uint8_t>(shape_.lane);
  emission.payload = payload.data();
  emission.payload_bytes = static_cast<uint32_t>(payload.size());
}

template <class Policy>
void Aggregator::on_grad(Job& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                         Verdict& verdict) {
  if constexpr (Policy::kTraits.hashed)
    on_hashed_grad<Policy>(job, lookup, packet, now, verdict);
  else
    on_static_grad(job, lookup, packet, now, verdict);
}

/// The one after which nothing of the fragment is missing.
template <class Policy>
void Aggregator::add_last(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  if constexpr (Policy::kTraits.hashed)
    add_to<Policy>(job, slot, packet, verdict);
  else
    finish(job, slot, packet, verdict);
}

// burst.cc calls these for the policy of the array.
#define INA_X(Policy)                                                                        \
  template void Aggregator::on_grad<scheduler::Policy>(Job&, const Lookup&, const RxPacket&, \
                                                       Nanos, Verdict&);                     \
  template void Aggregator::add_last<scheduler::Policy>(Job&, Slot&, const RxPacket&, Verdict&);
INA_POLICIES(INA_X)
#undef INA_X

}  // namespace ina::aggregator
