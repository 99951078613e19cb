#include "aggregator/aggregator.h"

#include <algorithm>
#include <bit>

namespace ina::aggregator {

using scheduler::StaticPool;

Aggregator::Aggregator(const Shape& shape, std::span<std::byte> rows)
    : shape_(shape), rows_(rows.data()), slots_(shape.slots), jobs_(shape.max_jobs) {
  for (uint32_t i = 0; i < shape.slots; ++i) slots_[i].row = i;
}

void Aggregator::add_job(JobIndex index, const JobSpec& spec) {
  Job& job = jobs_[index];
  job = Job{};
  job.spec = spec;
  job.full = full_bitmap(spec.workers);
  job.top = Seq{spec.window};
  job.present = true;
}

void Aggregator::remove_job(JobIndex index) {
  Job& job = jobs_[index];
  if (!job.present) return;
  const StaticPool& pool = job.spec.pool;
  for (uint32_t i = pool.first_slot; i < pool.first_slot + pool.slots; ++i) {
    Slot& slot = slots_[i];
    if (slot.state == SlotState::kFilling) {
      counters_.contributions_discarded += static_cast<uint64_t>(std::popcount(slot.bits));
      --counters_.slots_used;
    }
    const uint32_t row = slot.row;
    slot = Slot{};
    slot.row = row;
  }
  job = Job{};
}

void Aggregator::new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback*) {
  const JobSpec spec = jobs_[index].spec;
  const Seq top = jobs_[index].top;
  remove_job(index);
  add_job(index, spec);
  jobs_[index].top = top;
  jobs_[index].spec.epoch = epoch;
  jobs_[index].spec.instance = instance;
}

void Aggregator::abort_job(JobIndex index) {
  jobs_[index].aborted = true;
}

void Aggregator::on_burst(std::span<const io::RxPacket> packets, Nanos now,
                          std::span<Verdict> verdicts) {
  // Slots first, then rows, then work: by the time a packet is added, what it touches is on its
  // way.
  Slot* touched[kMaxBurst];
  for (size_t i = 0; i < packets.size(); ++i) {
    const Job& job = jobs_[packets[i].job];
    touched[i] = job.present ? &slots_[job.spec.pool.slot_of(seq_of(job, packets[i]))] : nullptr;
    if (touched[i]) __builtin_prefetch(touched[i], 1);
  }
  constexpr size_t kAhead = 2;
  const auto prefetch_row = [&](size_t i) {
    if (!touched[i]) return;
    const std::byte* row = row_of(*touched[i]);
    const uint32_t bytes = std::min<uint32_t>(packets[i].payload_bytes, 1024);
    for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 1);
  };
  for (size_t i = 0; i < std::min(kAhead, packets.size()); ++i) prefetch_row(i);
  for (size_t i = 0; i < packets.size(); ++i) {
    if (i + kAhead < packets.size()) prefetch_row(i + kAhead);
    on_packet(packets[i], now, verdicts[i]);
  }
}

void Aggregator::drop(Verdict& verdict, DropReason reason) {
  verdict.fate = Verdict::Fate::kDropped;
  verdict.reason = reason;
  counters_.drops.add(reason);
}

void Aggregator::on_packet(const io::RxPacket& packet, Nanos now, Verdict& verdict) {
  ++counters_.packets;
  verdict.emit = Verdict::Emit::kNothing;
  Job& job = jobs_[packet.job];
  if (!job.present) return drop(verdict, DropReason::kBadJob);
  if (job.aborted) return drop(verdict, DropReason::kJobAborted);
  if (value(packet.rank) >= job.spec.workers) return drop(verdict, DropReason::kBadRank);
  const uint32_t epoch = packet.message.epoch;
  if (epoch > job.spec.epoch) return drop(verdict, DropReason::kFutureEpoch);
  if (epoch < job.spec.epoch) {
    drop(verdict, DropReason::kStaleEpoch);
    verdict.emit = Verdict::Emit::kToSender;
    verdict.message = wire::Message{};
    verdict.message.type = wire::Type::kStale;
    verdict.message.epoch = job.spec.epoch;
    verdict.message.seq = packet.message.seq;
    verdict.payload = nullptr;
    verdict.payload_bytes = 0;
    return;
  }
  // The other messages belong to fallback and recovery, which the static policy has no use for.
  if (packet.message.type != wire::Type::kGrad) return drop(verdict, DropReason::kBadType);
  on_grad(job, packet, now, verdict);
}

