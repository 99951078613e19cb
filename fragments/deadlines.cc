#include "fragments/deadlines.h"

namespace ina::client {

namespace {

// A link that has lost something is one that loses for so many times what may be in the switch.
constexpr uint64_t kLossyWindows = 4;
// The switch gives out a result that it has kept within less, queues included.
constexpr Nanos kParkedRoundTrips = 16;
// Of the fragments that wait for a straggler so many of the oldest are asked for, and the last; the
// others so many times as seldom. Workers that all asked for all of them would leave the switch, or
// a processor that they share with it, no time for the straggler.
constexpr uint64_t kOldest = 8;
constexpr Nanos kSeldom = 8;

}  // namespace

void Deadlines::forget_patience(Nanos now) {
  for (Seq seq = flow_.ring.low(); seq < flow_.ring.next(); ++seq) {
    Fragment& fragment = flow_.ring[seq];
    fragment.timeouts = 0;
    if (fragment.state == Fragment::State::kSent)
      bring_forward(fragment, now + flow_.timeouts.after(0));
  }
}

void Deadlines::link_loses(Seq seq) {
  losses_end_ = std::max(losses_end_, seq + kLossyWindows * uint64_t{flow_.most_in_switch()});
}

bool Deadlines::is_asked_for_others(Seq seq) const {
  return seq < flow_.ring.low() + kOldest || seq + 1 == flow_.ring.next();
}

Nanos Deadlines::timeout_of(Seq seq, const Fragment& fragment) const {
  // It is known why, until the result of a later one says that all have sent this one, too.
  if (fragment.parked && seq >= flow_.ring.results_end())
    return is_asked_for_others(seq) ? flow_.timeouts.longest() : kSeldom * flow_.timeouts.longest();
  const bool lost = fragment.overtaken && !may_go_round(seq);
  return lost ? flow_.timeouts.after_loss(fragment.timeouts, time_of_answers())
              : flow_.timeouts.after(fragment.timeouts);
}

Nanos Deadlines::timeout_of_late(const Fragment& late) const {
  const Nanos patient = flow_.timeouts.after(late.timeouts);
  const RoundTrip& rtt = flow_.timeouts.round_trip;
  if (!flow_.config.lossy_link || !rtt.known()) return patient;
  return std::min(patient, std::max(between_questions(), rtt.late()));
}

Nanos Deadlines::timeout_of_parked(const Fragment& late) const {
  const RoundTrip& rtt = flow_.timeouts.round_trip;
  if (!keeps_in_switch(flow_.config.rules.home) || !flow_.config.lossy_link || !rtt.known())
    return timeout_of_late(late);
  return std::min(flow_.timeouts.after(late.timeouts),
                  std::max(time_of_answers(), kParkedRoundTrips * rtt.shortest()));
}

}  // namespace ina::client
