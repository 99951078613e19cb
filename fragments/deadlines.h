// By when the results of fragments under way are due: how patient a worker is with each, and what
// it knows of losses, which shorten patience (docs/reliability.md).
#pragma once

#include <algorithm>
#include <cstdint>

#include "fragments/flow.h"

namespace ina::client {

class Deadlines {
 public:
  static constexpr Nanos kNever = INT64_MAX;

  explicit Deadlines(Flow& flow) : flow_(flow) {}

  /// When fragments must be looked at; kNever if nothing is under way.
  Nanos next() const { return next_; }
  void look_at(Nanos time) { next_ = time; }
  void look_by(Nanos time) { next_ = std::min(next_, time); }

  void set(Fragment& fragment, Nanos deadline) {
    fragment.deadline = deadline;
    look_by(deadline);
  }
  void bring_forward(Fragment& fragment, Nanos deadline) {
    set(fragment, std::min(fragment.deadline, deadline));
  }
  /// A contribution or a mark was sent, for the first time or again.
  void mark_sent(Seq seq, Operation& operation, Nanos now) {
    Fragment& fragment = flow_.ring[seq];
    fragment.operation = &operation;
    fragment.epoch = flow_.config.epoch;
    fragment.state = Fragment::State::kSent;
    fragment.sent_at = now;
    set(fragment, now + timeout_of_sent(seq, fragment));
    if (fragment.mark) return;
    ++flow_.counters.fragments_sent;
    const uint64_t bytes = operation.contribution_bytes(seq);
    flow_.counters.bytes_sent += bytes;
    if (bytes != 0) ++flow_.counters.payloads_sent;
  }
  /// The switch has forgotten what was sent before: ask soon, and with new patience.
  void forget_patience(Nanos now);

  /// Until the next question.
  Nanos timeout_of(Seq seq, const Fragment& fragment) const;
  /// Until the first question. Where links have lost packets of late, a late result is more likely
  /// lost, and the switch can say so at once.
  Nanos timeout_of_sent(Seq seq, const Fragment& fragment) const {
    return loses_now(seq) ? timeout_of_late(fragment) : flow_.timeouts.after(fragment.timeouts);
  }
  /// The time-out of a fragment whose result may be lost, or of a parked one that all have sent
  /// now, though its last contribution may wait at the fallback.
  Nanos timeout_of_late(const Fragment& late) const;
  /// The time-out of a parked fragment that all have sent now. Where the switch keeps it, its
  /// result waits for nothing but this worker's link. Smoothed round trips hold the waits for a
  /// slow worker.
  Nanos timeout_of_parked(const Fragment& late) const;
  /// Until the answers to a question, and to all others that may be under way, can have come.
  Nanos between_questions() const { return flow_.timeouts.between_questions(time_of_answers()); }

  /// Something is known to have been lost.
  void link_loses(Seq seq);
  /// True if a link has lost something within some windows before this fragment.
  bool lost_lately(Seq seq) const { return seq < losses_end_; }
  /// A link has lost something lately, and the switch answers questions.
  bool loses_now(Seq seq) const {
    return flow_.config.lossy_link && !flow_.config.rules.fixed_slots() && lost_lately(seq);
  }
  /// A late result may be on its way through the fallback, which takes as long as its queues,
  /// rather than lost.
  bool may_go_round(Seq seq) const { return flow_.windows.split_lately(seq) && !loses_now(seq); }

 private:
  /// A parked fragment whose answer says what others wait for, too.
  bool is_asked_for_others(Seq seq) const;
  Nanos time_of_answers() const { return flow_.windows.time_of_results(flow_.in_flight); }

  Flow& flow_;
  Nanos next_ = kNever;
  Seq losses_end_;  ///< the link counts as one that loses until then
};

}  // namespace ina::client