void Aggregator::on_grad(Job& job, const io::RxPacket& packet, Nanos now, Verdict& verdict) {
  const Seq seq = seq_of(job, packet);
  // C1: a worker sends s only when it has result s-W, so s is at most W above the highest result.
  if (seq >= job.top) return drop(verdict, DropReason::kOutsideWindow);
  if (!job.spec.pool.has(seq)) return drop(verdict, DropReason::kWrongLane);
  Slot& slot = slots_[job.spec.pool.slot_of(seq)];
  switch (StaticPool::claim(slot, seq)) {
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
      if (slot.signature() != packet.message.signature() ||
          slot.elements != packet.message.elements) {
        verdict.first_rank = slot.first_rank;
        verdict.first_signature = slot.signature();
        job.aborted = true;
        return drop(verdict, DropReason::kMismatch);
      }
      if (slot.bits & bit_of(packet.rank)) {
        drop(verdict, DropReason::kDuplicate);
        if (slot.state == SlotState::kComplete) {
          ++counters_.results_again;
          emit_result(job, slot, Verdict::Emit::kToSender, verdict);
        }
        return;
      }
      break;
  }
  contribute(job, slot, packet, verdict);
}

void Aggregator::install(const Job& job, Slot& slot, Seq seq, const io::RxPacket& packet,
                         Nanos now) {
  const wire::Message& message = packet.message;
  slot.seq = seq;
  slot.bits = 0;
  slot.base = 0;
  slot.operation_elements = message.operation_elements;
  slot.first_arrival = now;
  slot.operation = message.operation;
  slot.job = packet.job;
  slot.elements = message.elements;
  slot.flags = 0;
  slot.dtype = message.dtype;
  slot.op = message.op;
  slot.collective = message.collective;
  slot.first_rank = packet.rank;
  slot.priority = message.priority;
  slot.state = SlotState::kFilling;
  counters_.slots_used_peak = std::max(counters_.slots_used_peak, ++counters_.slots_used);
}

void Aggregator::contribute(Job& job, Slot& slot, const io::RxPacket& packet, Verdict& verdict) {
  const Kernels& kernel = kernels(slot.dtype, slot.op);
  const bool first = slot.bits == 0;
  slot.bits |= bit_of(packet.rank);
  ++counters_.absorbed;
  counters_.absorbed_bytes += packet.payload_bytes;
  verdict.fate = Verdict::Fate::kAbsorbed;
  if (slot.bits != job.full) {
    (first ? kernel.load : kernel.add)(row_of(slot), packet.payload, slot.elements);
    return;
  }
  std::byte* result = result_row(job, slot.seq);
  bool overflow = false;
  if (first) {  // a job of one worker
    kernel.load(row_of(slot), packet.payload, slot.elements);
    overflow = kernel.finish(result, row_of(slot), slot.elements, 1);
  } else {
    overflow = kernel.add_finish(result, row_of(slot), packet.payload, slot.elements,
                                 slot.op == Op::kAvg ? job.spec.workers : 1);
  }
  slot.state = SlotState::kComplete;
  slot.flags = overflow ? wire::kFlagOverflow : 0;
  --counters_.slots_used;
  ++counters_.results;
  counters_.contributions_in_results += job.spec.workers;
  job.top = std::max(job.top, slot.seq + 1 + job.spec.window);
  emit_result(job, slot, Verdict::Emit::kToAll, verdict);
}

void Aggregator::emit_result(const Job& job, const Slot& slot, Verdict::Emit emit,
                             Verdict& verdict) const {
  wire::Message& message = verdict.message;
  message = wire::Message{};
  message.bitmap = slot.bits;
  message.operation_elements = slot.operation_elements;
  message.operation = slot.operation;
  message.epoch = job.spec.epoch;
  message.seq = slot.seq.low();
  message.elements = slot.elements;
  message.flags = slot.flags;
  message.type = wire::Type::kResult;
  message.dtype = slot.dtype;
  message.op = slot.op;
  message.collective = slot.collective;
  message.origin = wire::Origin::kSwitch;
  message.lane = static_cast<uint8_t>(job.spec.pool.lane);
  verdict.emit = emit;
  verdict.payload = result_row(job, slot.seq);
  verdict.payload_bytes = wire::payload_bytes(message);
}

std::optional<Waiting> Aggregator::oldest_waiting(JobIndex index) const {
  const Job& job = jobs_[index];
  std::optional<Waiting> oldest;
  if (!job.present) return oldest;
  const StaticPool& pool = job.spec.pool;
  for (uint32_t i = pool.first_slot; i < pool.first_slot + pool.slots; ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != SlotState::kFilling || (oldest && oldest->seq <= slot.seq)) continue;
    oldest = Waiting{slot.seq, job.full & ~slot.bits, slot.signature()};
  }
  return oldest;
}

}  // namespace ina::aggregator
