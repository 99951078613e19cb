#include "aggregator/aggregator.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "wire/rules.h"

namespace ina::aggregator {

using scheduler::StaticPool;
using wire::Message;
using wire::Type;

namespace {

// Rows that fit a core's own cache are near enough but for their beginnings. Of others the first
// lines are fetched ahead; the rest of a longer one follows by itself, because caches see that
// addresses rise.
constexpr size_t kNearBytes = 1 << 20;
constexpr uint32_t kPrefetchNearBytes = 256;
constexpr uint32_t kPrefetchFarBytes = 1024;

/// Of what is moved there is one payload a fragment, and nothing to be added.
bool may_be_grouped(const Message& message) {
  return message.type == Type::kGrad && !is_moved(message.collective) && !message.bare();
}

}  // namespace

Aggregator::Aggregator(const Shape& shape, std::span<std::byte> rows)
    : shape_(shape),
      hashed_(scheduler::traits(shape.policy.kind).hashed),
      lanes_(shape.lanes),
      rows_(rows.data()),
      prefetch_bytes_(size_t{shape.slots} * shape.slot_bytes > kNearBytes ? kPrefetchFarBytes
                                                                          : kPrefetchNearBytes),
      slots_(shape.slots),
      tags_(shape.slots, hashed() ? shape.policy.ways : 1),
      lookups_(kMaxBurst),
      expanded_(std::max(1u, shape.burst)),
      quotas_(shape.slots),
      jobs_(shape.max_jobs),
      bare_results_(shape.max_jobs, shape.lanes) {
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps)
      if (is_valid(dtype, op))
        kernels_[static_cast<size_t>(dtype)][static_cast<size_t>(op)] = &kernels(dtype, op);
  for (uint32_t i = 0; i < shape.slots; ++i) slots_[i].row = i;
  for (uint32_t i = 0; i < spare_rows(shape); ++i) spare_rows_.push_back(shape.slots + i);
}

// ---- jobs

void Aggregator::add_job(JobIndex index, const JobSpec& spec) {
  Job& job = jobs_[index];
  job = Job{};
  job.spec = spec;
  job.slots.quota = spec.quota;
  job.recent = ReplayWindow(spec.start, spec.window, shape_.lanes, spec.seen);
  job.results = ResultMemory(spec.results, spec.window, shape_.slot_bytes, spec.placed);
  job.given = GivenResults(spec.given);
  job.pool_slots = Divider(std::max(1u, spec.pool.slots));
  job.full = full_bitmap(spec.workers);
  job.limit = spec.start + (spec.rejoined ? 2 : 1) * uint64_t{spec.window};
  job.results_end = spec.start;
  job.park_next = number_of(spec.start);
  job.progress.fill(spec.start);
  if (spec.park_if_it_pays) {
    job.lockstep = Lockstep(spec.workers, spec.park_window, spec.park_patience, horizon_of(job));
    job.lockstep.begin(progress_of(job), {}, 0);
  }
  job.present = true;
  bare_results_.add_job(index, spec.joining, spec.start);
  parking_ += spec.park_after != 0;
  quotas_.open(job.slots);
}

void Aggregator::remove_job(JobIndex index) {
  if (!jobs_[index].present) return;
  sweep(index);
  bare_results_.remove_job(index);
  quotas_.close(jobs_[index].slots);
  parking_ -= jobs_[index].spec.park_after != 0;
  jobs_[index] = Job{};
}

void Aggregator::new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill) {
  Job& job = jobs_[index];
  if (!job.present) return;
  sweep(index);
  job.spec.epoch = epoch;
  job.spec.instance = instance;
  job.spec.spill = spill;
  job.recent.clear();
  if (job.spec.parked_at) {
    std::fill_n(job.spec.parked_at, JobSpec::seen_words(job.spec.window, shape_.lanes), 0);
    job.parked_load = {};
    job.counters.parked_now = 0;
  }
  job.late = 0;
  job.waited_for = 0;
  job.out_of_room = 0;
}

void Aggregator::add_result_buffer(JobIndex index, const ResultBuffer& buffer) {
  Job& job = jobs_[index];
  if (job.present) job.results.add(buffer);
}

void Aggregator::remove_result_buffer(JobIndex index, uint32_t first_unit) {
  jobs_[index].results.remove(first_unit);
}

void Aggregator::sweep(JobIndex index) {
  Job& job = jobs_[index];
  // Whoever makes and leaves jobs all the time must not have the whole array looked through.
  if (hashed() && job.slots.held == 0) return;
  uint32_t first = 0;
  uint32_t last = shape_.slots;
  if (!hashed()) {
    first = job.spec.pool.first_slot;
    last = first + job.spec.pool.slots;
  }
  for (uint32_t i = first; i < last; ++i) {
    Slot& slot = slots_[i];
    if (slot.state == SlotState::kEmpty || slot.job != index) continue;
    reap(slot);
  }
}

