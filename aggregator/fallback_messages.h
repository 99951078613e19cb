// Messages between workers, their fallback, and workers that keep parked sums, which pass the
// switch: all but contributions.
#pragma once

#include "aggregator/contributions.h"
#include "aggregator/questions.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

/// The class has no state of its own.
class FallbackMessages {
 public:
  /// All must outlive it.
  FallbackMessages(Shard& shard, Results& results, Ascent& ascent, Contributions& contributions,
                   Questions& questions)
      : shard_(shard),
        results_(results),
        ascent_(ascent),
        contributions_(contributions),
        questions_(questions) {}

  /// A packet of a job's worker, or of its fallback, that is no contribution.
  void take(ShardJob& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);
  /// A message of the job's fallback whose home is this lane.
  void take_of_spill(JobIndex index, const wire::Outgoing& packet, Verdict& verdict);

 private:
  void on_worker_packet(ShardJob& job, Seq seq, const RxPacket& packet, Nanos now,
                        Verdict& verdict);
  void on_fallback_packet(ShardJob& job, const RxPacket& packet, Verdict& verdict);
  void on_member_packet(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void on_parent_packet(ShardJob& job, const RxPacket& packet, Verdict& verdict);
  void on_keeper_packet(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void give_out(ShardJob& job, Seq seq, const RxPacket& packet, wire::Origin origin,
                Verdict& verdict);
  void enter_result(ShardJob& job, Seq seq, const RxPacket& packet);
  void on_remind(ShardJob& job, Seq seq, Verdict& verdict);
  static void forward(const RxPacket& packet, Verdict& verdict);
  static void poll(const RxPacket& packet, Verdict& verdict);
  static void pass_home(const ShardJob& job, const RxPacket& packet, Verdict& verdict);

  Shard& shard_;
  Results& results_;
  Ascent& ascent_;
  Contributions& contributions_;
  Questions& questions_;
};

}  // namespace ina::aggregator
