// One shard of the aggregator array: the slots of one lane, and the fate of each packet that
// reaches them. Pure: the shard sends nothing itself. It returns, for each packet, a verdict and
// the messages to send. One thread uses a shard, and shards share nothing.
//
// The work is done by parts, each of which uses only parts above it in this table. All use Shard.
//
//   Results            results given out, joined, or given again
//   Ascent             what left the slots of jobs in trees of switches, and goes up
//   Contributions      sums in slots: begun, added to, finished, or on to the fallback
//   Moving             fragments that are moved, rather than added
//   Parking            straggler help
//   SlotAllocation     the slot for each contribution, by policy and quotas
//   Questions          questions of workers that the switch answers itself
//   FallbackMessages   messages between workers and their fallback
//   Burst              looks the fragments of a burst up, and has its packets decided
#pragma once

#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/ascent.h"
#include "aggregator/bare_results.h"
#include "aggregator/burst.h"
#include "aggregator/contributions.h"
#include "aggregator/fallback_messages.h"
#include "aggregator/moving.h"
#include "aggregator/parking.h"
#include "aggregator/questions.h"
#include "aggregator/results.h"
#include "aggregator/shard.h"
#include "aggregator/slot_allocation.h"

namespace ina::aggregator {

class Aggregator {
 public:
  static constexpr size_t kMaxBurst = BurstGroups::kMaxBurst;

  /// Bytes of value-row memory that `shape` needs, at an alignment of 64.
  static size_t row_memory_bytes(const Shape& shape) {
    return (size_t{shape.slots} + Shard::spare_rows(shape)) * shape.slot_bytes;
  }

  /// `rows`: row_memory_bytes() bytes, 64-byte aligned, owned by the caller (hugepages, if there
  /// are any). `tables`: for the slots and their tags.
  Aggregator(const Shape& shape, std::span<std::byte> rows,
             std::pmr::memory_resource* tables = std::pmr::get_default_resource());
  // Its parts refer to each other.
  Aggregator(const Aggregator&) = delete;
  Aggregator& operator=(const Aggregator&) = delete;

  /// `index` < max_jobs and not in use; the conductor gives indices out.
  void add_job(JobIndex index, const JobSpec& spec);
  /// Sweeps the job's slots. Its packets are dropped from now on (kBadJob).
  void remove_job(JobIndex index);
  /// The job goes on in another epoch, with another instance of its fallback: sweeps its slots and
  /// forgets what it has seen. A spill fallback is replaced by `spill`.
  void new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill);

  /// Records if the worker can keep parked sums.
  void set_parker(JobIndex index, Rank rank, bool can) {
    shard_.jobs[index].spec.parkers.set(rank, can);
  }
  /// JobSpec::links_lose, from now on.
  void set_links_lose(JobIndex index) { shard_.jobs[index].spec.links_lose = true; }
  /// True if any job has straggler help.
  bool parking() const { return parking_.any(); }
  /// For when nobody sends, because everybody waits for a straggler: parks one fragment that is
  /// left behind. False: there is none.
  bool park_overdue(JobIndex index, Nanos now, Verdict& verdict) {
    return parking_.park_overdue(index, now, verdict);
  }

  /// A job that is present has at most kMaxResultBuffers; their units do not overlap.
  void add_result_buffer(JobIndex index, const ResultBuffer& buffer);
  /// No operation of the job uses it any more.
  void remove_result_buffer(JobIndex index, uint32_t first_unit);

  /// Decides a burst (at most shape.burst packets, validated, bound): verdicts[i] for packets[i].
  /// In order, but contributions to the same fragment (BurstGroups) follow the first of them at
  /// once. Each verdict is as if the burst had come in that order, one packet at a time. Payloads
  /// must stay readable until the verdicts have been carried out.
  void on_burst(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts) {
    burst_.decide(packets, now, verdicts);
  }

  /// The packets of the last burst whose verdict asks for more than to be counted: something is to
  /// be sent, or a packet was dropped. In order; `visit(index)`.
  template <class Visit>
  void for_each_noted(Visit&& visit) const {
    burst_.for_each_noted(visit);
  }

