#include "aggregator/fallback_messages.h"

#include <cstring>

#include "wire/rules.h"

namespace ina::aggregator {

using wire::Type;

void FallbackMessages::take(ShardJob& job, Seq seq, const RxPacket& packet, Nanos now,
                            Verdict& verdict) {
  const Type type = packet.message.type;
  if (job.in_tree && packet.rank == kFallbackRank) return on_parent_packet(job, packet, verdict);
  if (type == Type::kResult || type == Type::kRemind || type == Type::kPoll)
    return on_fallback_packet(job, packet, verdict);
  if (shard_.is_within(job, seq, packet, verdict)) on_worker_packet(job, seq, packet, now, verdict);
}

void FallbackMessages::on_worker_packet(ShardJob& job, Seq seq, const RxPacket& packet, Nanos now,
                                        Verdict& verdict) {
  const Type type = packet.message.type;
  if (job.in_tree) return on_member_packet(job, seq, packet, verdict);
  switch (type) {
    case Type::kQuery:
    case Type::kSent:
    case Type::kNotYet:
    case Type::kHave:
    case Type::kDefer:
      if (job.recent.is_below(seq)) return shard_.drop(verdict, DropReason::kTooOld);
      // There is a result, and it may be that nobody needs it from the switch any more.
      if (type == Type::kHave) job.parked.forget(shard_.number_of(seq), job.counters);
      if (type == Type::kQuery && questions_.answer(job, seq, packet, now, verdict)) return;
      return forward(packet, verdict);
    case Type::kPart:
      if (packet.message.origin == wire::Origin::kParker)
        return on_keeper_packet(job, seq, packet, verdict);
      [[fallthrough]];
    default:  // the others are the switch's own
      return shard_.drop(verdict, DropReason::kBadType);
  }
}

/// Of a member of a job in a tree.
void FallbackMessages::on_member_packet(ShardJob& job, Seq seq, const RxPacket& packet,
                                        Verdict& verdict) {
  if (job.recent.is_below(seq)) return shard_.drop(verdict, DropReason::kTooOld);
  verdict.fate = Verdict::Fate::kForwarded;
  switch (packet.message.type) {
    case Type::kSent:
      return ascent_.retract(job, seq, packet);
    case Type::kNotYet:
      return;
    case Type::kHave: {
      if (!rule(Rule::kHaveTaken) && job.has_parent()) return;
      if (ascent_.is_decided(job, seq)) return shard_.drop(verdict, DropReason::kDuplicate);
      RxPacket result = packet;
      result.message.type = Type::kResult;
      result.message.target = 0;
      return give_out(job, seq, result, wire::Origin::kSwitch, verdict);
    }
    default:
      return shard_.drop(verdict, DropReason::kBadType);
  }
}

/// Of the switch above.
void FallbackMessages::on_parent_packet(ShardJob& job, const RxPacket& packet, Verdict& verdict) {
  const Seq seq = Shard::seq_of(job, packet);
  const wire::Message& message = packet.message;
  if (!job.has_parent()) return shard_.drop(verdict, DropReason::kNotHome);
  if (seq >= job.limit) return shard_.drop(verdict, DropReason::kOutsideWindow);
  if (!shard_.in_lane(seq)) return shard_.drop(verdict, DropReason::kWrongLane);
  if (job.recent.is_below(seq)) return shard_.drop(verdict, DropReason::kTooOld);
  // Of an earlier life of the switch above: another sum than that of this one, perhaps.
  const uint32_t epoch = job.spec.tree.parent_epoch;
  if ((epoch == 0 && rule(Rule::kReportStop)) || (message.epoch < epoch && rule(Rule::kOldResult)))
    return shard_.drop(verdict, DropReason::kStaleEpoch);
  if (message.type == Type::kPoll) return ascent_.on_poll(job, seq, packet, verdict);
  if (message.type == Type::kParked) return ascent_.pass_on_parked(job, seq, packet, verdict);
  if (message.type != Type::kResult) return shard_.drop(verdict, DropReason::kBadType);
  if (ascent_.is_decided(job, seq)) return shard_.drop(verdict, DropReason::kDuplicate);
  if (message.bare()) return ascent_.pass_by(job, seq, packet, verdict);
  give_out(job, seq, packet, wire::Origin::kSwitch, verdict);
}

void FallbackMessages::forward(const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& emission = verdict.add(Emission::To::kFallback, packet.job);
  emission.message = packet.message;
  emission.message.rank = packet.rank;  // what the binding says, not the packet
  emission.message.bitmap = WorkerSet::of(packet.rank);
  emission.payload = packet.payload;
  emission.payload_bytes = packet.payload_bytes;
}

void FallbackMessages::take_of_spill(JobIndex index, const wire::Outgoing& packet,
                                     Verdict& verdict) {
  verdict.emissions = 0;
  ShardJob& job = shard_.jobs[index];
  ++shard_.counters.packets;
  ++shard_.counters.spill_packets;
  if (!job.present || job.aborted) return shard_.drop(verdict, DropReason::kJobAborted);
  const RxPacket from_there{packet.message, packet.payload, packet.payload_bytes, index,
                            kFallbackRank};
  if (job.in_tree)
    on_parent_packet(job, from_there, verdict);
  else
    on_fallback_packet(job, from_there, verdict);
  if (verdict.fate == Verdict::Fate::kForwarded) ++shard_.counters.forwarded;
}

/// RESULT, REMIND and POLL, which only the fragment's home may say.
void FallbackMessages::on_fallback_packet(ShardJob& job, const RxPacket& packet, Verdict& verdict) {
  const Seq seq = Shard::seq_of(job, packet);
  if (packet.message.origin == wire::Origin::kParker && packet.message.type == Type::kResult)
    return on_keeper_packet(job, seq, packet, verdict);
  const Rank home =
      job.spec.rules.home == Home::kWorkers ? home_of(seq, job.spec.workers) : kFallbackRank;
  if (packet.rank != home) return shard_.drop(verdict, DropReason::kNotHome);
  if (seq >= job.limit) return shard_.drop(verdict, DropReason::kOutsideWindow);
  if (!shard_.in_lane(seq)) return shard_.drop(verdict, DropReason::kWrongLane);
  if (packet.message.instance < job.spec.instance && rule(Rule::kInstance))
    return shard_.drop(verdict, DropReason::kOldInstance);
  if (job.recent.is_below(seq)) return shard_.drop(verdict, DropReason::kTooOld);
  switch (packet.message.type) {
    case Type::kResult:
      return give_out(job, seq, packet, wire::Origin::kFallback, verdict);
    case Type::kRemind:
      return on_remind(job, seq, verdict);
    default:
      // Only the switch knows what has not come to it.
      if (packet.message.phase >= wire::Phase::kAgain)
        return shard_.drop(verdict, DropReason::kBadType);
      return poll(packet, verdict);
  }
}

/// A question of the fallback, to all workers.
void FallbackMessages::poll(const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& poll = verdict.add(Emission::To::kAll, packet.job);
  poll.message = packet.message;
  poll.message.rank = packet.rank;
}

/// The worker that keeps a parked sum gives out the result, or passes on its partial sum.
void FallbackMessages::on_keeper_packet(ShardJob& job, Seq seq, const RxPacket& packet,
                                        Verdict& verdict) {
  if (seq >= job.limit) return shard_.drop(verdict, DropReason::kOutsideWindow);
  if (!shard_.in_lane(seq)) return shard_.drop(verdict, DropReason::kWrongLane);
  if (job.recent.is_below(seq)) return shard_.drop(verdict, DropReason::kTooOld);
  if (packet.message.epoch != job.spec.epoch) return shard_.drop(verdict, DropReason::kStaleEpoch);
  const uint64_t number = shard_.number_of(seq);
  if (job.parked.keeper(number) != packet.rank) return shard_.drop(verdict, DropReason::kNotHome);
  if (packet.message.type == Type::kResult)
    return give_out(job, seq, packet, wire::Origin::kParker, verdict);
  job.parked.move_home(number);
  pass_home(job, packet, verdict);
}

/// A partial sum that a worker has kept, to the fallback.
void FallbackMessages::pass_home(const ShardJob& job, const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& part = verdict.add(Emission::To::kFallback, packet.job);
  part.message = packet.message;
  part.message.origin = wire::Origin::kNone;
  part.message.rank = packet.rank;
  part.message.instance = job.spec.instance;
  part.payload = packet.payload;
  part.payload_bytes = packet.payload_bytes;
}

/// A result that was made elsewhere, to all.
void FallbackMessages::give_out(ShardJob& job, Seq seq, const RxPacket& packet, wire::Origin origin,
                                Verdict& verdict) {
  if (packet.message.receiver > job.ranks()) return shard_.drop(verdict, DropReason::kBadRank);
  if (packet.message.bare()) return shard_.drop(verdict, DropReason::kBadLength);
  std::byte* const result = job.results.place(seq, packet.message.target, packet.payload_bytes);
  if (!result) return shard_.drop(verdict, DropReason::kBadOffset);
  enter_result(job, seq, packet);
  // A repeated result, after all workers have it, would overwrite the next operation's data there.
  const bool there = packet.message.target != 0 && shard_.place_once(job, seq);
  if (packet.payload_bytes != 0 && !there)
    std::memcpy(result, packet.payload, packet.payload_bytes);
  const bool parked = origin == wire::Origin::kParker;
  ++(parked ? shard_.counters.parker_results : shard_.counters.fallback_results);
  ++(parked ? job.counters.parker_results : job.counters.fallback_results);
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& emission = verdict.add(Emission::To::kAll, packet.job);
  emission.message = packet.message;
  emission.message.origin = origin;
  emission.message.rank = packet.rank;
  emission.message.bitmap = job.full;
  if (job.in_tree) results_.complete(job, seq, {}, emission);
  if ((packet.message.flags & wire::kFlagKept) != 0 && value(packet.rank) < job.spec.workers) {
    emission.to = Emission::To::kHolders;
    emission.message.flags &= static_cast<uint16_t>(~wire::kFlagKept);
    emission.message.bitmap.erase(packet.rank);
  }
  emission.payload = result;
  emission.payload_bytes = packet.payload_bytes;
  results_.remember(job, seq, emission.message);
  if (packet.message.receiver != 0) [[unlikely]]
    Results::bare_for_others(job, verdict);
}

/// The fragment has a result from elsewhere: contributions that are still under way come too late.
void FallbackMessages::enter_result(ShardJob& job, Seq seq, const RxPacket& packet) {
  const uint64_t number = shard_.number_of(seq);
  shard_.advance(job, seq);
  if (Slot* const slot = shard_.find_slot(job, seq)) shard_.reap(*slot);
  if (shard_.hashed) {
    job.recent.seen(number) = job.full;
    job.parked.forget(number, job.counters);
  } else if (Slot& slot = shard_.pool_slot(job, number);
             slot.state == SlotState::kEmpty || slot.seq < seq) {
    shard_.reap(slot);
    slot.seq = seq;
    slot.bits = job.full;
    slot.job = packet.job;
    slot.elements = packet.message.elements;
    slot.set_signature(packet.message.signature());
    slot.state = SlotState::kAnswered;
  }
  job.note_result(seq);
}

void FallbackMessages::on_remind(ShardJob& job, Seq seq, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Slot* const slot = shard_.find_slot(job, seq);
  if (!shard_.hashed || !slot) return;
  ++shard_.counters.reminders;
  if (slot->state == SlotState::kFrozen) return contributions_.emit_part(*slot, verdict);
  if (scheduler::traits(shard_.shape.policy.kind).held_until_acknowledged)
    return contributions_.freeze(*slot, verdict);
  contributions_.leave_as_part(*slot, verdict);
}

}  // namespace ina::aggregator
