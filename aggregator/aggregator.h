// One shard of the aggregator array: the slots of one lane, and the fate of each packet that
// reaches them. Pure: the shard sends nothing itself. It returns, for each packet, a verdict and
// the messages to send. One thread uses a shard, and shards share nothing.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/bare_results.h"
#include "aggregator/burst_groups.h"
#include "aggregator/counters.h"
#include "aggregator/divider.h"
#include "aggregator/fallback.h"
#include "aggregator/job_spec.h"
#include "aggregator/kernels.h"
#include "aggregator/late_workers.h"
#include "aggregator/packet.h"
#include "aggregator/pending_sum.h"
#include "aggregator/replay_window.h"
#include "aggregator/result_memory.h"
#include "aggregator/slot_array.h"
#include "aggregator/slot_quotas.h"
#include "aggregator/verdict.h"
#include "scheduler/policies.h"
#include "wire/message.h"
#include "wire/rules.h"

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
struct Waiting {
  Seq seq;
  WorkerSet missing = {};
  std::optional<wire::Signature> signature;  ///< of a fragment that has a slot
};

class Aggregator {
 public:
  static constexpr size_t kMaxBurst = BurstGroups::kMaxBurst;

  /// Bytes of value-row memory that `shape` needs, at an alignment of 64.
  static size_t row_memory_bytes(const Shape& shape) {
    return (size_t{shape.slots} + spare_rows(shape)) * shape.slot_bytes;
  }

  /// `rows`: row_memory_bytes() bytes, 64-byte aligned, owned by the caller (hugepages, if there
  /// are any). `tables`: for the slots and their tags.
  Aggregator(const Shape& shape, std::span<std::byte> rows,
             std::pmr::memory_resource* tables = std::pmr::get_default_resource());

