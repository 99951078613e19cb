#include "aggregator/parking.h"

namespace ina::aggregator {

using wire::Type;

void Parking::after_contribution(ShardJob& job, const RxPacket& packet, Nanos now,
                                 Verdict& verdict) {
  if (job.in_tree) tell_in_tree(job, packet, verdict);
  park_left_behind(job, packet.job, now, verdict);
}

bool Parking::park_overdue(JobIndex index, Nanos now, Verdict& verdict) {
  verdict.emissions = 0;
  verdict.fate = Verdict::Fate::kAbsorbed;
  ShardJob& job = shard_.jobs[index];
  if (!job.present || job.aborted || !job.has_help()) return false;
  park_left_behind(job, index, now, verdict);
  return verdict.emissions != 0;
}

/// A contribution that came late, or once more, is in a row: its sender has its place back.
void Parking::tell_in_tree(const ShardJob& job, const RxPacket& packet, Verdict& verdict) const {
  const Seq seq = Shard::seq_of(job, packet);
  if (packet.message.bare() || job.recent.is_below(seq) ||
      !job.parked.left_behind(shard_.number_of(seq)))
    return;
  if (verdict.fate == Verdict::Fate::kDropped && verdict.reason != DropReason::kDuplicate) return;
  if (verdict.emissions < verdict.emission.size()) tell_sender(job, seq, packet, verdict);
}

/// At most one fragment a packet, and a few that need nothing: a packet that begins a fragment
/// leaves one more behind, so this keeps up.
void Parking::park_left_behind(ShardJob& job, JobIndex index, Nanos now, Verdict& verdict) {
  constexpr int kLooks = 4;
  job.late.watch(now);
  if (job.late.wakes(now)) job.parked.pass_below(shard_.number_of(job.late.slowest()));
  if (!job.late.help_pays(now)) return;
  if (verdict.emissions != 0) return;  // no room for two more
  for (int look = 0; look < kLooks; ++look) {
    const Seq seq{job.parked.next() * shard_.shape.lanes + shard_.shape.lane};
    if (seq + job.spec.park_after >= job.recent.end()) {
      job.late.nobody_waits();
      return;
    }
    if (job.recent.is_below(seq)) {  // nobody needs it any more
      job.parked.pass_next();
      continue;
    }
    Slot* const slot = shard_.find_slot(job, seq);
    if (slot && slot->state == SlotState::kFilling) {
      if (!job.late.are_all_awaited_by(*slot, job.full, job.recent.end(), now)) return;
      if (job.late.soon_waits_for_one(*slot, job.full, job.recent.end())) return;
      job.parked.pass_next();
      return park(job, *slot, now, verdict);
    }
    job.parked.pass_next();
    // It has no slot, so what has come of it is at the fallback already.
    const WorkerSet holders = job.recent.seen(shard_.number_of(seq));
    if (holders.empty() || holders == job.full) continue;
    tell_parked(job, seq, Emission::To::kHolders, index, verdict).message.bitmap = holders;
    return;
  }
}

void Parking::park(ShardJob& job, Slot& slot, Nanos now, Verdict& verdict) {
  const Seq seq = slot.seq;
  const WorkerSet holders = job.in_tree ? job.recent.seen(shard_.number_of(seq)) : slot.bits;
  const JobIndex index = slot.job;
  const std::optional<Rank> keeper = keeper_for(job, slot);
  ++shard_.counters.parked;
  ++job.counters.parked;
  job.late.count_parked(now);
  contributions_.leave_as_part(slot, verdict);
  if (!job.in_tree) {
    Emission& sum = verdict.emission[0];
    sum.message.flags |= wire::kFlagParked;
    if (keeper) {
      sum.to = Emission::To::kWorker;
      sum.worker = *keeper;
      sum.message.type = Type::kPark;
    }
  }
  job.parked.park(shard_.number_of(seq), keeper, job.counters);
  tell_parked(job, seq, Emission::To::kHolders, index, verdict).message.bitmap = holders;
}

/// The least loaded of the workers that have contributed, if nothing of the fragment has left yet:
/// a parked sum must be the only one that can become complete.
std::optional<Rank> Parking::keeper_for(const ShardJob& job, const Slot& slot) const {
  // The keeper of a fragment takes its result, and cannot write to result buffers.
  if (!job.parked.knows_keepers() || job.spec.park_room == 0 || slot.target != 0 ||
      slot.receiver != 0 || slot.moves())
    return std::nullopt;
  if (job.recent.seen(shard_.number_of(slot.seq)) != slot.bits) return std::nullopt;
  const WorkerSet missing = job.full - slot.bits;
  if (job.spec.park_home ? missing != WorkerSet::of(home_of(slot.seq, job.spec.workers))
                         : missing.size() > job.spec.park_missing)
    return std::nullopt;
  std::optional<Rank> least;
  const WorkerSet able = slot.bits & job.spec.parkers;
  for (const Rank rank : able) {
    const uint32_t load = job.parked.load(rank);
    if (load < job.spec.park_room && (!least || load < job.parked.load(*least))) least = rank;
  }
  return least;
}

/// True if a worker that has not contributed yet will soon, so that one message may do for both.
/// Where the fallback is in the switch, messages cost nothing.
bool Parking::worth_combining(const ShardJob& job, Seq seq) const {
  if (keeps_in_switch(job.spec.rules.home)) return false;
  for (const Rank rank : job.full - job.recent.seen(shard_.number_of(seq))) {
    const Seq at = job.late.progress(rank);
    if (at <= seq && seq < at + kNearFragments) return true;
  }
  return false;
}

void Parking::take_late(ShardJob& job, Slot* empty, Seq seq, const RxPacket& packet, Nanos now,
                        Verdict& verdict) {
  if (empty && worth_combining(job, seq)) {
    // Late contributions are added up in an empty slot, which any fragment may take over.
    contributions_.install(job, *empty, seq, packet, now);
    empty->priority = 0;
    empty->flags |= packet.message.flags & wire::kFlagEcn;
    contributions_.absorb(job, *empty, packet, verdict);
    tell_parked(job, seq, Emission::To::kSender, packet.job, verdict);
    return;
  }
  contributions_.bypass(job, packet, verdict);
  if (job.in_tree) return;  // tell_in_tree() tells the sender
  shard_.follow_parked(job, seq, verdict.emission[0]);
  tell_sender(job, seq, packet, verdict);
}

void Parking::add_late(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict) {
  const Seq seq = slot.seq;
  slot.flags |= packet.message.flags & wire::kFlagEcn;
  contributions_.absorb(job, slot, packet, verdict);
  // The sum follows what is parked as soon as nobody else is near.
  if (!worth_combining(job, seq)) contributions_.leave_as_part(slot, verdict);
  if (!job.in_tree) tell_sender(job, seq, packet, verdict);
}

/// The last contributor gets its place back with the result: it must not outrun the keeper.
void Parking::tell_sender(const ShardJob& job, Seq seq, const RxPacket& packet,
                          Verdict& verdict) const {
  if (job.recent.seen(shard_.number_of(seq)) != job.full)
    tell_parked(job, seq, Emission::To::kSender, packet.job, verdict);
}

Emission& Parking::tell_parked(const ShardJob& job, Seq seq, Emission::To to, JobIndex index,
                               Verdict& verdict) const {
  Emission& parked = verdict.add(to, index);
  parked.message.type = Type::kParked;
  parked.message.seq = seq.low();
  parked.message.epoch = job.spec.epoch;
  parked.message.lane = static_cast<uint8_t>(shard_.shape.lane);
  return parked;
}

}  // namespace ina::aggregator
