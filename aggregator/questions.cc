// Questions that the switch answers itself (docs/protocol.md, "Quick answers"). When a worker asks
// for a result, the result or some worker's contribution was lost. Sending either again looks like
// a duplicate by the network, so no other state is needed.
#include "aggregator/aggregator.h"

namespace ina::aggregator {

using wire::Type;

/// False: only the fallback can find out.
bool Aggregator::answer_question(Job& job, Seq seq, const RxPacket& packet, Nanos now,
                                 Verdict& verdict) {
  if (!job.given.remembers()) return false;
  if ((packet.message.flags & wire::kFlagQuick) == 0)
    return tell_to_wait(job, seq, packet, now, verdict);
  if (give_again(job, seq, packet, verdict)) return true;
  // Before the first contribution the contributors are not known.
  const uint64_t number = number_of(seq);
  const bool known = seq < job.recent.end();
  const WorkerSet missing = known ? job.full - job.recent.seen(number) : WorkerSet::of(packet.rank);
  const WorkerSet lost = missing & (WorkerSet::of(packet.rank) | came_later(job, seq));
  const bool parked = left_behind(job, number);
  if (lost.empty() && (parked ? given_later(job, seq) : missing.empty())) return false;
  verdict.fate = Verdict::Fate::kForwarded;
  if (parked && lost.empty()) {
    // Whoever keeps it waits for a slow worker, or for its turn on its own link.
    emit_parked(job, seq, Emission::To::kSender, packet.job, verdict);
    return true;
  }
  ++counters_.asked_again;
  ask_again(job, seq, wire::Phase::kLost, lost, packet.job, verdict);
  if (!parked) ask_again(job, seq, wire::Phase::kAgain, missing - lost, packet.job, verdict);
  return true;
}

/// What the fallback would find out is known: a worker that goes on has not got that far.
bool Aggregator::tell_to_wait(Job& job, Seq seq, const RxPacket& packet, Nanos now,
                              Verdict& verdict) {
  const uint64_t number = number_of(seq);
  if (!left_behind(job, number) || seq >= job.recent.end()) return false;
  if (!job.late.are_coming(job.full - job.recent.seen(number), seq, now)) return false;
  verdict.fate = Verdict::Fate::kForwarded;
  emit_parked(job, seq, Emission::To::kSender, packet.job, verdict);
  return true;
}

/// Workers of which a later contribution has come: packets of a worker keep their order.
WorkerSet Aggregator::came_later(const Job& job, Seq seq) const {
  constexpr uint64_t kLooks = 8;
  WorkerSet came;
  for (uint64_t i = 1; i <= kLooks && seq + i * shape_.lanes < job.recent.end(); ++i)
    came |= job.recent.seen(number_of(seq) + i);
  return came;
}

/// True if the keeper of a parked fragment, or the fallback, has given out a later result. Late
/// contributions come in order, and so do the results.
bool Aggregator::given_later(const Job& job, Seq seq) const {
  constexpr uint64_t kLooks = 64;
  const uint8_t at = job.spec.parked_at ? parked_at(job, number_of(seq)) : uint8_t{0};
  const bool kept = at != 0 && (at & JobSpec::kParkedHome) == 0;
  const Rank giver = kept ? Rank{static_cast<uint8_t>(at - 1)} : home_of(seq, job.spec.workers);
  for (uint64_t i = 1; i <= kLooks && seq + i * shape_.lanes < job.recent.end(); ++i) {
    const Seq later = seq + i * shape_.lanes;
    const wire::Message* const given = job.given.find(job.recent.index(number_of(later)), later);
    if (!given || given->origin == wire::Origin::kSwitch) continue;
    if (given->rank == giver || (!kept && job.spec.home != Home::kWorkers)) return true;
  }
  return false;
}

void Aggregator::ask_again(const Job& job, Seq seq, wire::Phase phase, WorkerSet workers,
                           JobIndex index, Verdict& verdict) const {
  if (workers.empty()) return;
  Emission& again = add_emission(verdict, Emission::To::kHolders, index);
  again.message.type = Type::kPoll;
  again.message.phase = phase;
  again.message.bitmap = workers;
  again.message.epoch = job.spec.epoch;
  again.message.seq = seq.low();
  again.message.lane = static_cast<uint8_t>(shape_.lane);
}

/// The result, to one that asks, if the ring still has it.
bool Aggregator::give_again(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  const wire::Message* const given = job.given.find(job.recent.index(number_of(seq)), seq);
  if (given == nullptr) return false;
  ++counters_.results_again;
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& result = add_emission(verdict, Emission::To::kSender, packet.job);
  result.message = *given;
  result.message.seq = seq.low();
  result.message.bitmap = job.full;
  result.message.flags &= static_cast<uint16_t>(~wire::kFlagKept);
  result.message.flags |= wire::kFlagAgain;
  result.payload_bytes = wire::payload_bytes(result.message);
  result.payload = job.results.place(seq, 0, result.payload_bytes);
  if (!has_role(given->receiver, packet.rank)) make_bare(result);
  return true;
}

/// Results in result buffers need not be remembered: no frame carries what they are for.
void Aggregator::remember_given(Job& job, Seq seq, const wire::Message& result) const {
  if (!job.given.remembers() || result.target != 0) return;
  job.given.note(job.recent.index(number_of(seq)), seq, result);
}

}  // namespace ina::aggregator
