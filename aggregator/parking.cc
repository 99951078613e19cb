// Straggler help: leading workers must not wait, with slots and windows full, for a slow worker.
// Fragments that lack only late workers leave the array, to be kept by a worker, the fallback or
// the switch's memory (SA-ATP, reconstructed; docs/protocol.md, "Parking").
#include <algorithm>

#include "aggregator/aggregator.h"

namespace ina::aggregator {

using wire::Type;

void Aggregator::set_parker(JobIndex index, Rank rank, bool can) {
  jobs_[index].spec.parkers.set(rank, can);
}

/// At most one fragment a packet, and a few that need nothing: a packet that begins a fragment
/// leaves one more behind, so this keeps up.
void Aggregator::park_left_behind(Job& job, JobIndex index, Nanos now, Verdict& verdict) {
  constexpr int kLooks = 4;
  job.late.watch(now);
  if (job.late.wakes(now)) job.park_next = std::max(job.park_next, number_of(job.late.slowest()));
  if (!job.late.help_pays(now)) return;
  if (verdict.emissions != 0) return;  // no room for two more
  for (int look = 0; look < kLooks; ++look) {
    const Seq seq{job.park_next * shape_.lanes + shape_.lane};
    if (seq + job.spec.park_after >= job.recent.end()) {
      job.late.nobody_waits();
      return;
    }
    Slot* const slot = find_slot(job, seq);
    if (slot && slot->state == SlotState::kFilling) {
      if (!job.late.are_all_awaited_by(*slot, job.full, job.recent.end(), now)) return;
      if (job.late.soon_waits_for_one(*slot, job.full, job.recent.end())) return;
      ++job.park_next;
      return park(job, *slot, now, verdict);
    }
    ++job.park_next;
    // It has no slot, so what has come of it is at the fallback already.
    const WorkerSet holders = job.recent.seen(number_of(seq));
    if (holders.empty() || holders == job.full) continue;
    emit_parked(job, seq, Emission::To::kHolders, index, verdict).message.bitmap = holders;
    return;
  }
}

void Aggregator::park(Job& job, Slot& slot, Nanos now, Verdict& verdict) {
  const Seq seq = slot.seq;
  const WorkerSet holders = slot.bits;
  const JobIndex index = slot.job;
  const auto parker = parker_for(job, slot);
  ++counters_.parked;
  ++job.counters.parked;
  job.late.count_parked(now);
  leave_as_part(slot, verdict);
  verdict.emission[0].message.flags |= wire::kFlagParked;
  if (parker) {
    Emission& park = verdict.emission[0];
    park.to = Emission::To::kWorker;
    park.worker = *parker;
    park.message.type = Type::kPark;
    ++job.parked_load[value(*parker)];
  }
  if (job.spec.parked_at) {
    parked_at(job, number_of(seq)) =
        parker ? static_cast<uint8_t>(1 + value(*parker)) : JobSpec::kParkedHome;
    job.counters.parked_now_peak =
        std::max(job.counters.parked_now_peak, ++job.counters.parked_now);
  }
  emit_parked(job, seq, Emission::To::kHolders, index, verdict).message.bitmap = holders;
}

bool Aggregator::park_overdue(JobIndex index, Nanos now, Verdict& verdict) {
  verdict.emissions = 0;
  verdict.fate = Verdict::Fate::kAbsorbed;
  Job& job = jobs_[index];
  if (!job.present || job.aborted || job.spec.park_after == 0) return false;
  park_left_behind(job, index, now, verdict);
  return verdict.emissions != 0;
}

/// The least loaded of the workers that have contributed, if nothing of the fragment has left yet:
/// a parked sum must be the only one that can become complete.
std::optional<Rank> Aggregator::parker_for(const Job& job, const Slot& slot) const {
  // The keeper of a fragment takes its result, and cannot write to result buffers.
  if (!job.spec.parked_at || job.spec.park_room == 0 || slot.target != 0 || slot.receiver != 0 ||
      slot.moves())
    return std::nullopt;
  if (job.recent.seen(number_of(slot.seq)) != slot.bits) return std::nullopt;
  const WorkerSet missing = job.full - slot.bits;
  if (job.spec.park_home ? missing != WorkerSet::of(home_of(slot.seq, job.spec.workers))
                         : missing.size() > job.spec.park_missing)
    return std::nullopt;
  std::optional<Rank> least;
  const WorkerSet able = slot.bits & job.spec.parkers;
  for (const Rank rank : able) {
    const uint16_t load = job.parked_load[value(rank)];
    if (load < job.spec.park_room && (!least || load < job.parked_load[value(*least)]))
      least = rank;
  }
  return least;
}

/// True if a worker that has not contributed yet will soon, so that one message may do for both.
/// Where the fallback is in the switch, messages cost nothing.
bool Aggregator::worth_combining(const Job& job, Seq seq) const {
  if (job.spec.home == Home::kSpill) return false;
  for (const Rank rank : job.full - job.recent.seen(number_of(seq))) {
    const Seq at = job.late.progress(rank);
    if (at <= seq && seq < at + kNearFragments) return true;
  }
  return false;
}

/// Late contributions are added up in an empty slot, which any fragment may take over.
void Aggregator::install_late(Job& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now,
                              Verdict& verdict) {
  install(job, slot, seq, packet, now);
  slot.priority = 0;
  slot.flags |= packet.message.flags & wire::kFlagEcn;
  absorb(job, slot, packet, verdict);
  emit_parked(job, seq, Emission::To::kSender, packet.job, verdict);
}

/// It follows what is parked as soon as nobody else is near.
void Aggregator::add_late(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  const Seq seq = slot.seq;
  slot.flags |= packet.message.flags & wire::kFlagEcn;
  absorb(job, slot, packet, verdict);
  if (!worth_combining(job, seq)) leave_as_part(slot, verdict);
  if (job.recent.seen(number_of(seq)) != job.full)
    emit_parked(job, seq, Emission::To::kSender, packet.job, verdict);
}

/// To the keeper of the fragment.
void Aggregator::follow(Job& job, Seq seq, Emission& part) const {
  // Progress is in fragments of all lanes.
  if (job.spec.home != Home::kSpill) job.late.help().messages += shape_.lanes;
  part.message.flags |= wire::kFlagParked;
  const uint8_t at = job.spec.parked_at ? parked_at(job, number_of(seq)) : uint8_t{0};
  if (at == 0 || (at & JobSpec::kParkedHome) != 0) return;
  part.to = Emission::To::kWorker;
  part.worker = Rank{static_cast<uint8_t>(at - 1)};
  part.message.origin = wire::Origin::kParker;
}

/// A contribution to a fragment that was parked: it follows the others.
void Aggregator::pass_to_parker(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  bypass(job, packet, verdict);
  follow(job, seq, verdict.emission[0]);
  // The last one gets its place back with the result: it must not outrun the keeper.
  if (job.recent.seen(number_of(seq)) != job.full)
    emit_parked(job, seq, Emission::To::kSender, packet.job, verdict);
}

void Aggregator::unpark(Job& job, uint64_t number) {
  uint8_t& at = parked_at(job, number);
  if (at == 0) return;
  if ((at & JobSpec::kParkedHome) == 0) --job.parked_load[at - 1];
  --job.counters.parked_now;
  at = 0;
}

Emission& Aggregator::emit_parked(const Job& job, Seq seq, Emission::To to, JobIndex index,
                                  Verdict& verdict) const {
  Emission& parked = add_emission(verdict, to, index);
  parked.message.type = Type::kParked;
  parked.message.seq = seq.low();
  parked.message.epoch = job.spec.epoch;
  parked.message.lane = static_cast<uint8_t>(shape_.lane);
  return parked;
}

/// The worker that keeps a parked sum gives out the result, or passes on its partial sum.
void Aggregator::on_parker_packet(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  if (seq >= job.limit) return drop(verdict, DropReason::kOutsideWindow);
  if (!in_lane(seq)) return drop(verdict, DropReason::kWrongLane);
  if (job.recent.is_below(seq)) return drop(verdict, DropReason::kTooOld);
  if (packet.message.epoch != job.spec.epoch) return drop(verdict, DropReason::kStaleEpoch);
  const uint64_t number = number_of(seq);
  if (!job.spec.parked_at || parked_at(job, number) != 1 + value(packet.rank))
    return drop(verdict, DropReason::kNotHome);
  if (packet.message.type == Type::kResult)
    return give_out(job, seq, packet, wire::Origin::kParker, verdict);
  --job.parked_load[value(packet.rank)];
  parked_at(job, number) |= JobSpec::kParkedHome;
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& part = add_emission(verdict, Emission::To::kFallback, packet.job);
  part.message = packet.message;
  part.message.origin = wire::Origin::kNone;
  part.message.rank = packet.rank;
  part.message.instance = job.spec.instance;
  part.payload = packet.payload;
  part.payload_bytes = packet.payload_bytes;
}

}  // namespace ina::aggregator