// ---- a burst

void Aggregator::on_burst(std::span<const RxPacket> packets, Nanos now,
                          std::span<Verdict> verdicts) {
  noted_words_ = (packets.size() + 63) / 64;
  std::fill_n(noted_.begin(), noted_words_, 0);
  look_up(packets);
  counters_.packets += packets.size();
  scheduler::with_policy(shape_.policy.kind,
                         [&](auto policy) { decide<decltype(policy)>(packets, now, verdicts); });
}

/// Slots first, then rows, then work: by the time a packet is added, what it touches is on its way.
void Aggregator::look_up(std::span<const RxPacket> packets) {
  switch (tags_.ways()) {
    case 2:
      return look_up_in_sets<2>(packets);
    case 4:
      return look_up_in_sets<4>(packets);
    case 8:
      return look_up_in_sets<8>(packets);
    default:
      return look_up_in_sets<1>(packets);
  }
}

template <uint32_t kWays>
void Aggregator::look_up_in_sets(std::span<const RxPacket> packets) {
  [[maybe_unused]] const uint32_t* const tags = tags_.data();
  groups_.begin();
  for (uint32_t i = 0; i < packets.size(); ++i) {
    // The others of a group need no look-up of their own.
    if (may_be_grouped(packets[i].message)) {
      if (groups_.join(packets, i) != i) continue;
    } else {
      groups_.stand_alone(i);
    }
    const Job& job = jobs_[packets[i].job];
    Lookup& lookup = lookups_[i];
    lookup = Lookup{};
    if (!job.present) continue;
    lookup.seq = seq_of(job, packets[i]);
    lookup.number = number_of(lookup.seq);
    if (packets[i].message.type != Type::kGrad) continue;
    if (hashed()) {
      lookup.first = hashed_slot(job, lookup.number);
      uint32_t likely = lookup.first;
      if constexpr (kWays != 1) {
        const uint32_t tag = SlotTags::tag_of(packets[i].job, lookup.number);
        const uint32_t same = SlotTags::matches<kWays>(tags, lookup.first, tag);
        likely = same != 0
                     ? (lookup.first & ~(kWays - 1)) + static_cast<uint32_t>(std::countr_zero(same))
                     : tags_.empty_or(lookup.first);
      }
      lookup.slot = &slots_[likely];
      lookup.seen = &job.recent.seen(lookup.number);
      __builtin_prefetch(lookup.seen, 1);
    } else {
      lookup.slot = &pool_slot(job, lookup.number);
    }
    __builtin_prefetch(lookup.slot, 1);
  }
}

// Always inlined: GCC takes a function that only prefetches for one without effect, and calls to
// it away.
template <int kToWrite>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* from, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += 256) {
    __builtin_prefetch(from + at, kToWrite);
    __builtin_prefetch(from + at + 64, kToWrite);
    __builtin_prefetch(from + at + 128, kToWrite);
    __builtin_prefetch(from + at + 192, kToWrite);
  }
}

template <class Policy>
void Aggregator::decide(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts) {
  if (groups_.any()) return decide_groups<Policy>(packets, now, verdicts);
  constexpr size_t kRowsAhead = 4;
  constexpr size_t kPayloadsAhead = 2;
  const auto prefetch_row = [&](size_t i) __attribute__((always_inline)) {
    if (lookups_[i].slot)
      prefetch_lines<1>(row_of(*lookups_[i].slot),
                        std::min(packets[i].payload_bytes, prefetch_bytes_));
  };
  for (size_t i = 0; i < std::min(kRowsAhead, packets.size()); ++i) prefetch_row(i);
  for (size_t i = 0; i < packets.size(); ++i) {
    if (i + kRowsAhead < packets.size()) prefetch_row(i + kRowsAhead);
    if (i + kPayloadsAhead < packets.size()) {
      const RxPacket& next = packets[i + kPayloadsAhead];
      prefetch_lines<0>(next.payload, std::min(next.payload_bytes, kPrefetchFarBytes));
    }
    on_packet<Policy>(packets[i], lookups_[i], now, verdicts[i]);
    note(i, verdicts[i]);
  }
}

/// A packet of a burst with groups.
template <class Policy>
[[gnu::noinline]] void Aggregator::decide_one(size_t index, const RxPacket& packet,
                                              const Lookup& lookup, Nanos now, Verdict& verdict) {
  on_packet<Policy>(packet, lookup, now, verdict);
  note(index, verdict);
}

