// The slot for each contribution: the one that holds its fragment, an empty one, or another
// fragment's, as policy and quotas decide. A contribution that gets none goes to the fallback.
#pragma once

#include <algorithm>

#include "aggregator/contributions.h"
#include "aggregator/moving.h"
#include "aggregator/parking.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"
#include "wire/rules.h"

namespace ina::aggregator {

/// The class has no state of its own. `Policy` is the policy of the shard.
class SlotAllocation {
 public:
  /// All must outlive it.
  SlotAllocation(Shard& shard, Results& results, Ascent& ascent, Contributions& contributions,
                 Moving& moving, Parking& parking)
      : shard_(shard),
        results_(results),
        ascent_(ascent),
        contributions_(contributions),
        moving_(moving),
        parking_(parking) {}

  /// A contribution, within the job's window and of its epoch.
  template <class Policy>
  void take(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
            Verdict& verdict);
  /// The other contributions of a group, `count` of them, whose first one has just been added to
  /// its slot. False: something is to be said about one of them, and nothing has been done.
  template <class Policy>
  bool join_group(ShardJob& job, const Lookup& lookup, const Followers& followers, uint32_t count);

 private:
  void take_in_pool(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                    Verdict& verdict);
  template <class Policy>
  void take_hashed(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                   Verdict& verdict);
  bool enter_window(ShardJob& job, const Lookup& lookup, const RxPacket& packet, bool remembered,
                    Verdict& verdict);
  template <class Policy>
  void join(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  template <class Policy>
  Slot& place_for(const ShardJob& job, const Lookup& lookup, Nanos now);
  template <class Policy>
  Slot& make_room(const ShardJob& job, const Lookup& lookup, Nanos now);
  template <class Policy>
  void take_late(ShardJob& job, Slot& place, const Lookup& lookup, const RxPacket& packet,
                 Nanos now, Verdict& verdict);
  template <class Policy>
  void take_empty(ShardJob& job, Slot& place, const Lookup& lookup, const RxPacket& packet,
                  bool remembered, Nanos now, Verdict& verdict);
  template <class Policy>
  void contend(ShardJob& job, Slot& slot, const Lookup& lookup, const RxPacket& packet, Nanos now,
               Verdict& verdict);
  template <class Policy>
  bool wins(const ShardJob& job, Slot& slot, const RxPacket& packet, Nanos now);
  template <class Policy>
  void add_to(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  bool is_whole_fragment(const ShardJob& job, const Lookup& lookup, const RxPacket& first) const;

  static bool agrees(const Slot& slot, const RxPacket& packet);
  static scheduler::Occupant occupant_of(const Slot& slot, uint32_t workers) {
    return {slot.priority, slot.first_arrival, slot.bits | slot.at_fallback, workers};
  }

  Shard& shard_;
  Results& results_;
  Ascent& ascent_;
  Contributions& contributions_;
  Moving& moving_;
  Parking& parking_;
};

[[gnu::always_inline]] inline bool SlotAllocation::agrees(const Slot& slot,
                                                          const RxPacket& packet) {
  if (is_moved(packet.message.collective)) [[unlikely]]
    return Moving::agrees(slot, packet);
  return slot.expects(packet.message);
}

template <class Policy>
void SlotAllocation::take(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                          Verdict& verdict) {
  if constexpr (Policy::kTraits.hashed)
    take_hashed<Policy>(job, lookup, packet, now, verdict);
  else
    take_in_pool(job, lookup, packet, now, verdict);
}

template <class Policy>
void SlotAllocation::take_hashed(ShardJob& job, const Lookup& lookup, const RxPacket& packet,
                                 Nanos now, Verdict& verdict) {
  if (job.in_tree) [[unlikely]]
    if (ascent_.answer(job, lookup, packet, now, verdict)) return;
  const bool remembered = job.recent.remembers(lookup.seq);
  if (!enter_window(job, lookup, packet, remembered, verdict)) return;
  if (is_moved(packet.message.collective)) [[unlikely]]
    if (moving_.take_without_slot(job, lookup, packet, verdict)) return;
  if (Slot* const slot = shard_.find_slot(lookup, packet.job)) [[likely]]
    return join<Policy>(job, *slot, packet, verdict);

  Slot& place = place_for<Policy>(job, lookup, now);
  if (job.left_behind(lookup.number)) [[unlikely]]
    take_late<Policy>(job, place, lookup, packet, now, verdict);
  else if (place.state == SlotState::kEmpty)
    take_empty<Policy>(job, place, lookup, packet, remembered, now, verdict);
  else
    contend<Policy>(job, place, lookup, packet, now, verdict);
}

/// Enters the worker into the replay window. False: the contribution is too old, or has come
/// before. `remembered`: the window had room for the fragment when the packet came.
[[gnu::always_inline]] inline bool SlotAllocation::enter_window(ShardJob& job, const Lookup& lookup,
                                                                const RxPacket& packet,
                                                                bool remembered, Verdict& verdict) {
  if (job.recent.is_below(lookup.seq)) {
    shard_.drop(verdict, DropReason::kTooOld);
    return false;
  }
  if (lookup.seq >= job.recent.end()) shard_.advance(job, lookup.seq);
  if (remembered) {
    WorkerSet& seen = *lookup.seen;
    if (seen.contains(packet.rank) && rule(Rule::kAntiReplay)) {
      shard_.drop(verdict, DropReason::kDuplicate);
      return false;
    }
    seen.insert(packet.rank);
  }
  if (job.has_help()) [[unlikely]]
    job.late.came(packet.rank, lookup.seq);
  return true;
}

/// The slot holds contributions to the same fragment.
template <class Policy>
[[gnu::always_inline]] inline void SlotAllocation::join(ShardJob& job, Slot& slot,
                                                        const RxPacket& packet, Verdict& verdict) {
  if (!agrees(slot, packet)) return shard_.abort_mismatch(job, slot, verdict);
  if (slot.state == SlotState::kFrozen) return contributions_.bypass(job, packet, verdict);
  if ((slot.bits | slot.at_fallback).contains(packet.rank))
    return shard_.drop(verdict, DropReason::kDuplicate);
  if (job.left_behind(shard_.number_of(slot.seq))) [[unlikely]]
    return parking_.add_late(job, slot, packet, verdict);
  slot.priority =
      std::max(slot.priority, std::min(packet.message.priority, job.spec.rules.priority_max));
  add_to<Policy>(job, slot, packet, verdict);
}

/// The slot that a fragment without one gets, or may contend for.
template <class Policy>
[[gnu::always_inline]] inline Slot& SlotAllocation::place_for(const ShardJob& job,
                                                              const Lookup& lookup, Nanos now) {
  SlotArray& slots = shard_.slots;
  Slot& place = slots.has_sets() ? slots[slots.tags().empty_or(lookup.first)] : *lookup.slot;
  return place.state == SlotState::kEmpty ? place : make_room<Policy>(job, lookup, now);
}

/// All slots that the fragment could have are taken: one whose fragment nobody needs any more,
/// empty now, or else the one that is worth least among those that the job may take.
template <class Policy>
Slot& SlotAllocation::make_room(const ShardJob& job, const Lookup& lookup, Nanos now) {
  SlotArray& slots = shard_.slots;
  const SlotQuotas& quotas = shard_.quotas;
  const scheduler::PolicyOptions& policy = shard_.shape.policy;
  const uint32_t set = slots.tags().set_of(lookup.first);
  const uint32_t ways = std::min(slots.tags().ways(), shard_.shape.slots - set);
  Slot* place = nullptr;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < ways; ++i) {
    Slot& slot = slots[set + (lookup.first - set + i) % ways];
    const ShardJob& owner = shard_.jobs[slot.job];
    if (owner.recent.is_below(slot.seq)) {
      shard_.reap(slot);
      return slot;
    }
    uint64_t worth = UINT64_MAX - 1;  // not to be had
    if (!Policy::kTraits.held_until_acknowledged && quotas.may_preempt(job.slots, owner.slots))
      worth = Policy::worth(occupant_of(slot, owner.spec.workers), now, policy) +
              (quotas.is_entitled(job.slots, owner.slots) ? 0 : uint64_t{1} << 32);
    if (worth >= least) continue;
    least = worth;
    place = &slot;
  }
  return *place;
}

/// Straggler help has passed the fragment by.
template <class Policy>
[[gnu::noinline]] void SlotAllocation::take_late(ShardJob& job, Slot& place, const Lookup& lookup,
                                                 const RxPacket& packet, Nanos now,
                                                 Verdict& verdict) {
  const bool may_wait_here = !Policy::kTraits.held_until_acknowledged &&
                             place.state == SlotState::kEmpty && !carries_move(packet.message) &&
                             shard_.quotas.may_take_empty(job.slots);
  parking_.take_late(job, may_wait_here ? &place : nullptr, lookup.seq, packet, now, verdict);
}

template <class Policy>
[[gnu::always_inline]] inline void SlotAllocation::take_empty(ShardJob& job, Slot& place,
                                                              const Lookup& lookup,
                                                              const RxPacket& packet,
                                                              bool remembered, Nanos now,
                                                              Verdict& verdict) {
  if (!shard_.quotas.may_take_empty(job.slots)) return contributions_.bypass(job, packet, verdict);
  if constexpr (!Policy::kTraits.held_until_acknowledged)
    if (remembered && is_whole_fragment(job, lookup, packet))
      return contributions_.finish_at_once(job, lookup.seq, *lookup.seen, packet, verdict);
  contributions_.install(job, place, lookup.seq, packet, now);
  add_to<Policy>(job, place, packet, verdict);
}

/// True if the group at hand is all contributions to a fragment, of which none has come before.
inline bool SlotAllocation::is_whole_fragment(const ShardJob& job, const Lookup& lookup,
                                              const RxPacket& first) const {
  const PendingSum& pending = contributions_.pending();
  return pending.collects() && pending.followers().are_all_but(first.rank, job.full) &&
         *lookup.seen == WorkerSet::of(first.rank) && first.message.receiver == 0 &&
         !job.has_help() && !job.has_parent();
}

/// The slot belongs to another fragment.
template <class Policy>
void SlotAllocation::contend(ShardJob& job, Slot& slot, const Lookup& lookup,
                             const RxPacket& packet, Nanos now, Verdict& verdict) {
  // A last contribution, of a fragment whose others have all gone, need not take a slot.
  const WorkerSet gone = shard_.gone_to_fallback(job, lookup.seq, packet);
  const bool is_last = !gone.empty() && (gone | WorkerSet::of(packet.rank)) == job.full;
  if (is_last || !wins<Policy>(job, slot, packet, now))
    return contributions_.bypass(job, packet, verdict);
  ++shard_.counters.preemptions;
  ++shard_.jobs[slot.job].counters.preempted;
  contributions_.leave_as_part(slot, verdict);
  contributions_.install(job, slot, lookup.seq, packet, now);
  add_to<Policy>(job, slot, packet, verdict);
}

/// True if the contribution takes the slot. The priority of one that keeps it may go down.
template <class Policy>
bool SlotAllocation::wins(const ShardJob& job, Slot& slot, const RxPacket& packet, Nanos now) {
  const SlotQuotas& quotas = shard_.quotas;
  const scheduler::PolicyOptions& policy = shard_.shape.policy;
  const ShardJob& owner = shard_.jobs[slot.job];
  if (Policy::kTraits.held_until_acknowledged || !quotas.may_preempt(job.slots, owner.slots))
    return false;
  if (quotas.is_entitled(job.slots, owner.slots)) return true;
  const uint8_t priority =
      std::max<uint8_t>(1, std::min(packet.message.priority, job.spec.rules.priority_max));
  if (Policy::takes_over(occupant_of(slot, owner.spec.workers), priority, now, policy)) return true;
  slot.priority = Policy::kept(slot.priority, policy);
  return false;
}

template <class Policy>
[[gnu::always_inline]] inline void SlotAllocation::add_to(ShardJob& job, Slot& slot,
                                                          const RxPacket& packet,
                                                          Verdict& verdict) {
  // No fallback acknowledges what leaves the slot of a job in a tree.
  const bool held = Policy::kTraits.held_until_acknowledged && !job.in_tree;
  const bool full = (slot.bits | slot.at_fallback | WorkerSet::of(packet.rank)) == job.full;
  slot.flags |= packet.message.flags & wire::kResultFlags;
  if (full && !held && (slot.at_fallback.empty() || !rule(Rule::kPartialTest))) {
    if (slot.moves()) [[unlikely]]
      return moving_.finish_with(job, slot, packet, verdict);
    return contributions_.finish(job, slot, packet, verdict);
  }
  contributions_.absorb(job, slot, packet, verdict);
  if (!full) return;
  if (held)
    contributions_.freeze(slot, verdict);
  else
    contributions_.leave_as_part(slot, verdict);
}

template <class Policy>
bool SlotAllocation::join_group(ShardJob& job, const Lookup& lookup, const Followers& followers,
                                uint32_t count) {
  constexpr bool kHashed = Policy::kTraits.hashed;
  PendingSum& pending = contributions_.pending();
  if (!pending.slot() || job.has_help()) return false;
  if (kHashed && !job.recent.remembers(lookup.seq)) return false;
  if (!followers.are_within(job.full)) return false;
  Slot& slot = *pending.slot();
  const WorkerSet here = slot.bits | slot.at_fallback;
  const WorkerSet known = here | (kHashed ? *lookup.seen : WorkerSet());
  if ((followers.repeated || known.intersects(followers.bits)) && rule(Rule::kGroupOnce))
    return false;
  const RxPacket& last = *followers.last;
  const bool full = (here | followers.bits) == job.full;
  // The last one has more to do than to be added.
  const uint32_t plain = full ? count - 1 : count;
  pending.add_followers(plain);
  if constexpr (kHashed) {
    *lookup.seen |= followers.bits;
    slot.flags |= followers.flags & wire::kResultFlags;
    slot.priority =
        std::max(slot.priority, std::min(followers.priority, job.spec.rules.priority_max));
  }
  slot.bits |= full ? followers.bits - WorkerSet::of(last.rank) : followers.bits;
  shard_.counters.absorbed += plain;
  job.counters.absorbed += plain;
  shard_.counters.absorbed_bytes += uint64_t{plain} * last.payload_bytes;
  if (!full) return true;
  if constexpr (kHashed)
    add_to<Policy>(job, slot, last, *followers.last_verdict);
  else
    contributions_.finish(job, slot, last, *followers.last_verdict);
  return true;
}

}  // namespace ina::aggregator
