#include "aggregator/shard.h"

#include <algorithm>

namespace ina::aggregator {

Shard::Shard(const Shape& wanted, std::span<std::byte> rows, std::pmr::memory_resource* tables)
    : shape(wanted),
      hashed(scheduler::traits(wanted.policy.kind).hashed),
      lanes(wanted.lanes),
      slots(wanted.slots, hashed ? wanted.policy.ways : 1, spare_rows(wanted), wanted.slot_bytes,
            rows.data(), tables),
      quotas(wanted.slots),
      jobs(wanted.max_jobs) {}

void Shard::add_job(JobIndex index, const JobSpec& spec) {
  ShardJob& job = jobs[index];
  job = ShardJob{};
  job.spec = spec;
  job.slots.quota = spec.quota;
  job.recent = ReplayWindow(spec.start, spec.window, shape.lanes, spec.seen);
  job.results = ResultMemory(spec.results, spec.window, shape.slot_bytes, spec.placed);
  job.given = GivenResults(spec.given);
  job.pool_slots = Divider(std::max(1u, spec.pool.slots));
  job.full = WorkerSet::first(spec.workers);
  job.limit = spec.start + (spec.rejoined ? 2 : 1) * uint64_t{spec.window};
  job.results_end = spec.start;
  job.parked = ParkedFragments(spec, number_of(spec.start), shape.lanes);
  job.late = LateWorkers(spec);
  job.in_tree = spec.tree.rows != nullptr;
  job.present = true;
  quotas.open(job.slots);
}

void Shard::remove_job(JobIndex index) {
  sweep(index);
  quotas.close(jobs[index].slots);
  jobs[index] = ShardJob{};
}

void Shard::new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill) {
  ShardJob& job = jobs[index];
  sweep(index);
  job.spec.epoch = epoch;
  job.spec.instance = instance;
  job.spec.spill = spill;
  job.recent.clear();
  job.parked.forget_all(job.counters);
  job.late.forget();
}

void Shard::sweep(JobIndex index) {
  ShardJob& job = jobs[index];
  // A user who makes and leaves jobs all the time must not cause a scan of the whole array each
  // time.
  if (hashed && job.slots.held == 0) return;
  uint32_t first = 0;
  uint32_t last = shape.slots;
  if (!hashed) {
    first = job.spec.pool.first_slot;
    last = first + job.spec.pool.slots;
  }
  for (uint32_t i = first; i < last; ++i) {
    Slot& slot = slots[i];
    if (slot.state == SlotState::kEmpty || slot.job != index) continue;
    reap(slot);
  }
}

std::optional<OldestWaiting> Shard::oldest_waiting(JobIndex index) {
  const ShardJob& job = jobs[index];
  if (!job.present) return std::nullopt;
  const Seq end = job.recent.end();
  const uint64_t span = 2 * uint64_t{job.spec.window};
  for (Seq seq{end.value - std::min(end.value, span)}; seq < end; ++seq) {
    if (!in_lane(seq)) continue;
    const Slot* const slot = find_slot(job, seq);
    if (slot != nullptr && slot->state == SlotState::kFilling)
      return OldestWaiting{seq, job.full - (slot->bits | slot->at_fallback), slot->signature()};
    // Contributions may have gone on to the fallback: the replay window knows from which workers.
    const WorkerSet came = hashed ? job.recent.seen(number_of(seq)) : job.full;
    if (slot == nullptr && !came.empty() && came != job.full)
      return OldestWaiting{seq, job.full - came, std::nullopt};
  }
  return std::nullopt;
}

void Shard::advance(ShardJob& job, Seq seq) {
  job.recent.advance(seq, number_of(seq), [&](uint64_t number) {
    job.parked.forget(number, job.counters);
    if (job.spec.tree.holders) job.spec.tree.holders[job.recent.index(number)] = {};
  });
}

void Shard::follow_parked(ShardJob& job, Seq seq, Emission& part) const {
  // Progress is in fragments of all lanes.
  if (job.spec.rules.home != Home::kSpill) job.late.help().messages += shape.lanes;
  part.message.flags |= wire::kFlagParked;
  const std::optional<Rank> keeper = job.parked.keeper(number_of(seq));
  if (!keeper) return;
  part.to = Emission::To::kWorker;
  part.worker = *keeper;
  part.message.origin = wire::Origin::kParker;
}

WorkerSet Shard::gone_to_fallback(const ShardJob& job, Seq seq, const RxPacket& packet) const {
  // The others' messages for a fragment that is moved are marks, which went nowhere.
  if (carries_move(packet.message) || (!shape.policy.residual && !job.in_tree)) return {};
  return job.recent.seen(number_of(seq)) - WorkerSet::of(packet.rank);
}

Slot* Shard::find_slot(const ShardJob& job, Seq seq) {
  const uint64_t number = number_of(seq);
  if (!hashed) {
    Slot& slot = pool_slot(job, number);
    return slot.state != SlotState::kEmpty && slot.seq == seq ? &slot : nullptr;
  }
  return slots.find(index_of(job), seq, number, hashed_slot(job, number));
}

void Shard::release(Slot& slot) {
  if (slot.state == SlotState::kFilling || slot.state == SlotState::kFrozen)
    give_back_slot(jobs[slot.job]);
  // Its sum may be on its way out in this very burst.
  if (slot.state == SlotState::kFrozen) slots.change_row(slot);
  slots.clear(slot);
}

void Shard::reap(Slot& slot) {
  if (slot.state == SlotState::kFilling) counters.contributions_discarded += slot.contributions();
  release(slot);
}

uint64_t Shard::contributions_held() const {
  uint64_t held = 0;
  for (const Slot& slot : slots.all())
    if (slot.state == SlotState::kFilling) held += slot.contributions();
  return held;
}

void Shard::poll(const ShardJob& job, Seq seq, wire::Phase phase, WorkerSet members,
                 Verdict& verdict) const {
  if (members.empty()) return;
  Emission& question = verdict.add(Emission::To::kHolders, index_of(job));
  question.message.type = wire::Type::kPoll;
  question.message.phase = phase;
  question.message.bitmap = members;
  question.message.epoch = job.spec.epoch;
  question.message.seq = seq.low();
  question.message.lane = static_cast<uint8_t>(shape.lane);
}

void Shard::abort_mismatch(ShardJob& job, Rank first_rank, const wire::Signature& first,
                           Verdict& verdict) {
  verdict.first_rank = first_rank;
  verdict.first_signature = first;
  job.aborted = true;
  drop(verdict, DropReason::kMismatch);
}

}  // namespace ina::aggregator