/// The same for a burst in which several packets are to the same fragment.
template <class Policy>
void Aggregator::decide_groups(std::span<const RxPacket> packets, Nanos now,
                               std::span<Verdict> verdicts) {
  constexpr size_t kRowsAhead = 4;
  constexpr size_t kPayloadsAhead = 2;
  const std::span<const uint16_t> order = groups_.order(packets.size());
  const auto prefetch_row = [&](size_t i) __attribute__((always_inline)) {
    const RxPacket& packet = packets[order[i]];
    const uint32_t size = groups_.size_of(order[i]);
    // A fragment that is all there has no use for its row.
    if (size != 0 && size != jobs_[packet.job].spec.workers && lookups_[order[i]].slot)
      prefetch_lines<1>(row_of(*lookups_[order[i]].slot),
                        std::min(packet.payload_bytes, prefetch_bytes_));
  };
  const auto prefetch_payload = [&](size_t i) __attribute__((always_inline)) {
    const RxPacket& packet = packets[order[i]];
    prefetch_lines<0>(packet.payload, std::min(packet.payload_bytes, kPrefetchNearBytes));
  };
  size_t rows = 0;
  size_t payloads = 0;
  for (size_t at = 0; at < order.size();) {
    const uint32_t first = order[at];
    const uint32_t size = groups_.size_of(first);
    for (; rows < std::min(at + size + kRowsAhead, order.size()); ++rows) prefetch_row(rows);
    for (; payloads < std::min(at + size + kPayloadsAhead, order.size()); ++payloads)
      prefetch_payload(payloads);
    if (size == 1)
      decide_one<Policy>(first, packets[first], lookups_[first], now, verdicts[first]);
    else
      decide_group<Policy>(order.subspan(at, size), packets, now, verdicts);
    at += size;
  }
}

/// The first packet finds or takes the slot, as any packet does. The others go the same way, if
/// they cannot simply join it there.
template <class Policy>
void Aggregator::decide_group(std::span<const uint16_t> group, std::span<const RxPacket> packets,
                              Nanos now, std::span<Verdict> verdicts) {
  const Lookup& lookup = lookups_[group[0]];
  pending_.collects = true;
  decide_one<Policy>(group[0], packets[group[0]], lookup, now, verdicts[group[0]]);
  if (!join_together<Policy>(jobs_[packets[group[0]].job], lookup, group.subspan(1), packets,
                             verdicts))
    for (const uint32_t at : group.subspan(1))
      decide_one<Policy>(at, packets[at], lookup, now, verdicts[at]);
  if (pending_.slot) add_pending();
  pending_.collects = false;
}

/// Contributions to the fragment whose first one has just been added to its slot. False: something
/// is to be said about one of them, and nothing has been done.
template <class Policy>
bool Aggregator::join_together(Job& job, const Lookup& lookup, std::span<const uint16_t> group,
                               std::span<const RxPacket> packets, std::span<Verdict> verdicts) {
  constexpr bool kHashed = Policy::kTraits.hashed;
  if (!pending_.slot || job.spec.park_after != 0) return false;
  if (kHashed && !job.recent.remembers(lookup.seq)) return false;
  Slot& slot = *pending_.slot;
  const Bitmap here = slot.bits | slot.at_fallback;
  const Bitmap known = here | (kHashed ? *lookup.seen : 0);
  const std::byte** const payloads = pending_.payloads.data() + pending_.count;
  Bitmap bits = 0;
  uint16_t flags = 0;
  uint8_t priority = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    const RxPacket& packet = packets[group[i]];
    if (value(packet.rank) >= job.spec.workers) return false;
    const Bitmap bit = bit_of(packet.rank);
    if (((known | bits) & bit) != 0 && rule(Rule::kGroupOnce)) return false;
    bits |= bit;
    flags |= packet.message.flags;
    priority = std::max(priority, packet.message.priority);
    payloads[i] = packet.payload;
    verdicts[group[i]].emissions = 0;
    verdicts[group[i]].fate = Verdict::Fate::kAbsorbed;
  }
  const bool full = (here | bits) == job.full;
  const uint32_t last = group.back();
  // The last one has more to do than to be added.
  const size_t plain = group.size() - (full ? 1 : 0);
  pending_.count += static_cast<uint32_t>(plain);
  if constexpr (kHashed) {
    *lookup.seen |= bits;
    slot.flags |= flags & wire::kFlagEcn;
    slot.priority = std::max(slot.priority, std::min(priority, job.spec.priority_max));
  }
  slot.bits |= full ? bits & ~bit_of(packets[last].rank) : bits;
  counters_.absorbed += plain;
  job.counters.absorbed += plain;
  counters_.absorbed_bytes += plain * packets[last].payload_bytes;
  if (!full) return true;
  if constexpr (kHashed) {
    add_to<Policy>(job, slot, packets[last], verdicts[last]);
  } else {
    finish(job, slot, packets[last], verdicts[last]);
  }
  note(last, verdicts[last]);
  return true;
}

