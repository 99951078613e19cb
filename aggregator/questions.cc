#include "aggregator/questions.h"

namespace ina::aggregator {

bool Questions::answer(ShardJob& job, Seq seq, const RxPacket& packet, Nanos now,
                       Verdict& verdict) {
  if (!job.given.remembers()) return false;
  const bool quick = (packet.message.flags & wire::kFlagQuick) != 0;
  const bool answered = quick ? answer_quickly(job, seq, packet, verdict)
                              : tell_to_wait(job, seq, packet, now, verdict);
  if (!answered) note_asked(job, seq);
  return answered;
}

bool Questions::answer_quickly(const ShardJob& job, Seq seq, const RxPacket& packet,
                               Verdict& verdict) {
  if (results_.give_again(job, seq, packet, verdict)) return true;
  // Before the first contribution the contributors are not known.
  const uint64_t number = shard_.number_of(seq);
  const bool known = seq < job.recent.end();
  const WorkerSet missing = known ? job.full - job.recent.seen(number) : WorkerSet::of(packet.rank);
  const WorkerSet lost = missing & (WorkerSet::of(packet.rank) | came_later(job, seq));
  const bool parked = job.left_behind(number);
  if (lost.empty() && (parked ? given_later(job, seq) : missing.empty())) return false;
  verdict.fate = Verdict::Fate::kForwarded;
  if (parked && lost.empty()) {
    // Whoever keeps it waits for a slow worker, or for its turn on its own link.
    parking_.tell_parked(job, seq, Emission::To::kSender, packet.job, verdict);
    return true;
  }
  ++shard_.counters.asked_again;
  shard_.poll(job, seq, wire::Phase::kLost, lost, verdict);
  if (!parked) shard_.poll(job, seq, wire::Phase::kAgain, missing - lost, verdict);
  return true;
}

/// What the fallback would find out is known: a worker that goes on has not got that far.
bool Questions::tell_to_wait(const ShardJob& job, Seq seq, const RxPacket& packet, Nanos now,
                             Verdict& verdict) const {
  const uint64_t number = shard_.number_of(seq);
  if (!job.left_behind(number) || seq >= job.recent.end()) return false;
  if (!job.late.are_coming(job.full - job.recent.seen(number), seq, now)) return false;
  verdict.fate = Verdict::Fate::kForwarded;
  parking_.tell_parked(job, seq, Emission::To::kSender, packet.job, verdict);
  return true;
}

/// Workers of which a later contribution has come: packets of a worker keep their order.
WorkerSet Questions::came_later(const ShardJob& job, Seq seq) const {
  constexpr uint64_t kLooks = 8;
  WorkerSet came;
  for (uint64_t i = 1; i <= kLooks && seq + i * shard_.shape.lanes < job.recent.end(); ++i)
    came |= job.recent.seen(shard_.number_of(seq) + i);
  return came;
}

/// True if the keeper of a parked fragment, or the fallback, has given out a later result. Late
/// contributions come in order, and so do the results.
bool Questions::given_later(const ShardJob& job, Seq seq) const {
  constexpr uint64_t kLooks = 64;
  const std::optional<Rank> keeper = job.parked.keeper(shard_.number_of(seq));
  const Rank giver = keeper ? *keeper : home_of(seq, job.spec.workers);
  for (uint64_t i = 1; i <= kLooks && seq + i * shard_.shape.lanes < job.recent.end(); ++i) {
    const Seq later = seq + i * shard_.shape.lanes;
    const wire::Message* const given =
        job.given.find(job.recent.index(shard_.number_of(later)), later);
    if (!given || given->origin == wire::Origin::kSwitch) continue;
    if (given->rank == giver || (!keeper && job.spec.rules.home != Home::kWorkers)) return true;
  }
  return false;
}

/// A question about a complete fragment is a cost of straggler help. Where no link loses, workers
/// that wait for a processor ask, too; that says nothing.
void Questions::note_asked(ShardJob& job, Seq seq) const {
  const uint64_t number = shard_.number_of(seq);
  if (job.spec.links_lose && job.left_behind(number) && job.recent.seen(number) == job.full)
    job.late.help().asked += shard_.shape.lanes;
}

}  // namespace ina::aggregator
