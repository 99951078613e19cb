// Recovery of overdue results: which fragments are asked for, or sent again, and when
// (docs/reliability.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fragments/deadlines.h"
#include "fragments/flow.h"

namespace ina::client {

class Recovery {
 public:
  Recovery(Flow& flow, Deadlines& deadlines);

  /// Fragments that have waited until their deadlines become overdue.
  void find_overdue(Nanos now);
  /// The switch lacks this worker's contribution, so it was lost, or is still to be sent. Sending
  /// it again in the same epoch is harmless: links may duplicate packets, too.
  void send_again(Seq seq, bool is_lost, Nanos now);
  /// Nothing overtakes what was sent last. So the oldest fragment is asked for when it has been
  /// that for long, as TCP's tail loss probe does (RFC 8985, section 7). Not where nothing was lost
  /// of late: a worker is merely slow then.
  void probe_oldest(Nanos now);

  /// A result came, but its round trip is no sample.
  void doubt_round_trips(const Fragment& recovered, Nanos now);
  /// A result is being taken. `in_turn`: another fragment's does not stand for it.
  void on_result(Seq seq, const Fragment& fragment, bool in_turn, Nanos now) {
    // More are overdue: half of those before are recovered.
    if (recoveries_until_look_ != 0 && fragment.bound != 0 && --recoveries_until_look_ == 0)
      deadlines_.look_at(now);
    if (fragment.timeouts == 0 && !fragment.mark && in_turn)
      delivered_sent_at_ = std::max(delivered_sent_at_, fragment.sent_at);
    if (flow_.config.lossy_link && !fragment.mark) look_after_overtaken(fragment, seq);
    progress_at_ = now;
  }
  /// A worker sends in order: the result of `end` says that all have sent what is below it. So
  /// there is no slow worker left to be patient with. A fragment that has been asked for since then
  /// is lost if the link loses.
  void expect_late(Seq begin, Seq end, Nanos now);

  size_t prepare(std::span<TxPacket> packets);
  void sent(size_t count, Nanos now);

 private:
  enum class Remedy : uint8_t { kAgain, kQuery };
  Remedy remedy_for(const Fragment& fragment) const;
  void query(Seq seq, TxPacket& packet) const;
  bool is_quick(const Fragment& fragment) const;
  bool may_be_queued(const Fragment& fragment, Nanos now) const;
  bool is_missed(const Fragment& fragment, Seq seq) const;
  bool may_be_next(Seq seq, const Fragment& fragment) const;
  void overtake(Seq seq, Fragment& fragment);
  void look_after_overtaken(const Fragment& by, Seq seq);
  void add_overdue(Seq seq, Fragment& fragment) {
    fragment.state = Fragment::State::kOverdue;
    overdue_.push_back(seq);
  }

  Flow& flow_;
  Deadlines& deadlines_;
  std::vector<Seq> overdue_;
  size_t recoveries_until_look_ = 0;  ///< 0: all that was overdue is looked after
  Seq overtaken_end_;            ///< below it, fragments were looked at for having been overtaken
  Nanos progress_at_ = 0;        ///< when the last result was taken
  Nanos delivered_sent_at_ = 0;  ///< when the latest one was sent of those that have results
};

}  // namespace ina::client