void Aggregator::drop(Verdict& verdict, DropReason reason) {
  verdict.fate = Verdict::Fate::kDropped;
  verdict.reason = reason;
  counters_.drops.add(reason);
}

Emission& Aggregator::add_emission(Verdict& verdict, Emission::To to, JobIndex job) {
  Emission& emission = verdict.emission[verdict.emissions++];
  emission.to = to;
  emission.job = job;
  emission.message = Message{};
  emission.payload = nullptr;
  emission.payload_bytes = 0;
  return emission;
}

/// Whether a worker of the job may speak of the fragment now.
[[gnu::always_inline]] inline bool Aggregator::is_within(const Job& job, Seq seq,
                                                         const RxPacket& packet, Verdict& verdict) {
  // C1: a worker sends s only when it has result s-W, so s is at most W above the highest result.
  if (value(packet.rank) >= job.spec.workers)
    drop(verdict, DropReason::kBadRank);
  else if (seq >= job.limit)
    drop(verdict, DropReason::kOutsideWindow);
  else if (!in_lane(seq))
    drop(verdict, DropReason::kWrongLane);
  else
    return true;
  return false;
}

template <class Policy>
[[gnu::always_inline]] inline void Aggregator::on_packet(const RxPacket& packet,
                                                         const Lookup& lookup, Nanos now,
                                                         Verdict& verdict) {
  verdict.emissions = 0;
  Job& job = jobs_[packet.job];
  if (!job.present) return drop(verdict, DropReason::kBadJob);
  if (job.aborted) return drop(verdict, DropReason::kJobAborted);
  if (packet.message.type != Type::kGrad) [[unlikely]]
    return on_other(job, lookup.seq, packet, verdict);
  if (!is_within(job, lookup.seq, packet, verdict)) return;
  if (const uint32_t epoch = packet.message.epoch; epoch != job.spec.epoch) [[unlikely]] {
    if (epoch > job.spec.epoch) return drop(verdict, DropReason::kFutureEpoch);
    if (rule(Rule::kEpochCheck)) return on_old_epoch(job, packet, verdict);
  }
  if (packet.message.target != 0 &&
      !job.results.in_buffers(packet.message.target - 1, packet.payload_bytes))
    return drop(verdict, DropReason::kBadOffset);
  if (packet.message.receiver != 0 || packet.message.bare()) [[unlikely]] {
    if (packet.message.receiver > job.spec.workers) return drop(verdict, DropReason::kBadRank);
    bare_results_.set_prompt(packet.job, packet.rank,
                             (packet.message.flags & wire::kFlagPrompt) != 0);
  }
  if constexpr (Policy::kTraits.hashed)
    on_hashed_grad<Policy>(job, lookup, packet, now, verdict);
  else
    on_static_grad(job, lookup, packet, now, verdict);
  if (job.spec.park_after != 0) [[unlikely]] {
    const Bitmap bit = bit_of(packet.rank);
    job.out_of_room =
        (job.out_of_room & ~bit) | ((packet.message.flags & wire::kFlagFull) != 0 ? bit : 0);
    park_left_behind(job, packet.job, now, verdict);
  }
}

/// All but contributions.
void Aggregator::on_other(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  const Type type = packet.message.type;
  if (type == Type::kResult || type == Type::kRemind || type == Type::kPoll)
    return on_fallback_packet(job, packet, verdict);
  if (is_within(job, seq, packet, verdict)) on_question(job, seq, packet, verdict);
}

/// What workers and their fallback tell each other.
void Aggregator::on_question(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  const Type type = packet.message.type;
  switch (type) {
    case Type::kQuery:
    case Type::kSent:
    case Type::kNotYet:
    case Type::kHave:
    case Type::kDefer:
      if (job.recent.is_below(seq)) return drop(verdict, DropReason::kTooOld);
      // There is a result, and it may be that nobody needs it from the switch any more.
      if (type == Type::kHave && job.spec.parked_at) unpark(job, number_of(seq));
      if (type == Type::kQuery && left_behind(job, number_of(seq)) &&
          job.recent.seen(number_of(seq)) == job.full)
        job.help.asked += shape_.lanes;
      if (type == Type::kQuery && answer_question(job, seq, packet, verdict)) return;
      return forward(packet, verdict);
    case Type::kPart:
      if (packet.message.origin == wire::Origin::kParker)
        return on_parker_packet(job, seq, packet, verdict);
      [[fallthrough]];
    default:  // the others are the switch's own
      return drop(verdict, DropReason::kBadType);
  }
}

