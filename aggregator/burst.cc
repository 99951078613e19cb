// A burst of packets: the fragments of all packets are looked up first, then each packet is
// decided, contributions to the same fragment together.
#include <algorithm>
#include <bit>

#include "aggregator/aggregator.h"
#include "wire/rules.h"

namespace ina::aggregator {

using wire::Message;
using wire::Type;

namespace {

// Rows that fit a core's own cache are near enough but for their beginnings. Of others the first
// lines are fetched ahead; the rest of a longer one follows by itself, because caches see that
// addresses rise.
constexpr size_t kNearBytes = 1 << 20;
constexpr uint32_t kPrefetchNearBytes = 256;
constexpr uint32_t kPrefetchFarBytes = 1024;

/// A moved fragment has one payload, and nothing to be added.
bool may_be_grouped(const Message& message) {
  return message.type == Type::kGrad && !is_moved(message.collective) && !message.bare();
}

}  // namespace

uint32_t Aggregator::prefetch_bytes(const Shape& shape) {
  const bool near = size_t{shape.slots} * shape.slot_bytes <= kNearBytes;
  return near ? kPrefetchNearBytes : kPrefetchFarBytes;
}

void Aggregator::on_burst(std::span<const RxPacket> packets, Nanos now,
                          std::span<Verdict> verdicts) {
  noted_words_ = (packets.size() + 63) / 64;
  std::fill_n(noted_.begin(), noted_words_, 0);
  look_up(packets);
  counters_.packets += packets.size();
  scheduler::with_policy(shape_.policy.kind,
                         [&](auto policy) { decide<decltype(policy)>(packets, now, verdicts); });
}

/// Slots first, then rows, then work: by the time a packet is added, the lines that it touches are
/// on their way to the cache.
void Aggregator::look_up(std::span<const RxPacket> packets) {
  switch (slots_.tags().ways()) {
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
  [[maybe_unused]] const uint32_t* const tags = slots_.tags().data();
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
                     : slots_.tags().empty_or(lookup.first);
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
  pending_.begin_group();
  decide_one<Policy>(group[0], packets[group[0]], lookup, now, verdicts[group[0]]);
  if (!join_together<Policy>(jobs_[packets[group[0]].job], lookup, group.subspan(1), packets,
                             verdicts))
    for (const uint32_t at : group.subspan(1))
      decide_one<Policy>(at, packets[at], lookup, now, verdicts[at]);
  if (pending_.slot()) add_pending();
  pending_.end_group();
}

/// Of a packet whose results may be bare.
inline void Aggregator::hear_prompt(const RxPacket& packet) {
  bare_results_.set_prompt(packet.job, packet.rank, packet.message.seq,
                           (packet.message.flags & wire::kFlagPrompt) != 0);
}

/// Contributions to the fragment whose first one has just been added to its slot. False: something
/// is to be said about one of them, and nothing has been done.
template <class Policy>
bool Aggregator::join_together(Job& job, const Lookup& lookup, std::span<const uint16_t> group,
                               std::span<const RxPacket> packets, std::span<Verdict> verdicts) {
  constexpr bool kHashed = Policy::kTraits.hashed;
  if (!pending_.slot() || job.spec.park_after != 0) return false;
  if (kHashed && !job.recent.remembers(lookup.seq)) return false;
  Slot& slot = *pending_.slot();
  const Bitmap here = slot.bits | slot.at_fallback;
  const Bitmap known = here | (kHashed ? *lookup.seen : 0);
  const std::byte** const payloads = pending_.more();
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
  if (packets[group[0]].message.receiver != 0) [[unlikely]]
    for (const uint32_t at : group) hear_prompt(packets[at]);
  const bool full = (here | bits) == job.full;
  const uint32_t last = group.back();
  // The last one has more to do than to be added.
  const size_t plain = group.size() - (full ? 1 : 0);
  pending_.add_more(plain);
  if constexpr (kHashed) {
    *lookup.seen |= bits;
    slot.flags |= flags & wire::kResultFlags;
    slot.priority = std::max(slot.priority, std::min(priority, job.spec.priority_max));
  }
  slot.bits |= full ? bits & ~bit_of(packets[last].rank) : bits;
  counters_.absorbed += plain;
  job.counters.absorbed += plain;
  counters_.absorbed_bytes += plain * packets[last].payload_bytes;
  if (!full) return true;
  add_last<Policy>(job, slot, packets[last], verdicts[last]);
  note(last, verdicts[last]);
  return true;
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
    return on_other(job, lookup.seq, packet, now, verdict);
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
    hear_prompt(packet);
  }
  on_grad<Policy>(job, lookup, packet, now, verdict);
  if (job.spec.park_after != 0) [[unlikely]] {
    job.late.set_out_of_room(packet.rank, (packet.message.flags & wire::kFlagFull) != 0);
    park_left_behind(job, packet.job, now, verdict);
  }
}

}  // namespace ina::aggregator