  /// `index` < max_jobs and not in use; the conductor gives indices out.
  void add_job(JobIndex index, const JobSpec& spec);
  /// Sweeps the job's slots. Its packets are dropped from now on (kBadJob).
  void remove_job(JobIndex index);
  /// The job goes on in another epoch, with another instance of its fallback: sweeps its slots and
  /// forgets what it has seen. A spill fallback is replaced by `spill`.
  void new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill);

  /// Records if the worker can keep parked sums.
  void set_parker(JobIndex index, Rank rank, bool can);
  /// JobSpec::links_lose, from now on.
  void set_links_lose(JobIndex index) { jobs_[index].spec.links_lose = true; }
  /// True if any job has straggler help.
  bool parking() const { return parking_ != 0; }
  /// For when nobody sends, because everybody waits for a straggler: parks one fragment that is
  /// left behind. False: there is none.
  bool park_overdue(JobIndex index, Nanos now, Verdict& verdict);

  /// A job that is present has at most kMaxResultBuffers; their units do not overlap.
  void add_result_buffer(JobIndex index, const ResultBuffer& buffer);
  /// No operation of the job uses it any more.
  void remove_result_buffer(JobIndex index, uint32_t first_unit);

  /// Decides a burst (at most shape.burst packets, validated, bound): verdicts[i] for packets[i].
  /// In order, but contributions to the same fragment (BurstGroups) follow the first of them at
  /// once. Each verdict is as if the burst had come in that order, one packet at a time. Payloads
  /// must stay readable until the verdicts have been carried out.
  void on_burst(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts);

  /// The packets of the last burst whose verdict asks for more than to be counted: something is to
  /// be sent, or a packet was dropped. In order; `visit(index)`.
  template <class Visit>
  void for_each_noted(Visit&& visit) const {
    for (size_t word = 0; word < noted_words_; ++word)
      for (uint64_t left = noted_[word]; left != 0; left &= left - 1)
        visit(64 * word + static_cast<size_t>(std::countr_zero(left)));
  }

  /// Oldest incomplete fragment of a job. Looks through its window: not for the packet path.
  std::optional<Waiting> oldest_waiting(JobIndex index);

  /// The marks that a run stands for, from its `first` one on, as many as `marks` has room for.
  /// Returns how many; those beyond the job's window are left out, but for the first of all.
  size_t expand(const RxPacket& run, size_t first, std::span<RxPacket> marks);
  /// For the loop that serves a port: room for a burst that runs make longer.
  std::span<RxPacket> expanded() { return expanded_; }
  /// For the loop that serves a port: bare results that have not been sent yet.
  BareResults& bare_results() { return bare_results_; }
  const BareResults& bare_results() const { return bare_results_; }

  /// Decides one message of the job's fallback whose home is this lane.
  void on_spill(JobIndex index, const wire::Outgoing& packet, Verdict& verdict);

  /// The number of a fragment of a job that is present.
  Seq seq_of(JobIndex index, uint32_t low) const { return extend(low, jobs_[index].limit); }
  /// The slot that holds a fragment; nullptr: none does. For packet traces.
  const Slot* slot_of(JobIndex index, Seq seq) {
    return jobs_[index].present ? find_slot(jobs_[index], seq) : nullptr;
  }
  /// 1 + the highest fragment whose result passed this lane.
  Seq results_end(JobIndex index) const { return jobs_[index].results_end; }
  /// For carry_out(): room for one more verdict.
  Verdict& scratch() { return scratch_; }

  /// A job that is present.
  const JobSpec& spec(JobIndex index) const { return jobs_[index].spec; }
  const JobCounters& job_counters(JobIndex index) const { return jobs_[index].counters; }
  const Counters& counters() const { return counters_; }
  std::span<const Slot> slots() const { return slots_.all(); }
  /// Contributions that lie in slots now. Looks at all of them: not for the packet path.
  uint64_t contributions_held() const;
  const Shape& shape() const { return shape_; }

 private:
  struct Job {
    // The fields that each packet needs stand together.
    WorkerSet full = {};
    Seq limit;               ///< fragments the window allows are below this: highest result + 1 + W
    uint64_t park_next = 0;  ///< numbers of fragments below it were looked at for being left behind
    bool present = false;
    bool aborted = false;
    SlotAccount slots;
    ReplayWindow recent;
    Divider pool_slots;  ///< pools only
    JobSpec spec;
    ResultMemory results;
    GivenResults given;
    Seq results_end;
    JobCounters counters;
    LateWorkers late;                                 ///< with straggler help
    std::array<uint16_t, kMaxWorkers> parked_load{};  ///< fragments that each worker keeps
  };

  /// A group's fragment and slot, looked up for a whole burst before any packet is decided.
  struct Lookup {
    Seq seq;
    uint64_t number = 0;        ///< of the fragment, among those of this lane
    Slot* slot = nullptr;       ///< of a GRAD of a job that is present: where it is, or might go
    WorkerSet* seen = nullptr;  ///< with `slot`, where slots are hashed
    uint32_t first = 0;         ///< where slots are hashed: the slot that its hash names
  };

  static uint32_t spare_rows(const Shape& shape) { return 2 * shape.burst; }
  static uint32_t prefetch_bytes(const Shape& shape);  // burst.cc

  // burst.cc
  void look_up(std::span<const RxPacket> packets);
  template <uint32_t kWays>
  void look_up_in_sets(std::span<const RxPacket> packets);
  template <class Policy>
  void decide(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts);
  template <class Policy>
  void decide_groups(std::span<const RxPacket> packets, Nanos now, std::span<Verdict> verdicts);
  template <class Policy>
  void decide_one(size_t index, const RxPacket& packet, const Lookup& lookup, Nanos now,
                  Verdict& verdict);
  template <class Policy>
  void decide_group(const BurstGroups::Group& group, const Followers& followers,
                    const RxPacket& first, const Lookup& lookup, Nanos now,
                    std::span<Verdict> verdicts);
  template <class Policy>
  bool join_together(Job& job, const Lookup& lookup, const BurstGroups::Group& group,
                     const Followers& followers);
  void gather(const BurstGroups::Group& group, std::span<const RxPacket> packets,
              std::span<Verdict> verdicts, const std::byte** payloads, Followers& followers) const;
  template <class Policy>
  void on_packet(const RxPacket& packet, const Lookup& lookup, Nanos now, Verdict& verdict);
  void hear_prompt(const RxPacket& packet);
  bool is_within(const Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);

  // fallback_messages.cc
  void on_other(Job& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);
  void on_question(Job& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);
  void on_old_epoch(const Job& job, const RxPacket& packet, Verdict& verdict);
  void on_fallback_packet(Job& job, const RxPacket& packet, Verdict& verdict);
  void give_out(Job& job, Seq seq, const RxPacket& packet, wire::Origin origin, Verdict& verdict);
  void on_remind(Job& job, Seq seq, Verdict& verdict);
  static void forward(const RxPacket& packet, Verdict& verdict);

  // contributions.cc
  template <class Policy>
  void on_grad(Job& job, const Lookup& lookup, const RxPacket& packet, Nanos now, Verdict& verdict);
  void on_static_grad(Job& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                      Verdict& verdict);
  template <class Policy>
  void on_hashed_grad(Job& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                      Verdict& verdict);
  template <class Policy>
  Slot* make_room(const Job& job, const Lookup& lookup, Nanos now);
  void reap(Slot& slot);
  template <class Policy>
  void join(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  template <class Policy>
  void contend(Job& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);
  template <class Policy>
  void add_to(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  template <class Policy>
  void add_last(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  static scheduler::Occupant occupant_of(const Slot& slot, uint32_t workers) {
    return {slot.priority, slot.first_arrival, slot.bits | slot.at_fallback, workers};
  }
  static bool agrees(const Slot& slot, const RxPacket& packet);
  static bool agrees_on_move(const Slot& slot, const RxPacket& packet);
  void on_mismatch(Job& job, const Slot& slot, Verdict& verdict);
  void install(Job& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now);
  void bypass(Job& job, const RxPacket& packet, Verdict& verdict);
  void absorb(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void absorb_here(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void add_pending();
  bool finish_pending(std::byte* result, const std::byte* last, uint32_t divisor);
  void count_group(uint32_t contributions);
  bool holds_all(const Job& job, const Lookup& lookup, const RxPacket& first) const;
  void finish_at_once(Job& job, const Lookup& lookup, const RxPacket& first, Verdict& verdict);
  void count_absorbed(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void finish(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  // questions.cc
  bool answer_question(Job& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);
  bool tell_to_wait(Job& job, Seq seq, const RxPacket& packet, Nanos now, Verdict& verdict);
  WorkerSet came_later(const Job& job, Seq seq) const;
  bool given_later(const Job& job, Seq seq) const;
  void ask_again(const Job& job, Seq seq, wire::Phase phase, WorkerSet workers, JobIndex index,
                 Verdict& verdict) const;
  bool give_again(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void remember_given(Job& job, Seq seq, const wire::Message& result) const;
  // moving.cc
  void on_static_move(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void on_mark(Job& job, const Lookup& lookup, const RxPacket& packet, Verdict& verdict);
  void count_mark(Job& job, Seq seq, Rank rank, Verdict& verdict);
  void hand_on(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void finish_move(Job& job, Slot& slot, const std::byte* payload, Verdict& verdict);
  void complete_parts(const Job& job, Seq seq, const RxPacket& mark, Verdict& verdict) const;

  void leave_as_part(Slot& slot, Verdict& verdict);
  void emit_part(const Slot& slot, Verdict& verdict);
  void emit_results(Job& job, const Slot& slot, std::span<const std::byte> payload,
                    Verdict& verdict) const;
  Emission& emit_result(const Job& job, const Slot& slot, Emission::To to,
                        std::span<const std::byte> payload, Verdict& verdict) const;
  void complete_result(const Job& job, Seq seq, std::span<const std::byte> payload,
                       Emission& emission) const;
  void repeat_result(const Job& job, const Slot& slot, Rank rank, Verdict& verdict);
  static void bare_for_others(Verdict& verdict);
  static void make_bare(Emission& result);
  static void note_result(Job& job, Seq seq);
  void release(Slot& slot);
  void take_slot(Job& job);
  void give_back_slot(Job& job);
  void sweep(JobIndex index);

  // parking.cc
  void park_left_behind(Job& job, JobIndex index, Nanos now, Verdict& verdict);
  void park(Job& job, Slot& slot, Nanos now, Verdict& verdict);
  std::optional<Rank> parker_for(const Job& job, const Slot& slot) const;
  bool left_behind(const Job& job, uint64_t number) const {
    return job.spec.park_after != 0 && number < job.park_next;
  }
  /// A worker has contributed to a fragment.
  void note_caught_up(Job& job, Seq seq, Rank rank) const {
    if (job.spec.park_after != 0 && number_of(seq) >= job.park_next) [[unlikely]]
      job.late.caught_up(rank);
  }
  bool worth_combining(const Job& job, Seq seq) const;
  void install_late(Job& job, Slot& slot, Seq seq, const RxPacket& packet, Nanos now,
                    Verdict& verdict);
  void add_late(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void follow(Job& job, Seq seq, Emission& part) const;
  void pass_to_parker(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void unpark(Job& job, uint64_t number);
  Emission& emit_parked(const Job& job, Seq seq, Emission::To to, JobIndex index,
                        Verdict& verdict) const;
  void on_parker_packet(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);

  void drop(Verdict& verdict, DropReason reason);
  /// To be called with each verdict of a burst that may ask for more than to be counted.
  void note(size_t index, const Verdict& verdict) {
    if (verdict.fate == Verdict::Fate::kForwarded) ++counters_.forwarded;
    const bool quiet = verdict.fate == Verdict::Fate::kAbsorbed && verdict.emissions == 0;
    if (!quiet) noted_[index / 64] |= uint64_t{1} << index % 64;
  }

  bool hashed() const { return hashed_; }
  /// The number of a fragment among those of this lane; each lane has every lanes-th of a job.
  uint64_t number_of(Seq seq) const { return lanes_.quotient(seq.value); }
  bool in_lane(Seq seq) const { return lanes_.remainder(seq.value) == shape_.lane; }
  Slot& pool_slot(const Job& job, uint64_t number) {
    return slots_[job.spec.pool.first_slot + job.pool_slots.remainder(number)];
  }
  /// Hashed by their number in the lane: hashed_slot() wants them one after another.
  uint32_t hashed_slot(const Job& job, uint64_t number) const {
    return scheduler::hashed_slot(job.spec.id, Seq{number}, shape_.slots);
  }
  Slot* find_slot(const Job& job, Seq seq);
  JobIndex index_of(const Job& job) const { return static_cast<JobIndex>(&job - jobs_.data()); }
  WorkerSet gone_to_fallback(const Job& job, Seq seq, const RxPacket& packet) const;
  /// A payload that is to be moved, rather than added.
  static bool moves(const wire::Message& message) {
    return is_moved(message.collective) && message.elements != 0;
  }
  void advance(Job& job, Seq seq);
  /// Where a fragment is parked: JobSpec::parked_at.
  static uint8_t& parked_at(const Job& job, uint64_t number) {
    return job.spec.parked_at[job.recent.index(number)];
  }
  bool place_once(Job& job, Seq seq) const {
    return job.results.place_once(job.recent.index(number_of(seq)), seq);
  }
  Seq seq_of(const Job& job, const RxPacket& packet) const {
    return extend(packet.message.seq, job.limit);
  }
  std::byte* row_of(const Slot& slot) const { return slots_.row_of(slot); }
  static Emission& add_emission(Verdict& verdict, Emission::To to, JobIndex job);
  const Kernels& kernels_of(const Slot& slot) const {
    return *kernels_[static_cast<size_t>(slot.dtype)][static_cast<size_t>(slot.op)];
  }

  Shape shape_;
  bool hashed_;  ///< shape_.policy's trait
  Divider lanes_;
  /// By data type and operation, for the best instruction set of this machine.
  std::array<std::array<const Kernels*, std::size(kAllOps) + 1>, std::size(kAllDTypes) + 1>
      kernels_{};
  uint32_t prefetch_bytes_;
  SlotArray slots_;
  BurstGroups groups_;           ///< of the burst at hand
  std::vector<Lookup> lookups_;  ///< of its groups
  PendingSum pending_;           ///< of the group at hand
  /// for_each_noted(): a bit for each packet of the burst.
  std::array<uint64_t, kMaxBurst / 64> noted_{};
  size_t noted_words_ = 0;
  std::vector<RxPacket> expanded_;  ///< expanded()
  uint32_t parking_ = 0;            ///< jobs with straggler help
  SlotQuotas quotas_;
  std::vector<Job> jobs_;
  Verdict scratch_;
  BareResults bare_results_;
  Counters counters_;
};

/// True if a worker of the job may speak of the fragment now; otherwise the packet is dropped.
[[gnu::always_inline]] inline bool Aggregator::is_within(const Job& job, Seq seq,
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