void Aggregator::on_old_epoch(const Job& job, const RxPacket& packet, Verdict& verdict) {
  drop(verdict, DropReason::kStaleEpoch);
  Emission& stale = add_emission(verdict, Emission::To::kSender, packet.job);
  stale.message.type = Type::kStale;
  stale.message.epoch = job.spec.epoch;
  stale.message.seq = packet.message.seq;
}

// ---- contributions

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
      if (slot.bits & bit_of(packet.rank)) {
        drop(verdict, DropReason::kDuplicate);
        // A result of the fallback is not repeated: only the fallback knows whom it has bound.
        if (slot.state == SlotState::kComplete) repeat_result(job, slot, packet.rank, verdict);
        return;
      }
      break;
  }
  if (slot.moves()) return on_static_move(job, slot, packet, verdict);
  if ((slot.bits | bit_of(packet.rank)) == job.full) return finish(job, slot, packet, verdict);
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
    Bitmap& seen_bits = *lookup.seen;
    if ((seen_bits & bit_of(packet.rank)) != 0 && rule(Rule::kAntiReplay))
      return drop(verdict, DropReason::kDuplicate);
    seen_bits |= bit_of(packet.rank);
  }
  if (job.spec.park_after != 0) [[unlikely]]
    job.progress[value(packet.rank)] = std::max(job.progress[value(packet.rank)], seq + 1);
  if (is_moved(packet.message.collective)) [[unlikely]] {
    if (packet.message.bare()) return on_mark(job, lookup, packet, verdict);
    if (packet.message.elements != 0 && (*lookup.seen == job.full || !rule(Rule::kAllMarks)))
      return hand_on(job, seq, packet, verdict);
  }
  // Most find their fragment where it was when the burst was looked up.
  Slot* slot = lookup.slot;
  if (!holds(*slot, packet.job, seq)) [[unlikely]]
    slot = has_sets() ? find_in_set(packet.job, seq, lookup.first) : nullptr;
  if (slot) [[likely]]
    return join<Policy>(job, *slot, packet, verdict);
  Slot* place = has_sets() ? &slots_[tags_.empty_or(lookup.first)] : lookup.slot;
  if (place->state != SlotState::kEmpty) place = make_room<Policy>(job, lookup, now);
  if (left_behind(job, lookup.number)) [[unlikely]] {
    if (!Policy::kTraits.held_until_acknowledged && place->state == SlotState::kEmpty &&
        !moves(packet.message) && quotas_.may_take_empty(job.slots) && worth_combining(job, seq))
      return install_late(job, *place, seq, packet, now, verdict);
    return pass_to_parker(job, seq, packet, verdict);
  }
  if (place->state != SlotState::kEmpty) {
    // A last contribution whose others have all gone need not take anybody's slot.
    const Bitmap gone = gone_to_fallback(job, seq, packet);
    if (gone != 0 && (gone | bit_of(packet.rank)) == job.full) return bypass(job, packet, verdict);
    return contend<Policy>(job, *place, seq, packet, now, verdict);
  }
  if (!quotas_.may_take_empty(job.slots)) return bypass(job, packet, verdict);
  install(job, *place, seq, packet, now);
  add_to<Policy>(job, *place, packet, verdict);
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
  const uint32_t set = tags_.set_of(lookup.first);
  const uint32_t ways = std::min(tags_.ways(), shape_.slots - set);
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
  if ((slot.bits | slot.at_fallback) & bit_of(packet.rank))
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
  slot.at_fallback = hashed() ? gone_to_fallback(job, seq, packet) : 0;
  // Workers that had come to the fragment before its payload.
  slot.bits =
      hashed() && moves(message) ? job.recent.seen(number_of(seq)) & ~bit_of(packet.rank) : 0;
  slot.first_arrival = now;
  slot.job = packet.job;
  slot.elements = message.bare() ? uint16_t{0} : message.elements;
  slot.flags = message.flags & wire::kFlagBare;
  slot.first_rank = packet.rank;
  slot.priority = std::max<uint8_t>(1, std::min(message.priority, job.spec.priority_max));
  slot.state = SlotState::kFilling;
  if (has_sets()) tags_.set(index_of(slot), SlotTags::tag_of(packet.job, number_of(seq)));
  take_slot(job);
}

void Aggregator::count_absorbed(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  slot.bits |= bit_of(packet.rank);
  if (!left_behind(job, number_of(slot.seq))) job.late &= ~bit_of(packet.rank);
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
  } else if (pending_.collects) {
    add_later(slot, packet.payload);
  } else {
    const Kernels& kernel = kernels_of(slot);
    (slot.bits == 0 ? kernel.load : kernel.add)(row_of(slot), packet.payload, slot.elements);
  }
  count_absorbed(job, slot, packet, verdict);
}

