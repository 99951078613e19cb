#include "fragments/recovery.h"

#include <algorithm>

#include "wire/rules.h"

namespace ina::client {

using wire::Type;
using State = Fragment::State;

namespace {

// Overdue fragments that are looked after at once: the oldest, because the window waits for them.
constexpr size_t kMaxOverdue = 64;
// Every this many time-outs the fallback is asked, even if the switch could help: with static slots
// instead of sending again, on a lossy link instead of asking the switch.
constexpr uint8_t kQueryEvery = 4;
// How much later a fragment must have been sent than one that it overtook, beside a quarter of the
// round trip (RACK, RFC 8985), for that to be taken for lost.
constexpr Nanos kReorderNs = 100'000;

}  // namespace

Recovery::Recovery(Flow& flow, Deadlines& deadlines) : flow_(flow), deadlines_(deadlines) {
  overdue_.reserve(kMaxOverdue);
}

/// A contribution leaves its worker in one epoch only: the fallback collects the contributions that
/// the switch lost with the older one. In a tree there is no fallback.
Recovery::Remedy Recovery::remedy_for(const Fragment& fragment) const {
  if (flow_.config.in_tree()) return Remedy::kAgain;
  if (fragment.epoch < flow_.config.epoch)
    return rule(Rule::kOneEpoch) ? Remedy::kQuery : Remedy::kAgain;
  if (fragment.again && fragment.bound == 0) return Remedy::kAgain;
  if (!flow_.config.rules.fixed_slots() || fragment.bound != 0) return Remedy::kQuery;
  return (fragment.timeouts + 1) % kQueryEvery == 0 ? Remedy::kQuery : Remedy::kAgain;
}

void Recovery::query(Seq seq, TxPacket& packet) const {
  packet = TxPacket{};
  flow_.begin(packet.message, Type::kQuery, seq);
  if (is_quick(flow_.ring[seq])) packet.message.flags |= wire::kFlagQuick;
}

/// True if the switch may be able to answer: it knows nothing of an older epoch, and a bound worker
/// waits for the fallback's decision.
bool Recovery::is_quick(const Fragment& fragment) const {
  return flow_.config.lossy_link && !flow_.config.rules.fixed_slots() &&
         (fragment.timeouts + 1) % kQueryEvery != 0 && fragment.bound == 0 &&
         fragment.epoch == flow_.config.epoch;
}

/// True if a contribution that the switch lacks may be in a queue of this worker's own link, which
/// may have become slower since the last round trips were measured. Packets keep their order: the
/// contribution is lost if one that left well after it has its result (RACK, RFC 8985). Without
/// such a result, none may have come for as long as a round trip takes.
bool Recovery::may_be_queued(const Fragment& fragment, Nanos now) const {
  const RoundTrip& rtt = flow_.timeouts.round_trip;
  if (!flow_.config.lossy_link) return false;
  if (fragment.sent_at + std::max(rtt.smoothed() / 4, kReorderNs) <= delivered_sent_at_)
    return false;
  return now - std::max(fragment.sent_at, progress_at_) < rtt.late();
}

void Recovery::send_again(Seq seq, bool is_lost, Nanos now) {
  if (!flow_.ring.awaits(seq)) return;
  Fragment& fragment = flow_.ring[seq];
  if (fragment.again || fragment.bound != 0) return;
  if (fragment.epoch != flow_.config.epoch && !flow_.config.in_tree() && rule(Rule::kOneEpoch))
    return;
  if (!is_lost && may_be_queued(fragment, now)) return;
  const RoundTrip& rtt = flow_.timeouts.round_trip;
  if (fragment.state == State::kSent) {
    // Others ask for it, too, and the copy sent since the first question has still to arrive.
    if (now - fragment.sent_at < std::min(rtt.standing(), rtt.late()) ||
        overdue_.size() == kMaxOverdue)
      return;
    add_overdue(seq, fragment);
  }
  fragment.again = true;
  if (!flow_.config.lossy_link) return;
  fragment.overtaken = true;
  deadlines_.link_loses(seq);
  flow_.windows.lost(seq, flow_.ring.next(), rtt);
}

size_t Recovery::prepare(std::span<TxPacket> packets) {
  std::erase_if(overdue_, [this](Seq seq) { return flow_.ring[seq].state != State::kOverdue; });
  const size_t count = std::min(packets.size(), overdue_.size());
  for (size_t i = 0; i < count; ++i) {
    const Fragment& overdue = flow_.ring[overdue_[i]];
    if (remedy_for(overdue) == Remedy::kQuery) {
      query(overdue_[i], packets[i]);
    } else {
      flow_.describe(overdue_[i], *overdue.operation, flow_.in_flight, packets[i]);
      if (overdue.again) packets[i].message.flags |= wire::kFlagAgain;
    }
  }
  return count;
}

void Recovery::sent(size_t count, Nanos now) {
  EngineCounters& counters = flow_.counters;
  for (size_t i = 0; i < count; ++i) {
    const Seq seq = overdue_[i];
    Fragment& fragment = flow_.ring[seq];
    const Remedy remedy = remedy_for(fragment);
    const bool quick = is_quick(fragment);
    fragment.again = false;
    if (fragment.timeouts < 255) ++fragment.timeouts;
    if (remedy == Remedy::kAgain) {
      deadlines_.mark_sent(seq, *fragment.operation, now);
      if (fragment.mark) {
        ++counters.marks_sent;
        ++counters.mark_runs_sent;
      } else {
        ++counters.fragments_resent;
      }
    } else {
      fragment.state = State::kSent;
      fragment.queried = true;
      ++counters.queries;
      if (quick) ++counters.quick_queries;
    }
    deadlines_.set(fragment, now + deadlines_.timeout_of(seq, fragment));
  }
  overdue_.erase(overdue_.begin(), overdue_.begin() + static_cast<ptrdiff_t>(count));
}

void Recovery::probe_oldest(Nanos now) {
  const Seq low = flow_.ring.low();
  Fragment& oldest = flow_.ring[low];
  if (!deadlines_.lost_lately(low) || oldest.overtaken || oldest.state != State::kSent ||
      oldest.parked)
    return;
  oldest.overtaken = true;
  deadlines_.bring_forward(oldest, now + deadlines_.between_questions());
}

/// A fragment that was sent later already has its result.
void Recovery::overtake(Seq seq, Fragment& fragment) {
  fragment.overtaken = true;
  // With slots of its own nothing of it goes round.
  if (flow_.config.rules.fixed_slots())
    flow_.windows.lost(seq, flow_.ring.next(), flow_.timeouts.round_trip);
}

/// True if a fragment's result should have come before a later one's: nothing holds it back at the
/// switch, and it does not go round by the fallback.
bool Recovery::is_missed(const Fragment& fragment, Seq seq) const {
  if (!flow_.config.lossy_link || seq >= flow_.ring.results_end() || deadlines_.may_go_round(seq))
    return false;
  if (fragment.timeouts != 0 || fragment.parked || fragment.mark) return false;
  const Operation& operation = *fragment.operation;
  return !operation.spec.blocks || fragment.prompt ||
         !operation.is_for_others(seq, flow_.config.rank);
}

void Recovery::expect_late(Seq begin, Seq end, Nanos now) {
  for (Seq seq = std::max(begin, flow_.ring.low()); seq < end; ++seq) {
    Fragment& late = flow_.ring[seq];
    if (late.state != State::kSent) continue;
    if (late.parked) {
      deadlines_.bring_forward(late, now + deadlines_.timeout_of_parked(late));
    } else if (is_missed(late, seq) || (late.timeouts > 1 && deadlines_.loses_now(seq))) {
      late.timeouts = std::min<uint8_t>(late.timeouts, 1);
      deadlines_.bring_forward(late, now + deadlines_.between_questions());
    }
  }
}

/// Results come in the order of contributions, and nothing sent after this one has its result. So
/// it is late only when no result has come for a time-out, as TCP's timer starts again with each
/// acknowledgement (RFC 6298, section 5.3). Otherwise, where a link has become slower, all that is
/// in its queue would be asked for. A link that loses is asked sooner.
bool Recovery::may_be_next(Seq seq, const Fragment& fragment) const {
  return flow_.config.lossy_link && fragment.timeouts == 0 && !fragment.overtaken &&
         !fragment.parked && seq >= flow_.ring.results_end() && !deadlines_.loses_now(seq);
}

void Recovery::find_overdue(Nanos now) {
  deadlines_.look_at(Deadlines::kNever);
  recoveries_until_look_ = 0;
  const Seq next = flow_.ring.next();
  for (Seq seq = flow_.ring.low(); seq < next; ++seq) {
    Fragment& fragment = flow_.ring[seq];
    if (fragment.state != State::kSent) continue;
    if (fragment.deadline <= now && may_be_next(seq, fragment)) {
      fragment.deadline = progress_at_ + flow_.timeouts.after(0);
      fragment.waited = true;
    }
    if (fragment.parked && fragment.deadline > now + flow_.timeouts.longest()) {
      // It may become one of the oldest.
      fragment.deadline = std::min(fragment.deadline, now + deadlines_.timeout_of(seq, fragment));
      deadlines_.look_by(now + flow_.timeouts.longest());
    }
    if (fragment.deadline > now) {
      deadlines_.look_by(fragment.deadline);
    } else if (overdue_.size() == kMaxOverdue) {
      deadlines_.look_by(now + flow_.timeouts.after(0));
      recoveries_until_look_ = kMaxOverdue / 2;
      return;
    } else {
      if (is_missed(fragment, seq))
        overtake(seq, fragment);
      else
        fragment.overtaken |= deadlines_.loses_now(seq);
      add_overdue(seq, fragment);
    }
  }
}

/// A lossy link's fragments do not wait for time-outs.
void Recovery::doubt_round_trips(const Fragment& recovered, Nanos now) {
  if (flow_.config.lossy_link || !flow_.timeouts.doubt(recovered.timeouts, now)) return;
  deadlines_.look_by(now + flow_.timeouts.after(0));
}

/// A result has come for a fragment that was sent well after others without one. These others, or
/// their results, are lost, unless they go round by the fallback. Where the array is short of slots
/// many do. So this is no proof that the link loses; the answer to the question is.
void Recovery::look_after_overtaken(const Fragment& by, Seq seq) {
  if (by.timeouts != 0) return;
  const RoundTrip& rtt = flow_.timeouts.round_trip;
  const Nanos behind = deadlines_.may_go_round(seq) ? rtt.late() : rtt.smoothed() / 4;
  const Nanos before = by.sent_at - std::max(behind, kReorderNs);
  overtaken_end_ = std::max(overtaken_end_, flow_.ring.low());
  for (; overtaken_end_ < seq && overdue_.size() < kMaxOverdue; ++overtaken_end_) {
    Fragment& overtaken = flow_.ring[overtaken_end_];
    if (overtaken.sent_at > before) return;
    // The switch may keep its result; kept results come in the order of their lane.
    const bool same_lane = (seq - overtaken_end_) % flow_.config.lanes == 0;
    if (!overtaken.is_done() && !overtaken.mark && overtaken.operation->spec.blocks &&
        !(by.bare && same_lane) && !overtaken.prompt &&
        overtaken.operation->is_for_others(overtaken_end_, flow_.config.rank))
      return;
    if (overtaken.state != State::kSent || overtaken.timeouts != 0 || overtaken.parked ||
        overtaken.mark)
      continue;
    overtake(overtaken_end_, overtaken);
    add_overdue(overtaken_end_, overtaken);
  }
}

}  // namespace ina::client
