#include "aggregator/aggregator.h"

#include <algorithm>
namespace ina::aggregator {

using wire::Message;

Aggregator::Aggregator(const Shape& shape, std::span<std::byte> rows,
                       std::pmr::memory_resource* tables)
    : shape_(shape),
      hashed_(scheduler::traits(shape.policy.kind).hashed),
      lanes_(shape.lanes),
      prefetch_bytes_(prefetch_bytes(shape)),
      slots_(shape.slots, hashed() ? shape.policy.ways : 1, spare_rows(shape), shape.slot_bytes,
             rows.data(), tables),
      lookups_(kMaxBurst),
      expanded_(std::max(1u, shape.burst)),
      quotas_(shape.slots),
      jobs_(shape.max_jobs),
      bare_results_(shape.max_jobs, shape.lanes) {
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps)
      if (is_valid(dtype, op))
        kernels_[static_cast<size_t>(dtype)][static_cast<size_t>(op)] = &kernels(dtype, op);
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
  job.full = WorkerSet::first(spec.workers);
  job.limit = spec.start + (spec.rejoined ? 2 : 1) * uint64_t{spec.window};
  job.results_end = spec.start;
  job.park_next = number_of(spec.start);
  job.late = LateWorkers(spec);
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
  job.late.forget();
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
  // A user who makes and leaves jobs all the time must not cause a scan of the whole array each
  // time.
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

// ---- verdicts

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

// ---- slots

void Aggregator::note_result(Job& job, Seq seq) {
  job.results_end = std::max(job.results_end, seq + 1);
  job.limit = std::max(job.limit, seq + 1 + job.spec.window);
}

void Aggregator::release(Slot& slot) {
  if (slot.state == SlotState::kFilling || slot.state == SlotState::kFrozen)
    give_back_slot(jobs_[slot.job]);
  // Its sum may be on its way out in this very burst.
  if (slot.state == SlotState::kFrozen) slots_.change_row(slot);
  slots_.clear(slot);
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
  return slots_.find(index_of(job), seq, number, hashed_slot(job, number));
}

/// The workers whose contributions to a fragment without a slot, but for this one, went to the
/// fallback. The others' messages for a fragment that is moved are marks, which went nowhere.
WorkerSet Aggregator::gone_to_fallback(const Job& job, Seq seq, const RxPacket& packet) const {
  if (moves(packet.message) || !shape_.policy.residual) return {};
  return job.recent.seen(number_of(seq)) - WorkerSet::of(packet.rank);
}

// ---- figures

uint64_t Aggregator::contributions_held() const {
  uint64_t held = 0;
  for (const Slot& slot : slots_.all())
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
      return Waiting{seq, job.full - (slot->bits | slot->at_fallback), slot->signature()};
    // Contributions may have gone on to the fallback: the replay window knows from which workers.
    const WorkerSet came = hashed() ? job.recent.seen(number_of(seq)) : job.full;
    if (slot == nullptr && !came.empty() && came != job.full)
      return Waiting{seq, job.full - came, std::nullopt};
  }
  return std::nullopt;
}

}  // namespace ina::aggregator
