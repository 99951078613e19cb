#include "aggregator/burst.h"

#include <algorithm>

#include "wire/rules.h"

namespace ina::aggregator {

using wire::Type;

namespace {

// Rows that fit a core's own cache are near enough but for their beginnings. Of others the first
// lines are fetched ahead; the rest of a longer one follows by itself, because caches see that
// addresses rise.
constexpr size_t kNearBytes = 1 << 20;
constexpr uint32_t kPrefetchNearBytes = 256;
constexpr uint32_t kPrefetchFarBytes = 1024;

uint32_t prefetch_bytes(const Shape& shape) {
  const bool near = size_t{shape.slots} * shape.slot_bytes <= kNearBytes;
  return near ? kPrefetchNearBytes : kPrefetchFarBytes;
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

/// True if it is the contribution of a switch below this one.
bool is_sum_of_child(const ShardJob& job, const RxPacket& packet) {
  return job.in_tree && packet.message.type == Type::kPart && packet.rank != kFallbackRank;
}

}  // namespace

Burst::Burst(Shard& shard, const Parts& parts)
    : shard_(shard),
      parts_(parts),
      prefetch_bytes_(prefetch_bytes(shard.shape)),
      lookups_(BurstGroups::kMaxBurst) {}

void Burst::decide(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts) {
  noted_words_ = (packets.size() + 63) / 64;
  std::fill_n(noted_.begin(), noted_words_, 0);
  groups_.divide(packets);
  look_up(packets);
  shard_.counters.packets += packets.size();
  scheduler::with_policy(shard_.shape.policy.kind, [&](auto policy) {
    if (groups_.any())
      decide_groups<decltype(policy)>(packets, now, verdicts);
    else
      decide_singly<decltype(policy)>(packets, now, verdicts);
  });
}

/// Slots first, then rows, then work: by the time a packet is added, the lines that it touches are
/// on their way to the cache.
void Burst::look_up(std::span<const RxPacket> packets) {
  switch (shard_.slots.tags().ways()) {
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
void Burst::look_up_in_sets(std::span<const RxPacket> packets) {
  Shard& shard = shard_;
  [[maybe_unused]] const uint32_t* const tags = shard.slots.tags().data();
  Lookup* next = lookups_.data();
  for (const BurstGroups::Group& group : groups_.all()) {
    const RxPacket& packet = packets[group.first];
    const ShardJob& job = shard.jobs[packet.job];
    Lookup& lookup = *next++;
    lookup = Lookup{};
    if (!job.present) continue;
    lookup.seq = Shard::seq_of(job, packet);
    lookup.number = shard.number_of(lookup.seq);
    if (packet.message.type != Type::kGrad && !is_sum_of_child(job, packet)) continue;
    if (shard.hashed) {
      lookup.first = shard.hashed_slot(job, lookup.number);
      uint32_t likely = lookup.first;
      if constexpr (kWays != 1) {
        const uint32_t tag = SlotTags::tag_of(packet.job, lookup.number);
        const uint32_t same = SlotTags::matches<kWays>(tags, lookup.first, tag);
        likely = same != 0
                     ? (lookup.first & ~(kWays - 1)) + static_cast<uint32_t>(std::countr_zero(same))
                     : shard.slots.tags().empty_or(lookup.first);
      }
      lookup.slot = &shard.slots[likely];
      lookup.seen = &job.recent.seen(lookup.number);
      __builtin_prefetch(lookup.seen, 1);
    } else {
      lookup.slot = &shard.pool_slot(job, lookup.number);
    }
    __builtin_prefetch(lookup.slot, 1);
  }
}

template <class Policy>
void Burst::decide_singly(std::span<const RxPacket> packets, Nanos now,
                          std::span<Verdict> verdicts) {
  constexpr size_t kRowsAhead = 4;
  constexpr size_t kPayloadsAhead = 2;
  const auto prefetch_row = [&](size_t i) __attribute__((always_inline)) {
    if (lookups_[i].slot)
      prefetch_lines<1>(shard_.slots.row_of(*lookups_[i].slot),
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
[[gnu::noinline]] void Burst::decide_one(size_t index, const RxPacket& packet, const Lookup& lookup,
                                         Nanos now, Verdict& verdict) {
  on_packet<Policy>(packet, lookup, now, verdict);
  note(index, verdict);
}

/// A group's packets behind the first. The payloads of all are fetched, and theirs listed.
void Burst::gather(const BurstGroups::Group& group, std::span<const RxPacket> packets,
                   std::span<Verdict> verdicts, const std::byte** payloads,
                   Followers& followers) const {
  Followers all;
  all.last = &packets[group.last];
  all.last_verdict = &verdicts[group.last];
  all.payloads = payloads;
  const RxPacket& first = packets[group.first];
  prefetch_lines<0>(first.payload, std::min(first.payload_bytes, kPrefetchNearBytes));
  groups_.for_each_follower(group, [&](uint32_t at, const RxPacket& packet) {
    all.add(packet);
    *++payloads = packet.payload;
    prefetch_lines<0>(packet.payload, kPrefetchNearBytes);
    // Most followers need no more than this.
    verdicts[at].fate = Verdict::Fate::kAbsorbed;
    verdicts[at].emissions = 0;
  });
  followers = all;
}

/// Decides a burst in which several packets are to the same fragment. Payloads are fetched a
/// group ahead, and rows a few.
template <class Policy>
void Burst::decide_groups(std::span<const RxPacket> packets, Nanos now,
                          std::span<Verdict> verdicts) {
  constexpr size_t kRowsAhead = 4;
  const std::span<const BurstGroups::Group> groups = groups_.all();
  const auto prefetch_row = [&](size_t i) __attribute__((always_inline)) {
    const RxPacket& packet = packets[groups[i].first];
    // A fragment that is all there has no use for its row.
    if (groups[i].size != shard_.jobs[packet.job].spec.workers && lookups_[i].slot)
      prefetch_lines<1>(shard_.slots.row_of(*lookups_[i].slot),
                        std::min(packet.payload_bytes, prefetch_bytes_));
  };
  for (size_t i = 0; i < std::min(kRowsAhead, groups.size()); ++i) prefetch_row(i);
  const std::byte** payloads = parts_.contributions.pending().list();
  Followers followers[2];  // of the group at hand, and of the next one
  const auto gather_next = [&](size_t i) __attribute__((always_inline)) {
    gather(groups[i], packets, verdicts, payloads, followers[i % 2]);
    payloads += groups[i].size;
  };
  gather_next(0);
  for (size_t i = 0; i < groups.size(); ++i) {
    const BurstGroups::Group& group = groups[i];
    if (i + kRowsAhead < groups.size()) prefetch_row(i + kRowsAhead);
    if (i + 1 < groups.size()) gather_next(i + 1);
    if (group.size == 1)
      decide_one<Policy>(group.first, packets[group.first], lookups_[i], now,
                         verdicts[group.first]);
    else
      decide_group<Policy>(group, followers[i % 2], packets[group.first], lookups_[i], now,
                           verdicts);
  }
}

/// The first packet finds or takes the slot, as any packet does, or makes the result of a whole
/// fragment. The others go the same way, if they cannot simply join it there.
template <class Policy>
[[gnu::always_inline]] inline void Burst::decide_group(const BurstGroups::Group& group,
                                                       const Followers& followers,
                                                       const RxPacket& first, const Lookup& lookup,
                                                       Nanos now, std::span<Verdict> verdicts) {
  PendingSum& pending = parts_.contributions.pending();
  pending.begin_group(followers);
  decide_one<Policy>(group.first, first, lookup, now, verdicts[group.first]);
  if (!pending.collects()) return note(group.last, verdicts[group.last]);
  if (parts_.allocation.join_group<Policy>(shard_.jobs[first.job], lookup, followers,
                                           group.size - 1u)) {
    if (first.message.receiver != 0) [[unlikely]]
      groups_.for_each_follower(
          group, [&](uint32_t, const RxPacket& packet) { parts_.results.hear_prompt(packet); });
    note(group.last, verdicts[group.last]);
  } else {
    groups_.for_each_follower(group, [&](uint32_t at, const RxPacket& packet) {
      decide_one<Policy>(at, packet, lookup, now, verdicts[at]);
    });
  }
  if (pending.slot()) parts_.contributions.add_pending();
  pending.end_group();
}

template <class Policy>
[[gnu::always_inline]] inline void Burst::on_packet(const RxPacket& packet, const Lookup& lookup,
                                                    Nanos now, Verdict& verdict) {
  Shard& shard = shard_;
  verdict.emissions = 0;
  ShardJob& job = shard.jobs[packet.job];
  if (!job.present) return shard.drop(verdict, DropReason::kBadJob);
  if (job.aborted) return shard.drop(verdict, DropReason::kJobAborted);
  if (packet.message.type != Type::kGrad && !is_sum_of_child(job, packet)) [[unlikely]]
    return parts_.messages.take(job, lookup.seq, packet, now, verdict);
  if (!shard.is_within(job, lookup.seq, packet, verdict)) return;
  if (const uint32_t epoch = packet.message.epoch; epoch != job.spec.epoch) [[unlikely]] {
    if (epoch > job.spec.epoch) return shard.drop(verdict, DropReason::kFutureEpoch);
    if (!job.in_tree && rule(Rule::kEpochCheck)) {
      shard.drop(verdict, DropReason::kStaleEpoch);
      return tell_stale(job, packet, verdict);
    }
  }
  if (packet.message.target != 0 &&
      !job.results.in_buffers(packet.message.target - 1, packet.payload_bytes))
    return shard.drop(verdict, DropReason::kBadOffset);
  if (packet.message.receiver != 0 || packet.message.bare()) [[unlikely]] {
    if (packet.message.receiver > job.ranks()) return shard.drop(verdict, DropReason::kBadRank);
    parts_.results.hear_prompt(packet);
  }
  if (job.has_help()) [[unlikely]]
    job.late.set_out_of_room(packet.rank, (packet.message.flags & wire::kFlagFull) != 0);
  parts_.allocation.take<Policy>(job, lookup, packet, now, verdict);
  if (job.has_help()) [[unlikely]]
    parts_.parking.after_contribution(job, packet, now, verdict);
}

/// The worker does not know yet that the job is in another epoch.
void Burst::tell_stale(const ShardJob& job, const RxPacket& packet, Verdict& verdict) {
  Emission& stale = verdict.add(Emission::To::kSender, packet.job);
  stale.message.type = Type::kStale;
  stale.message.epoch = job.spec.epoch;
  stale.message.seq = packet.message.seq;
}

}  // namespace ina::aggregator
