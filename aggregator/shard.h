// The state that all parts of an aggregator share: the slots of one lane, who holds them, the jobs
// that use them, and the counters. The parts have what only they need. One thread uses a shard.
#pragma once

#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/counters.h"
#include "aggregator/divider.h"
#include "aggregator/given_results.h"
#include "aggregator/job_spec.h"
#include "aggregator/late_workers.h"
#include "aggregator/packet.h"
#include "aggregator/parked_fragments.h"
#include "aggregator/replay_window.h"
#include "aggregator/result_memory.h"
#include "aggregator/slot_array.h"
#include "aggregator/slot_quotas.h"
#include "aggregator/verdict.h"
#include "scheduler/policies.h"

namespace ina::aggregator {

struct Shape {
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;  ///< width of a value row
  uint32_t max_jobs = 0;
  uint32_t burst = 32;  ///< most packets of one on_burst()
  uint32_t lanes = 1;
  uint32_t lane = 0;
  scheduler::PolicyOptions policy;
};

/// The oldest fragment that waits, and the workers that it waits for.
struct OldestWaiting {
  Seq seq;
  WorkerSet missing = {};
  std::optional<wire::Signature> signature;  ///< of a fragment that has a slot
};

/// A packet's fragment and slot, looked up for a whole burst before any packet is decided.
struct Lookup {
  Seq seq;
  uint64_t number = 0;        ///< of the fragment, among those of this lane
  Slot* slot = nullptr;       ///< of a GRAD of a job that is present: where it is, or might go
  WorkerSet* seen = nullptr;  ///< with `slot`, where slots are hashed
  uint32_t first = 0;         ///< where slots are hashed: the slot that its hash names
};

/// A job, as this shard knows it.
struct ShardJob {
  // The fields that each packet needs stand together.
  WorkerSet full = {};
  Seq limit;  ///< fragments the window allows are below this: highest result + 1 + W
  bool present = false;
  bool aborted = false;
  bool in_tree = false;
  SlotAccount slots;
  ReplayWindow recent;
  Divider pool_slots;  ///< pools only
  JobSpec spec;
  ResultMemory results;
  GivenResults given;
  Seq results_end;
  JobCounters counters;
  LateWorkers late;        ///< with straggler help
  ParkedFragments parked;  ///< with straggler help

  bool has_help() const { return spec.park_after != 0; }
  bool has_parent() const { return in_tree && spec.tree.has_parent; }
  /// Ranks of the whole job, of which `spec.workers` members contribute here.
  uint32_t ranks() const { return in_tree ? spec.tree.ranks : spec.workers; }
  /// The members that a result is for, or through. `role`: wire::Message::receiver.
  WorkerSet members_with(uint32_t role) const {
    if (role == 0) return full;
    if (!in_tree || !spec.tree.member_of)
      return WorkerSet::of(Rank{static_cast<uint8_t>(role - 1)});
    const uint8_t member = spec.tree.member_of[role - 1];
    return member == TreePlace::kElsewhere ? WorkerSet() : WorkerSet::of(Rank{member});
  }
  /// True if straggler help has passed the fragment by. `number`: among those of this lane.
  bool left_behind(uint64_t number) const { return has_help() && parked.left_behind(number); }
  void note_result(Seq seq) {
    results_end = std::max(results_end, seq + 1);
    note_complete(seq);
  }
  /// All members have contributed: the fragment's result may come, and with it the next window.
  void note_complete(Seq seq) { limit = std::max(limit, seq + 1 + spec.window); }
};

/// A message with a payload that is to be moved, rather than added.
inline bool carries_move(const wire::Message& message) {
  return is_moved(message.collective) && message.elements != 0;
}

struct Shard {
  Shard(const Shape& shape, std::span<std::byte> rows, std::pmr::memory_resource* tables);
  // The parts refer to it.
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  static uint32_t spare_rows(const Shape& shape) { return 2 * shape.burst; }

  const Shape shape;
  const bool hashed;    ///< shape.policy's trait
  const Divider lanes;  ///< of shape
  SlotArray slots;
  SlotQuotas quotas;
  std::vector<ShardJob> jobs;
  Counters counters;

  // ---- jobs

  void add_job(JobIndex index, const JobSpec& spec);
  /// A job that is present.
  void remove_job(JobIndex index);
  /// A job that is present loses its slots, and forgets what it has seen.
  void new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill);
  /// Looks through the job's window: not for the packet path.
  std::optional<OldestWaiting> oldest_waiting(JobIndex index);
  JobIndex index_of(const ShardJob& job) const { return static_cast<JobIndex>(&job - jobs.data()); }

  // ---- fragments