  /// Oldest incomplete fragment of a job. Looks through its window: not for the packet path.
  std::optional<OldestWaiting> oldest_waiting(JobIndex index) {
    return shard_.oldest_waiting(index);
  }

  /// The marks that a run stands for, from its `first` one on, as many as `marks` has room for.
  /// Returns how many; those beyond the job's window are left out, but for the first of all.
  size_t expand(const RxPacket& run, size_t first, std::span<RxPacket> marks) {
    return moving_.expand(run, first, marks);
  }
  /// For the loop that serves a port: room for a burst that runs make longer.
  std::span<RxPacket> expanded() { return expanded_; }
  /// For the loop that serves a port: bare results that have not been sent yet.
  BareResults& bare_results() { return results_.bare(); }
  const BareResults& bare_results() const { return results_.bare(); }

  // ---- jobs in trees of switches (docs/protocol.md, "Trees")

  /// This switch attaches to the one above, and takes nothing from it until it has been told the
  /// epoch there: epoch 0.
  void set_parent_epoch(JobIndex index, uint32_t epoch) {
    shard_.jobs[index].spec.tree.parent_epoch = epoch;
  }
  /// The contribution of the first fragment from `from` on that waits for the switch above. False:
  /// there is none.
  bool ascend_again(JobIndex index, Seq& from, Verdict& verdict) {
    return ascent_.ascend_again(index, from, verdict);
  }
  /// The fragments whose results this switch has, or its members have: `visit(seq)`.
  template <class Visit>
  void for_each_held(JobIndex index, Visit&& visit) const {
    ascent_.for_each_held(index, visit);
  }
  /// A member that attaches to a switch that runs: it has the results of `held`, and no others.
  void set_held(JobIndex index, Rank member, std::span<const Seq> held) {
    ascent_.set_held(index, member, held);
  }

  /// Decides one message of the job's fallback whose home is this lane.
  void on_spill(JobIndex index, const wire::Outgoing& packet, Verdict& verdict) {
    messages_.take_of_spill(index, packet, verdict);
  }

  /// The number of a fragment of a job that is present.
  Seq seq_of(JobIndex index, uint32_t low) const { return extend(low, shard_.jobs[index].limit); }
  /// The slot that holds a fragment; nullptr: none does. For packet traces.
  const Slot* slot_of(JobIndex index, Seq seq) {
    const ShardJob& job = shard_.jobs[index];
    return job.present ? shard_.find_slot(job, seq) : nullptr;
  }
  /// 1 + the highest fragment whose result passed this lane.
  Seq results_end(JobIndex index) const { return shard_.jobs[index].results_end; }
  /// For carry_out(): room for one more verdict.
  Verdict& scratch() { return scratch_; }

  /// The members that a RESULT's bytes are for, or go through.
  WorkerSet members_with(JobIndex index, const wire::Message& result) const {
    return shard_.jobs[index].members_with(result.receiver);
  }
  /// A job that is present.
  const JobSpec& spec(JobIndex index) const { return shard_.jobs[index].spec; }
  const JobCounters& job_counters(JobIndex index) const { return shard_.jobs[index].counters; }
  const Counters& counters() const { return shard_.counters; }
  std::span<const Slot> slots() const { return shard_.slots.all(); }
  /// Contributions that lie in slots now. Looks at all of them: not for the packet path.
  uint64_t contributions_held() const { return shard_.contributions_held(); }
  const Shape& shape() const { return shard_.shape; }

 private:
  Shard shard_;
  Results results_{shard_};
  Ascent ascent_{shard_, results_};
  Contributions contributions_{shard_, results_, ascent_};
  Moving moving_{shard_, results_, contributions_, ascent_};
  Parking parking_{shard_, contributions_};
  SlotAllocation allocation_{shard_, results_, ascent_, contributions_, moving_, parking_};
  Questions questions_{shard_, results_, parking_};
  FallbackMessages messages_{shard_, results_, ascent_, contributions_, questions_};
  Burst burst_{shard_, {results_, contributions_, parking_, allocation_, messages_}};
  std::vector<RxPacket> expanded_;  ///< expanded()
  Verdict scratch_;                 ///< scratch()
};

}  // namespace ina::aggregator
