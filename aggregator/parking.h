// Straggler help: leading workers must not wait, with slots and windows full, for a slow worker.
// Fragments that lack only late workers leave the array, to be kept by a worker, the fallback or
// the switch's memory (SA-ATP, reconstructed; docs/protocol.md, "Parking"). Contributions that come
// late follow them.
#pragma once

#include <optional>

#include "aggregator/contributions.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

class Parking {
 public:
  /// Both must outlive it.
  Parking(Shard& shard, Contributions& contributions)
      : shard_(shard), contributions_(contributions) {}

  void add_job(const JobSpec& spec) { jobs_ += spec.park_after != 0; }
  void remove_job(const JobSpec& spec) { jobs_ -= spec.park_after != 0; }
  /// True if any job has straggler help.
  bool any() const { return jobs_ != 0; }

  /// A contribution of a job with help has been decided: parks a fragment that is left behind.
  void after_contribution(ShardJob& job, const RxPacket& packet, Nanos now, Verdict& verdict);
  /// Parks one fragment that is left behind, when no packet comes. False: there is none.
  bool park_overdue(JobIndex index, Nanos now, Verdict& verdict);

  /// A contribution to a fragment that was left behind and has no slot. `empty`: a slot that it may
  /// take to wait for others, or nullptr.
  void take_late(ShardJob& job, Slot* empty, Seq seq, const RxPacket& packet, Nanos now,
                 Verdict& verdict);
  /// A contribution to a fragment that was left behind, whose late contributions have a slot.
  void add_late(ShardJob& job, Slot& slot, const RxPacket& packet, Verdict& verdict);

  /// Says that the fragment has left its slot.
  Emission& tell_parked(const ShardJob& job, Seq seq, Emission::To to, JobIndex index,
                        Verdict& verdict) const;

 private:
  void tell_in_tree(const ShardJob& job, const RxPacket& packet, Verdict& verdict) const;
  void park_left_behind(ShardJob& job, JobIndex index, Nanos now, Verdict& verdict);
  void park(ShardJob& job, Slot& slot, Nanos now, Verdict& verdict);
  std::optional<Rank> keeper_for(const ShardJob& job, const Slot& slot) const;
  bool worth_combining(const ShardJob& job, Seq seq) const;
  void tell_sender(const ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict) const;

  Shard& shard_;
  Contributions& contributions_;
  uint32_t jobs_ = 0;  ///< with straggler help
};

}  // namespace ina::aggregator