  /// The number of a fragment among those of this lane; each lane has every lanes-th of a job.
  uint64_t number_of(Seq seq) const { return lanes.quotient(seq.value); }
  bool in_lane(Seq seq) const { return lanes.remainder(seq.value) == shape.lane; }
  static Seq seq_of(const ShardJob& job, const RxPacket& packet) {
    return extend(packet.message.seq, job.limit);
  }
  /// True if a worker of the job may speak of the fragment now; otherwise the packet is dropped.
  bool is_within(const ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  /// A message about a fragment has come: the replay window includes it from now on.
  void advance(ShardJob& job, Seq seq);
  /// The worker has contributed to the fragment.
  void note_caught_up(ShardJob& job, Seq seq, Rank rank) const {
    if (job.has_help() && !job.parked.left_behind(number_of(seq))) [[unlikely]]
      job.late.caught_up(rank);
  }
  /// A partial sum of a parked fragment goes to the keeper of the fragment.
  void follow_parked(ShardJob& job, Seq seq, Emission& part) const;
  /// ResultMemory::place_once() of the fragment.
  bool place_once(ShardJob& job, Seq seq) const {
    return job.results.place_once(job.recent.index(number_of(seq)), seq);
  }
  /// The workers whose contributions to a fragment without a slot, but for this one, went to the
  /// fallback.
  WorkerSet gone_to_fallback(const ShardJob& job, Seq seq, const RxPacket& packet) const;

  // ---- slots

  Slot& pool_slot(const ShardJob& job, uint64_t number) {
    return slots[job.spec.pool.first_slot + job.pool_slots.remainder(number)];
  }
  /// Hashed by their number in the lane: scheduler::hashed_slot() wants them one after another.
  uint32_t hashed_slot(const ShardJob& job, uint64_t number) const {
    return scheduler::hashed_slot(job.spec.id, Seq{number}, shape.slots);
  }
  /// The slot that holds a fragment; nullptr: none does.
  Slot* find_slot(const ShardJob& job, Seq seq);
  /// The slot that holds a fragment, where slots are hashed.
  Slot* find_slot(const Lookup& lookup, JobIndex job) {
    // Most fragments are where they were when the burst was looked up.
    if (SlotArray::holds(*lookup.slot, job, lookup.seq)) [[likely]]
      return lookup.slot;
    return slots.has_sets() ? slots.find(job, lookup.seq, lookup.number, lookup.first) : nullptr;
  }
  void take_slot(ShardJob& job) {
    quotas.take(job.slots);
    job.counters.slots_held = job.slots.held;
    job.counters.slots_held_peak = job.slots.peak;
    counters.slots_used = quotas.used();
    counters.slots_used_peak = quotas.peak();
  }
  void give_back_slot(ShardJob& job) {
    quotas.give_back(job.slots);
    job.counters.slots_held = job.slots.held;
    counters.slots_used = quotas.used();
  }
  void release(Slot& slot);
  /// Empties a slot whose sum nobody needs: a zombie's, of which everyone has the result, or that
  /// of a job that ends.
  void reap(Slot& slot);
  /// Contributions that lie in slots now. Looks at all of them: not for the packet path.
  uint64_t contributions_held() const;

  // ---- verdicts

  void drop(Verdict& verdict, DropReason reason) {
    verdict.fate = Verdict::Fate::kDropped;
    verdict.reason = reason;
    counters.drops.add(reason);
  }
  /// A contribution goes on without a slot.
  void count_bypassed(ShardJob& job, const RxPacket& packet, Verdict& verdict) {
    ++counters.bypassed;
    ++counters.contributions_moved;
    counters.bypassed_bytes += packet.payload_bytes;
    ++job.counters.bypassed;
    verdict.fate = Verdict::Fate::kForwarded;
  }
  /// A question of the switch itself, to some members.
  void poll(const ShardJob& job, Seq seq, wire::Phase phase, WorkerSet members,
            Verdict& verdict) const;
  /// A worker's contribution does not go with what the slot holds: the job ends.
  void abort_mismatch(ShardJob& job, const Slot& slot, Verdict& verdict) {
    abort_mismatch(job, slot.any_rank(), slot.signature(), verdict);
  }
  void abort_mismatch(ShardJob& job, const wire::Message& held, Verdict& verdict) {
    abort_mismatch(job, held.rank, held.signature(), verdict);
  }

 private:
  void abort_mismatch(ShardJob& job, Rank first_rank, const wire::Signature& first,
                      Verdict& verdict);
  void sweep(JobIndex index);
};

[[gnu::always_inline]] inline bool Shard::is_within(const ShardJob& job, Seq seq,
                                                    const RxPacket& packet, Verdict& verdict) {
  // C1: a worker sends s only when it has result s-W, so s is at most W above the highest result.
  if (value(packet.rank) >= job.spec.workers)
    drop(verdict, DropReason::kBadRank);
  else if (seq >= job.limit)
    drop(verdict, DropReason::kOutsideWindow);
  else if (!in_lane(seq))
    drop(verdict, DropReason::kWrongLane);
  else
    return true;
  return false;
}

}  // namespace ina::aggregator
