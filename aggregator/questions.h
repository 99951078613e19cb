// Questions that the switch answers itself (docs/protocol.md, "Quick answers"). When a worker asks
// for a result, the result or some worker's contribution was lost. Sending either again looks like
// a duplicate by the network, so no other state is needed.
#pragma once

#include "aggregator/parking.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

/// The class has no state of its own.
class Questions {
 public:
  /// All must outlive it.
  Questions(Shard& shard, Results& results, const Parking& parking)
      : shard_(shard), results_(results), parking_(parking) {}

  /// A worker asks for the result of a fragment. False: only the fallback can find out.
  bool answer(ShardJob& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);

 private:
  bool answer_quickly(const ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  bool tell_to_wait(const ShardJob& job, Seq seq, const RxPacket& packet, Nanos now,
                    Verdict& verdict) const;
  WorkerSet came_later(const ShardJob& job, Seq seq) const;
  bool given_later(const ShardJob& job, Seq seq) const;
  void note_asked(ShardJob& job, Seq seq) const;

  Shard& shard_;
  Results& results_;
  const Parking& parking_;
};

}  // namespace ina::aggregator
