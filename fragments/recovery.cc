// The engine's recovery of overdue results: questions, and contributions that are sent again
// (docs/reliability.md).
#include <algorithm>

#include "fragments/engine.h"
#include "wire/rules.h"

namespace ina::client {

using wire::Type;

namespace {

// Every this many time-outs the fallback is asked, even if the switch could help: with static slots
// instead of sending again, on a lossy link instead of asking the switch.
constexpr uint8_t kQueryEvery = 4;
// How much later a fragment must have been sent than one that it overtook, beside a quarter of the
// round trip (RACK, RFC 8985), for that to be taken for lost.
constexpr Nanos kReorderNs = 100'000;
// A link that has lost something is one that loses for so many times what may be in the switch.
constexpr uint64_t kLossyWindows = 4;
// The switch gives out a result that it has kept within less, queues included.
constexpr Nanos kParkedRoundTrips = 16;

}  // namespace

/// A contribution leaves its worker in one epoch only: the fallback collects the contributions that
/// the switch lost with the older one.
Engine::Overdue Engine::what_to_do(const Fragment& fragment) const {
  if (fragment.epoch < config_.epoch)
    return rule(Rule::kOneEpoch) ? Overdue::kQuery : Overdue::kAgain;
  if (fragment.again && fragment.bound == 0) return Overdue::kAgain;
  if (!config_.fixed_slots || fragment.bound != 0) return Overdue::kQuery;
  return (fragment.timeouts + 1) % kQueryEvery == 0 ? Overdue::kQuery : Overdue::kAgain;
}

void Engine::query(Seq seq, TxPacket& packet) const {
  packet = TxPacket{};
  packet.message.type = Type::kQuery;
  packet.message.bitmap = WorkerSet::of(config_.rank);
  packet.message.epoch = config_.epoch;
  packet.message.seq = seq.low();
  packet.message.rank = config_.rank;
  packet.message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
  if (is_quick(ring_[seq.value % ring_.size()])) packet.message.flags |= wire::kFlagQuick;
}

/// True if the switch may be able to answer: it knows nothing of an older epoch, and a bound worker
/// waits for the fallback's decision.
bool Engine::is_quick(const Fragment& fragment) const {
  return config_.lossy_link && !config_.fixed_slots && (fragment.timeouts + 1) % kQueryEvery != 0 &&
         fragment.bound == 0 && fragment.epoch == config_.epoch;
}

/// True if a contribution that the switch lacks may be in a queue of this worker's own link, which
/// may have become slower since the last round trips were measured. Packets keep their order: the
/// contribution is lost if one that left well after it has its result (RACK, RFC 8985). Without
/// such a result, none may have come for as long as a round trip takes.
bool Engine::may_be_queued(const Fragment& fragment, Nanos now) const {
  const RoundTrip& rtt = timeouts_.round_trip;
  if (!config_.lossy_link) return false;
  if (fragment.sent_at + std::max(rtt.smoothed() / 4, kReorderNs) <= delivered_sent_at_)
    return false;
  return now - std::max(fragment.sent_at, progress_at_) < rtt.late();
}

/// The switch lacks this worker's contribution, so it was lost, or is still to be sent. Sending it
/// again in the same epoch is harmless: links may duplicate packets, too.
void Engine::send_again(Seq seq, bool is_lost, Nanos now) {
  if (seq < low_ || seq >= next_) return;
  Fragment& fragment = this->fragment(seq);
  if (fragment.state != State::kSent && fragment.state != State::kOverdue) return;
  if (fragment.again || fragment.bound != 0) return;
  if (fragment.epoch != config_.epoch && rule(Rule::kOneEpoch)) return;
  if (!is_lost && may_be_queued(fragment, now)) return;
  const RoundTrip& rtt = timeouts_.round_trip;
  if (fragment.state == State::kSent) {
    // Others ask for it, too, and the copy sent since the first question has still to arrive.
    if (now - fragment.sent_at < std::min(rtt.standing(), rtt.late()) ||
        overdue_.size() == kMaxOverdue)
      return;
    fragment.state = State::kOverdue;
    overdue_.push_back(seq);
  }
  fragment.again = true;
  if (!config_.lossy_link) return;
  fragment.overtaken = true;
  link_loses(seq);
  windows_.lost(seq, next_, rtt);
}

/// Something is known to have been lost.
void Engine::link_loses(Seq seq) {
  losses_end_ = std::max(losses_end_, seq + kLossyWindows * uint64_t{most_in_switch()});
}

size_t Engine::prepare_overdue(std::span<TxPacket> packets) {
  std::erase_if(overdue_, [this](Seq seq) { return fragment(seq).state != State::kOverdue; });
  const size_t count = std::min(packets.size(), overdue_.size());
  for (size_t i = 0; i < count; ++i) {
    const Fragment& overdue = fragment(overdue_[i]);
    if (what_to_do(overdue) == Overdue::kQuery) {
      query(overdue_[i], packets[i]);
    } else {
      describe(overdue_[i], *overdue.operation, in_flight_, packets[i]);
      if (overdue.again) packets[i].message.flags |= wire::kFlagAgain;
    }
  }
  return count;
}

void Engine::overdue_sent(size_t count, Nanos now) {
  for (size_t i = 0; i < count; ++i) {
    Fragment& fragment = this->fragment(overdue_[i]);
    const Overdue what = what_to_do(fragment);
    const bool quick = is_quick(fragment);
    fragment.again = false;
    if (fragment.timeouts < 255) ++fragment.timeouts;
    if (what == Overdue::kAgain) {
      mark_sent(overdue_[i], *fragment.operation, now);
      fragment.deadline = now + timeout_of(overdue_[i], fragment);
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
      if (fragment.mark) {
        ++counters_.marks_sent;
        ++counters_.mark_runs_sent;
      } else {
        ++counters_.fragments_resent;
      }
    } else {
      fragment.state = State::kSent;
      fragment.queried = true;
      fragment.deadline = now + timeout_of(overdue_[i], fragment);
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
      ++counters_.queries;
      if (quick) ++counters_.quick_queries;
    }
  }
  overdue_.erase(overdue_.begin(), overdue_.begin() + static_cast<ptrdiff_t>(count));
}

/// Until the next question.
Nanos Engine::timeout_of(Seq seq, const Fragment& fragment) const {
  // It is known why, until the result of a later one says that all have sent this one, too.
  if (fragment.parked && seq >= results_end_) return timeouts_.longest();
  const bool lost = fragment.overtaken && !may_go_round(seq);
  return lost ? timeouts_.after_loss(fragment.timeouts, time_of_answers())
              : timeouts_.after(fragment.timeouts);
}

/// Until the first question. Where links have lost packets of late, a late result is more likely
/// lost, and the switch can say so at once.
Nanos Engine::timeout_of_sent(Seq seq, const Fragment& fragment) const {
  return loses_now(seq) ? timeout_of_late(fragment) : timeouts_.after(fragment.timeouts);
}

/// Nothing overtakes what was sent last. So the oldest fragment is asked for when it has been that
/// for long, as TCP's tail loss probe does (RFC 8985, section 7). Not where nothing was lost of
/// late: a worker is merely slow then.
void Engine::probe_oldest(Nanos now) {
  Fragment& oldest = fragment(low_);
  if (low_ >= losses_end_ || oldest.overtaken || oldest.state != State::kSent || oldest.parked)
    return;
  oldest.overtaken = true;
  oldest.deadline = std::min(oldest.deadline, now + timeouts_.between_questions(time_of_answers()));
  next_deadline_ = std::min(next_deadline_, oldest.deadline);
}

/// A fragment that was sent later already has its result.
void Engine::overtake(Seq seq, Fragment& fragment) {
  fragment.overtaken = true;
  // With slots of its own nothing of it goes round.
  if (config_.fixed_slots) windows_.lost(seq, next_, timeouts_.round_trip);
}

/// True if a fragment's result should have come before a later one's: nothing holds it back at the
/// switch, and it does not go round by the fallback.
bool Engine::is_missed(const Fragment& fragment, Seq seq) const {
  if (!config_.lossy_link || seq >= results_end_ || may_go_round(seq)) return false;
  if (fragment.timeouts != 0 || fragment.parked || fragment.mark) return false;
  const Operation& operation = *fragment.operation;
  return !operation.spec.blocks || fragment.prompt || !operation.is_for_others(seq, config_.rank);
}

/// The time-out of a fragment whose result may be lost, or of a parked one that all have sent now,
/// though its last contribution may wait at the fallback.
Nanos Engine::timeout_of_late(const Fragment& late) const {
  const Nanos patient = timeouts_.after(late.timeouts);
  if (!config_.lossy_link || !timeouts_.round_trip.known()) return patient;
  return std::min(patient, std::max(timeouts_.between_questions(time_of_answers()),
                                    timeouts_.round_trip.late()));
}

/// The time-out of a parked fragment that all have sent now. Where the switch keeps it, its result
/// waits for nothing but this worker's link. Smoothed round trips hold the waits for a slow worker.
Nanos Engine::timeout_of_parked(const Fragment& late) const {
  const RoundTrip& rtt = timeouts_.round_trip;
  if (config_.home != Home::kSpill || !config_.lossy_link || !rtt.known())
    return timeout_of_late(late);
  return std::min(timeouts_.after(late.timeouts),
                  std::max(time_of_answers(), kParkedRoundTrips * rtt.shortest()));
}

/// A worker sends in order: the result of `end` says that all have sent what is below it. So there
/// is no slow worker left to be patient with. A fragment that has been asked for since then is lost
/// if the link loses.
void Engine::expect_late(Seq begin, Seq end, Nanos now) {
  for (Seq seq = std::max(begin, low_); seq < end; ++seq) {
    Fragment& late = fragment(seq);
    if (late.state != State::kSent) continue;
    if (late.parked) {
      late.deadline = std::min(late.deadline, now + timeout_of_parked(late));
    } else if (is_missed(late, seq) || (late.timeouts > 1 && loses_now(seq))) {
      late.timeouts = std::min<uint8_t>(late.timeouts, 1);
      late.deadline = std::min(late.deadline, now + timeouts_.between_questions(time_of_answers()));
    } else {
      continue;
    }
    next_deadline_ = std::min(next_deadline_, late.deadline);
  }
}

/// Results come in the order of contributions, and nothing sent after this one has its result. So
/// it is late only when no result has come for a time-out, as TCP's timer starts again with each
/// acknowledgement (RFC 6298, section 5.3). Otherwise, where a link has become slower, all that is
/// in its queue would be asked for. A link that loses is asked sooner.
bool Engine::may_be_next(Seq seq, const Fragment& fragment) const {
  return config_.lossy_link && fragment.timeouts == 0 && !fragment.overtaken && !fragment.parked &&
         seq >= results_end_ && !loses_now(seq);
}

void Engine::find_overdue(Nanos now) {
  next_deadline_ = kNever;
  recoveries_until_look_ = 0;
  for (Seq seq = low_; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    if (fragment.state != State::kSent) continue;
    if (fragment.deadline <= now && may_be_next(seq, fragment)) {
      fragment.deadline = progress_at_ + timeouts_.after(0);
      fragment.waited = true;
    }
    if (fragment.deadline > now) {
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
    } else if (overdue_.size() == kMaxOverdue) {
      next_deadline_ = std::min(next_deadline_, now + timeouts_.after(0));
      recoveries_until_look_ = kMaxOverdue / 2;
      return;
    } else {
      if (is_missed(fragment, seq))
        overtake(seq, fragment);
      else
        fragment.overtaken |= loses_now(seq);
      fragment.state = State::kOverdue;
      overdue_.push_back(seq);
    }
  }
}

/// A lossy link's fragments do not wait for time-outs.
void Engine::doubt_rtt(const Fragment& recovered, Nanos now) {
  if (config_.lossy_link || !timeouts_.doubt(recovered.timeouts, now)) return;
  next_deadline_ = std::min(next_deadline_, now + timeouts_.after(0));
}

/// A result has come for a fragment that was sent well after others without one. These others, or
/// their results, are lost, unless they go round by the fallback. Where the array is short of slots
/// many do. So this is no proof that the link loses; the answer to the question is.
void Engine::look_after_overtaken(const Fragment& by, Seq seq) {
  if (by.timeouts != 0) return;
  const RoundTrip& rtt = timeouts_.round_trip;
  const Nanos behind = may_go_round(seq) ? rtt.late() : rtt.smoothed() / 4;
  const Nanos before = by.sent_at - std::max(behind, kReorderNs);
  overtaken_end_ = std::max(overtaken_end_, low_);
  for (; overtaken_end_ < seq && overdue_.size() < kMaxOverdue; ++overtaken_end_) {
    Fragment& overtaken = fragment(overtaken_end_);
    if (overtaken.sent_at > before) return;
    // The switch may keep its result; kept results come in the order of their lane.
    const bool same_lane = (seq - overtaken_end_) % config_.lanes == 0;
    if (overtaken.state != State::kDone && !overtaken.mark && overtaken.operation->spec.blocks &&
        !(by.bare && same_lane) && !overtaken.prompt &&
        overtaken.operation->is_for_others(overtaken_end_, config_.rank))
      return;
    if (overtaken.state != State::kSent || overtaken.timeouts != 0 || overtaken.parked ||
        overtaken.mark)
      continue;
    overtake(overtaken_end_, overtaken);
    overtaken.state = State::kOverdue;
    overdue_.push_back(overtaken_end_);
  }
}

}  // namespace ina::client
