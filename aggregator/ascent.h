// Sums of jobs in trees of switches (docs/protocol.md, "Trees"). A fragment that is complete at a
// switch below the root is its contribution to the switch above. What leaves a slot is added to the
// fragment's row, in the memory of the job's result ring; there is no other fallback. A member that
// misses a result sends its contribution again.
#pragma once

#include <algorithm>
#include <span>

#include "aggregator/results.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

class Ascent {
 public:
  /// Both must outlive it.
  Ascent(Shard& shard, Results& results) : shard_(shard), results_(results) {}

  /// Answers a contribution that adds nothing: its fragment is decided, or a member has the result,
  /// or the contribution has come before. False: it is to be added.
  bool answer(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
              Verdict& verdict);
  /// A contribution without a slot.
  void add(ShardJob& job, const RxPacket& packet, Verdict& verdict);
  /// A slot's sum leaves it.
  void take(ShardJob& job, const Slot& slot, Verdict& verdict);
  /// A mark, or a payload that is moved; its member has just been entered into the replay window.
  /// False: all contribute to the fragment, and nothing has been done.
  bool move(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Verdict& verdict);

  /// True if the fragment's result is here.
  bool is_decided(const ShardJob& job, Seq seq) const {
    const TreeRow* const row = find(job, seq);
    return row && row->state == TreeRow::State::kDone;
  }
  /// A question of the switch above.
  void on_poll(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  /// The member no longer has the result that it said it had.
  void retract(ShardJob& job, Seq seq, const RxPacket& packet);
  /// The switch above has decided the fragment for another domain.
  void pass_by(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);

  /// The switch above waits for another domain: what this one has sent there is parked.
  void pass_on_parked(const ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict) const;

  /// The first fragment from `from` on that waits for the switch above, and its contribution once
  /// more. False: there is none. Looks through the window: not for the packet path.
  bool ascend_again(JobIndex index, Seq& from, Verdict& verdict);
  /// The fragments of this lane whose results are here, or at members: `visit(seq)`.
  template <class Visit>
  void for_each_held(JobIndex index, Visit&& visit) const {
    const ShardJob& job = shard_.jobs[index];
    for (Seq seq = oldest(job); seq < job.recent.end(); ++seq) {
      if (!shard_.in_lane(seq)) continue;
      const TreeRow* const row = find(job, seq);
      if ((row && row->state == TreeRow::State::kDone) || !holders(job, seq).empty()) visit(seq);
    }
  }
  /// The member holds the results of these fragments, and of no others.
  void set_held(JobIndex index, Rank member, std::span<const Seq> held);

 private:
  /// The first fragment of which anything is known.
  static Seq oldest(const ShardJob& job) {
    const Seq end = job.recent.end();
    return end - std::min(end.value, 2 * uint64_t{job.spec.window});
  }
  TreeRow& row_of(const ShardJob& job, Seq seq) const;
  const TreeRow* find(const ShardJob& job, Seq seq) const;
  WorkerSet holders(const ShardJob& job, Seq seq) const;
  static bool begin(TreeRow& row, const wire::Message& message, Rank rank);
  void complete(ShardJob& job, Seq seq, TreeRow& row, Verdict& verdict);
  void decide(ShardJob& job, Seq seq, TreeRow& row, Verdict& verdict);
  void ascend(const ShardJob& job, Seq seq, const TreeRow& row, Verdict& verdict) const;
  void ask(const ShardJob& job, Seq seq, wire::Phase phase, WorkerSet members,
           Verdict& verdict) const;

  Shard& shard_;
  Results& results_;
};

}  // namespace ina::aggregator