template <class Policy>
[[gnu::always_inline]] inline void Aggregator::add_to(Job& job, Slot& slot, const RxPacket& packet,
                                                      Verdict& verdict) {
  const Bitmap bit = bit_of(packet.rank);
  const bool full = (slot.bits | slot.at_fallback | bit) == job.full;
  slot.flags |= packet.message.flags & wire::kFlagEcn;
  if (full && !Policy::kTraits.held_until_acknowledged &&
      (slot.at_fallback == 0 || !rule(Rule::kPartialTest)))
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

void Aggregator::add_later(Slot& slot, const std::byte* payload) {
  if (!pending_.slot) {
    pending_.slot = &slot;
    pending_.held = slot.bits != 0;
    pending_.count = 0;
  }
  pending_.payloads[pending_.count++] = payload;
}

void Aggregator::add_pending() {
  const Slot& slot = *std::exchange(pending_.slot, nullptr);
  kernels_of(slot).add_all(row_of(slot), pending_.held, pending_.payloads.data(), pending_.count,
                           slot.elements);
  count_group();
}

/// The sum of what is pending and of the last contribution. Returns whether numbers were too large.
bool Aggregator::finish_pending(std::byte* result, const std::byte* last, uint32_t divisor) {
  const Slot& slot = *std::exchange(pending_.slot, nullptr);
  pending_.payloads[pending_.count++] = last;
  const Kernels& kernel = kernels_of(slot);
  count_group();
  return (slot.target != 0 ? kernel.finish_all_stream : kernel.finish_all)(
      result, pending_.held ? row_of(slot) : nullptr, pending_.payloads.data(), pending_.count,
      slot.elements, divisor);
}

void Aggregator::count_group() {
  if (pending_.count < 2) return;
  ++counters_.groups;
  counters_.grouped += pending_.count;
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
  if (pending_.slot) {
    overflow = finish_pending(result, packet.payload, divisor);
  } else if (slot.bits == 0) {  // a job of one worker
    kernel.load(row_of(slot), packet.payload, slot.elements);
    overflow = kernel.finish(result, row_of(slot), slot.elements, divisor);
  } else {
    overflow = add_finish(result, row_of(slot), packet.payload, slot.elements, divisor);
  }
  count_absorbed(job, slot, packet, verdict);
  if (overflow) slot.flags |= wire::kFlagOverflow;
  ++counters_.results;
  ++job.counters.results;
  counters_.contributions_in_results += slot.contributions();
  note_result(job, slot.seq);
  emit_results(job, slot, verdict);
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
  part.message.bitmap = bit_of(packet.rank);
  if (moves(packet.message)) part.message.bitmap |= job.recent.seen(number_of(seq_of(job, packet)));
  part.message.rank = packet.rank;
  part.message.epoch = job.spec.epoch;
  part.message.instance = job.spec.instance;
  part.payload = packet.payload;
  part.payload_bytes = packet.payload_bytes;
}

void Aggregator::emit_part(const Slot& slot, Verdict& verdict) {
  if (pending_.slot == &slot) add_pending();
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
  part.payload = rows_ + size_t{slot.row} * shape_.slot_bytes;
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
  std::swap(slot.row, spare_rows_[next_spare_]);
  next_spare_ = (next_spare_ + 1) % spare_rows_.size();
  release(slot);
}

/// To all that it is for, and to all others that it is decided.
void Aggregator::emit_results(Job& job, const Slot& slot, Verdict& verdict) const {
  const Emission& result = emit_result(job, slot, Emission::To::kAll, verdict);
  remember_given(job, slot.seq, result.message);
  if (slot.receiver != 0) [[unlikely]]
    bare_for_others(verdict);
}

/// To one that asks again.
void Aggregator::repeat_result(const Job& job, const Slot& slot, Rank rank, Verdict& verdict) {
  ++counters_.results_again;
  Emission& emission = emit_result(job, slot, Emission::To::kSender, verdict);
  if (!has_role(static_cast<uint8_t>(slot.receiver), rank)) make_bare(emission);
}

Emission& Aggregator::emit_result(const Job& job, const Slot& slot, Emission::To to,
                                  Verdict& verdict) const {
  Emission& emission = add_emission(verdict, to, slot.job);
  Message& message = emission.message;
  message.set_signature(slot.signature());
  message.bitmap = job.full;
  message.epoch = job.spec.epoch;
  message.seq = slot.seq.low();
  message.elements = slot.elements;
  message.flags = slot.flags;
  message.type = Type::kResult;
  message.origin = wire::Origin::kSwitch;
  message.lane = static_cast<uint8_t>(shape_.lane);
  emission.payload_bytes = wire::payload_bytes(message);
  emission.payload = job.results.place(slot.seq, slot.target, emission.payload_bytes);
  return emission;
}

// ---- slots

void Aggregator::note_result(Job& job, Seq seq) {
  job.results_end = std::max(job.results_end, seq + 1);
  job.limit = std::max(job.limit, seq + 1 + job.spec.window);
}

void Aggregator::release(Slot& slot) {
  if (slot.state == SlotState::kFilling || slot.state == SlotState::kFrozen) {
    give_back_slot(jobs_[slot.job]);
  }
  if (slot.state == SlotState::kFrozen) {
    // Its sum may be on its way out in this very burst.
    std::swap(slot.row, spare_rows_[next_spare_]);
    next_spare_ = (next_spare_ + 1) % spare_rows_.size();
  }
  if (has_sets()) tags_.set(index_of(slot), SlotTags::kEmpty);
  const uint32_t row = slot.row;
  slot = Slot{};
  slot.row = row;
}

void Aggregator::take_slot(Job& job) {
  quotas_.take(job.slots);
  job.counters.slots_held = job.slots.held;
  job.counters.slots_held_peak = job.slots.peak;
  counters_.slots_used = quotas_.used();
  counters_.slots_used_peak = quotas_.peak();
}

void Aggregator::give_back_slot(Job& job) {
  quotas_.give_back(job.slots);
  job.counters.slots_held = job.slots.held;
  counters_.slots_used = quotas_.used();
}

Slot* Aggregator::find_slot(const Job& job, Seq seq) {
  const uint64_t number = number_of(seq);
  if (!hashed()) {
    Slot& slot = pool_slot(job, number);
    return slot.state != SlotState::kEmpty && slot.seq == seq ? &slot : nullptr;
  }
  return find_in_set(index_of(job), seq, hashed_slot(job, number));
}

/// The slot that holds a fragment, where any of a set may.
Slot* Aggregator::find_in_set(JobIndex job, Seq seq, uint32_t first) {
  if (!has_sets()) return holds(slots_[first], job, seq) ? &slots_[first] : nullptr;
  const uint32_t set = tags_.set_of(first);
  uint32_t left = tags_.matches(first, SlotTags::tag_of(job, number_of(seq)));
  for (; left != 0; left &= left - 1)
    if (Slot& slot = slots_[set + static_cast<uint32_t>(std::countr_zero(left))];
        holds(slot, job, seq))
      return &slot;
  return nullptr;
}

/// Contributions to a fragment that is in no slot, but for this one: what came went there. What has
/// come of others to a fragment that is moved are marks, which went nowhere.
Bitmap Aggregator::gone_to_fallback(const Job& job, Seq seq, const RxPacket& packet) const {
  if (moves(packet.message)) return 0;
  return shape_.policy.residual ? job.recent.seen(number_of(seq)) & ~bit_of(packet.rank) : 0;
}

// ---- the fallback

void Aggregator::forward(const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& emission = add_emission(verdict, Emission::To::kFallback, packet.job);
  emission.message = packet.message;
  emission.message.rank = packet.rank;  // what the binding says, not the packet
  emission.message.bitmap = bit_of(packet.rank);
  emission.payload = packet.payload;
  emission.payload_bytes = packet.payload_bytes;
}

void Aggregator::on_spill(JobIndex index, const wire::Outgoing& packet, Verdict& verdict) {
  verdict.emissions = 0;
  Job& job = jobs_[index];
  ++counters_.packets;
  ++counters_.spill_packets;
  if (!job.present || job.aborted) return drop(verdict, DropReason::kJobAborted);
  on_fallback_packet(
      job, {packet.message, packet.payload, packet.payload_bytes, index, kFallbackRank}, verdict);
  if (verdict.fate == Verdict::Fate::kForwarded) ++counters_.forwarded;
}

/// RESULT, REMIND and POLL, which only the fragment's home may say.
void Aggregator::on_fallback_packet(Job& job, const RxPacket& packet, Verdict& verdict) {
  const Seq seq = seq_of(job, packet);
  if (packet.message.origin == wire::Origin::kParker && packet.message.type == Type::kResult)
    return on_parker_packet(job, seq, packet, verdict);
  const Rank home =
      job.spec.home == Home::kWorkers ? home_of(seq, job.spec.workers) : kFallbackRank;
  if (packet.rank != home) return drop(verdict, DropReason::kNotHome);
  if (seq >= job.limit) return drop(verdict, DropReason::kOutsideWindow);
  if (!in_lane(seq)) return drop(verdict, DropReason::kWrongLane);
  if (packet.message.instance < job.spec.instance && rule(Rule::kInstance))
    return drop(verdict, DropReason::kOldInstance);
  if (job.recent.is_below(seq)) return drop(verdict, DropReason::kTooOld);
  switch (packet.message.type) {
    case Type::kResult:
      return give_out(job, seq, packet, wire::Origin::kFallback, verdict);
    case Type::kRemind:
      return on_remind(job, seq, packet, verdict);
    default: {
      // Only the switch knows what has not come to it.
      if (packet.message.phase == wire::Phase::kAgain) return drop(verdict, DropReason::kBadType);
      verdict.fate = Verdict::Fate::kForwarded;
      Emission& poll = add_emission(verdict, Emission::To::kAll, packet.job);
      poll.message = packet.message;
      poll.message.rank = packet.rank;
    }
  }
}

/// A result that was made elsewhere, to all.
void Aggregator::give_out(Job& job, Seq seq, const RxPacket& packet, wire::Origin origin,
                          Verdict& verdict) {
  if (packet.message.receiver > job.spec.workers) return drop(verdict, DropReason::kBadRank);
  if (packet.message.bare()) return drop(verdict, DropReason::kBadLength);
  std::byte* result = job.results.place(seq, packet.message.target, packet.payload_bytes);
  if (!result) return drop(verdict, DropReason::kBadOffset);
  advance(job, seq);
  if (Slot* slot = find_slot(job, seq)) reap(*slot);
  if (hashed()) {
    job.recent.seen(number_of(seq)) =
        job.full;  // contributions that are still under way come too late
    if (job.spec.parked_at) unpark(job, number_of(seq));
  } else if (Slot& slot = pool_slot(job, number_of(seq));
             slot.state == SlotState::kEmpty || slot.seq < seq) {
    // Contributions that are still under way find the fragment answered.
    reap(slot);
    slot.seq = seq;
    slot.bits = job.full;
    slot.job = packet.job;
    slot.elements = packet.message.elements;
    slot.set_signature(packet.message.signature());
    slot.state = SlotState::kAnswered;
  }
  note_result(job, seq);
  // Said again, after everybody has it, it would overwrite what the next operation put there.
  const bool there = packet.message.target != 0 && place_once(job, seq);
  if (packet.payload_bytes != 0 && !there)
    std::memcpy(result, packet.payload, packet.payload_bytes);
  const bool parked = origin == wire::Origin::kParker;
  ++(parked ? counters_.parker_results : counters_.fallback_results);
  ++(parked ? job.counters.parker_results : job.counters.fallback_results);
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& emission = add_emission(verdict, Emission::To::kAll, packet.job);
  emission.message = packet.message;
  emission.message.origin = origin;
  emission.message.rank = packet.rank;
  emission.message.bitmap = job.full;
  if ((packet.message.flags & wire::kFlagKept) != 0 && value(packet.rank) < job.spec.workers) {
    emission.to = Emission::To::kHolders;
    emission.message.flags &= static_cast<uint16_t>(~wire::kFlagKept);
    emission.message.bitmap &= ~bit_of(packet.rank);
  }
  emission.payload = result;
  emission.payload_bytes = packet.payload_bytes;
  remember_given(job, seq, emission.message);
  if (packet.message.receiver != 0) [[unlikely]]
    bare_for_others(verdict);
}

void Aggregator::on_remind(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Slot* slot = find_slot(job, seq);
  if (!hashed() || !slot) return;
  ++counters_.reminders;
  if (slot->state == SlotState::kFrozen) return emit_part(*slot, verdict);
  if (scheduler::traits(shape_.policy.kind).held_until_acknowledged) {
    counters_.contributions_moved += slot->contributions();
    slot->state = SlotState::kFrozen;
    return emit_part(*slot, verdict);
  }
  leave_as_part(*slot, verdict);
}

uint64_t Aggregator::contributions_held() const {
  uint64_t held = 0;
  for (const Slot& slot : slots_)
    if (slot.state == SlotState::kFilling) held += slot.contributions();
  return held;
}

std::optional<Waiting> Aggregator::oldest_waiting(JobIndex index) {
  const Job& job = jobs_[index];
  if (!job.present) return std::nullopt;
  const Seq end = job.recent.end();
  const uint64_t span = 2 * uint64_t{job.spec.window};
  for (Seq seq{end.value - std::min(end.value, span)}; seq < end; ++seq) {
    if (!in_lane(seq)) continue;
    const Slot* const slot = find_slot(job, seq);
    if (slot != nullptr && slot->state == SlotState::kFilling)
      return Waiting{seq, job.full & ~(slot->bits | slot->at_fallback), slot->signature()};
    // What came may have gone on to the fallback: the replay window knows of whom it came.
    const Bitmap came = hashed() ? job.recent.seen(number_of(seq)) : job.full;
    if (slot == nullptr && came != 0 && came != job.full)
      return Waiting{seq, job.full & ~came, std::nullopt};
  }
  return std::nullopt;
}

}  // namespace ina::aggregator
