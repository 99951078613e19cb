// Straggler help, at the worker: fragments of its own that left the array, and sums that it keeps
// for the switch (docs/protocol.md, "Parking").
#pragma once

#include <optional>
#include <span>

#include "aggregator/fixed_queue.h"
#include "fragments/deadlines.h"
#include "fragments/flow.h"
#include "fragments/parker.h"

namespace ina::client {

class Parking {
 public:
  Parking(Flow& flow, Deadlines& deadlines);

  /// The switch has parked a fragment of this worker elsewhere. It frees a place in the switch,
  /// nothing else: the result is waited for as before.
  void on_parked(const wire::Message& message, Nanos now);
  /// A partial sum to keep, or a contribution that came after it. A message that cannot be taken
  /// counts as lost on the way: the fallback has it sent again. True: the sum is complete, and
  /// `result` is to be taken.
  bool on_park(const RxPacket& packet, Nanos now, RxPacket& result);
  /// A sum that was completed here has come back. True: it was kept until now.
  bool release(Seq seq);
  /// What is kept of the fragment goes to the fallback.
  void pass_on(Seq seq);
  /// The fragment's result waits for its turn on the link.
  bool gives_out(Seq seq);
  /// These fragments are to be sent: those 2W below them are of no use any more.
  void make_room(Seq begin, Seq end);

  size_t prepare(std::span<TxPacket> packets);
  void sent(size_t count);
  bool has_output() const { return to_send_.size() != 0; }

 private:
  Parker::Held* find(Seq seq) { return parker_ ? parker_->find(seq) : nullptr; }
  void leaves_window(Seq seq, Fragment& fragment, Nanos now);
  void queue(Parker::Held& held);
  void describe(const Parker::Held& held, TxPacket& packet);

  Flow& flow_;
  Deadlines& deadlines_;
  std::optional<Parker> parker_;
  aggregator::FixedQueue<Seq> to_send_;  ///< sums, or their results
};

}  // namespace ina::client
