// Messages between workers, their fallback, and workers that keep parked sums, which pass the
// switch: all but contributions.
#include <cstring>

#include "aggregator/aggregator.h"
#include "wire/rules.h"

namespace ina::aggregator {

using wire::Type;

/// All but contributions.
void Aggregator::on_other(Job& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict) {
  const Type type = packet.message.type;
  if (type == Type::kResult || type == Type::kRemind || type == Type::kPoll)
    return on_fallback_packet(job, packet, verdict);
  if (is_within(job, seq, packet, verdict)) on_question(job, seq, packet, now, verdict);
}

/// Messages between workers and their fallback.
void Aggregator::on_question(Job& job, Seq seq, const RxPacket& packet, Nanos now,
                             Verdict& verdict) {
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
      if (type == Type::kQuery) {
        if (answer_question(job, seq, packet, now, verdict)) return;
        // Where no link loses, workers that wait for a processor ask, too; that says nothing.
        if (job.given.remembers() && job.spec.links_lose && left_behind(job, number_of(seq)) &&
            job.recent.seen(number_of(seq)) == job.full)
          job.late.help().asked += shape_.lanes;
      }
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

void Aggregator::forward(const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& emission = add_emission(verdict, Emission::To::kFallback, packet.job);
  emission.message = packet.message;
  emission.message.rank = packet.rank;  // what the binding says, not the packet
  emission.message.bitmap = WorkerSet::of(packet.rank);
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
      return on_remind(job, seq, verdict);
    default: {
      // Only the switch knows what has not come to it.
      if (packet.message.phase >= wire::Phase::kAgain) return drop(verdict, DropReason::kBadType);
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
  // A repeated result, after all workers have it, would overwrite the next operation's data there.
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
    emission.message.bitmap.erase(packet.rank);
  }
  emission.payload = result;
  emission.payload_bytes = packet.payload_bytes;
  remember_given(job, seq, emission.message);
  if (packet.message.receiver != 0) [[unlikely]]
    bare_for_others(verdict);
}

void Aggregator::on_remind(Job& job, Seq seq, Verdict& verdict) {
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

}  // namespace ina::aggregator
