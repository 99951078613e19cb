// One shard of the aggregator array: the slots of one lane, and the fate of each packet that
// reaches them. Pure: the shard sends nothing itself. It returns, for each packet, a verdict and
// the messages to send. One thread uses a shard, and shards share nothing.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "aggregator/bare_results.h"
#include "aggregator/burst_groups.h"
#include "aggregator/divider.h"
#include "aggregator/fallback.h"
#include "aggregator/kernels.h"
#include "aggregator/lockstep.h"
#include "aggregator/packet.h"
#include "aggregator/replay_window.h"
#include "aggregator/result_memory.h"
#include "aggregator/slot.h"
#include "aggregator/slot_quotas.h"
#include "aggregator/slot_tags.h"
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

/// How far apart workers may be for their late contributions to wait for each other in a slot: as
/// many slots as that may be taken for each crowd of them.
inline constexpr uint64_t kNearFragments = 128;

/// A job as the conductor admitted it. What the pointers name outlives the job's stay in the shard.
struct JobSpec {
  JobId id{};
  uint32_t epoch = 0;
  uint32_t workers = 0;  ///< 1..64
  uint32_t window = 0;   ///< W in fragments, over all lanes; a multiple of the lanes
  /// Fragments below this are complete: 0 for a new job, what the workers say after a restart.
  Seq start;
  /// The job comes back after a restart: results of the switch's earlier life may still be on their
  /// way, so its workers may soon be another W ahead.
  bool rejoined = false;
  scheduler::StaticPool pool;  ///< pools only
  scheduler::Quota quota;      ///< hashed slots: this lane's share
  uint8_t priority_max = 255;  ///< the job's class: what its workers claim is clamped to it
  /// Straggler help: an incomplete fragment this far below the newest is parked. What has come of
  /// it goes to the fallback, and who sent it may send something else in its place. 0: never.
  uint32_t park_after = 0;
  /// Nobody is the first to be found late, in a horizon, who is no further behind than this.
  uint32_t park_begin = 0;
  /// A worker for which fragments so far below the newest have waited all this time is late, until
  /// it has caught up, and only late workers' fragments are parked. Whoever merely waits for its
  /// turn on a busy core, or is behind without holding anybody up, needs no help. 0: as soon as
  /// they are left behind.
  uint32_t park_pressure = 0;
  Nanos park_patience = 0;
  /// The window that workers have without help: in fragments, over all lanes.
  uint32_t park_window = 0;
  /// What is parked takes links: where that costs more than waiting would (Lockstep), nothing is
  /// for a while. False: always.
  bool park_if_it_pays = false;
  /// Ring of seen_words() zeros: by whom a fragment is kept (1 + rank, or kParkedHome). Without it
  /// the fallback keeps all.
  uint8_t* parked_at = nullptr;
  /// Instead of the fallback, a leading worker keeps what is parked: fragments of this lane.
  uint32_t park_room = 0;
  Bitmap parkers = ~Bitmap{0};  ///< workers that can do that
  /// What more workers than these are missing of goes to the fallback all the same: each of them
  /// will be sent on to the one leader alone, whose link the fallback's shards share out.
  uint32_t park_missing = kMaxWorkers;
  /// The fallback at the workers keeps what is parked, a leading worker only what waits for none
  /// but the very worker whose shard it is: to keep it would slow that one, or its link, further.
  bool park_home = false;
  Joining joining;  ///< of bare results
  Home home = Home::kWorkers;
  uint32_t instance = 0;         ///< of the fallback; other instances' messages are dropped
  std::byte* results = nullptr;  ///< ring of 2W rows of slot_bytes; row = seq mod 2W
  /// Ring of seen_words() zeros: whose contribution to a fragment has come (the anti-replay
  /// window).
  Bitmap* seen = nullptr;
  /// Ring of seen_words() zeros: 1 + the last fragment whose result went into a result buffer.
  /// Needed by jobs that have such buffers.
  uint64_t* placed = nullptr;
  Fallback* spill = nullptr;  ///< the job's fallback if its home is this lane

  /// Help with `in_switch` fragments that each worker may have in the switch. Who has next to no
  /// more left is held up. From then on what is half of the part behind that workers keep to
  /// (client::Engine) is parked: half of them wait for others, and half go on.
  /// Where the fallback is in the switch, help begins later: nothing tells it that it does not pay.
  void park_by(uint32_t in_switch, Home home_of_fallback) {
    park_window = in_switch;
    park_begin = in_switch / (home_of_fallback == Home::kSpill ? 2 : 4);
    park_pressure = in_switch / 8 * 7;
    park_after = std::max(1u, in_switch / 8);
  }

  /// Whether help pays is judged by so many patiences: several turns of who is slow.
  static constexpr Nanos kHorizonPatiences = 500;
  /// Where it did not it is tried again after so many horizons, then twice as many.
  static constexpr Nanos kRestHorizons = 8;
  static constexpr Nanos kLongestRestHorizons = 128;
  /// Nor longer than this, however long the patience: it shall help again when somebody becomes
  /// slow for good, and a try takes milliseconds.
  static constexpr Nanos kRestNs = 1'000'000'000;
  static constexpr Nanos kLongestRestNs = 4'000'000'000;

  /// In `parked_at`: it is at the fallback, where all else goes, too.
  static constexpr uint8_t kParkedHome = 0x80;

  static size_t seen_words(uint32_t window, uint32_t lanes) {
    return ReplayWindow::entries(window, lanes);
  }
};

/// A message to send because of a packet. Its payload stays as it is until the next burst if it
/// lies in a value row or in the packet, and as the job's window says if it lies in the result
/// ring.
struct Emission {
  /// kHolders: the workers in message.bitmap; kWorker: `worker`
  enum class To : uint8_t { kSender, kAll, kHolders, kWorker, kFallback };
  To to{};
  Rank worker{};
  JobIndex job = 0;  ///< a victim's may be another than the packet's
  wire::Message message;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
};

/// What became of a packet (I5: exactly one of these) and what is to be sent because of it.
struct Verdict {
  enum class Fate : uint8_t { kAbsorbed, kForwarded, kDropped };

  Fate fate = Fate::kDropped;
  uint8_t emissions = 0;
  DropReason reason{};
  // For reason kMismatch: the other side.
  Rank first_rank{};
  wire::Signature first_signature;
  std::array<Emission, 2> emission;

  std::span<const Emission> to_send() const { return std::span(emission).first(emissions); }
};

/// Written by the shard's thread only.
struct Counters {
  uint64_t packets = 0;
  uint64_t absorbed = 0;  ///< contributions added to a slot; bytes below are their payload
  uint64_t absorbed_bytes = 0;
  uint64_t spill_packets = 0;  ///< of `packets`, those of fallbacks within the lane
  uint64_t run_packets = 0;    ///< of `packets`, marks of a run beyond its first
  uint64_t marks = 0;          ///< of workers that add nothing to a fragment
  uint64_t groups = 0;         ///< sums of several contributions made in one pass
  uint64_t grouped = 0;        ///< of `absorbed`, contributions in such sums
  uint64_t forwarded = 0;      ///< packets passed on, bypassing contributions among them
  uint64_t bypassed = 0;       ///< contributions that found no slot and went to the fallback alone
  uint64_t bypassed_bytes = 0;
  uint64_t results = 0;           ///< fragments completed in a slot
  uint64_t results_again = 0;     ///< results answered from the slot
  uint64_t fallback_results = 0;  ///< results of the fallback, passed on to the workers
  uint64_t preemptions = 0;       ///< slots taken over
  uint64_t parts = 0;             ///< partial sums sent to the fallback from slots
  uint64_t part_bytes = 0;
  uint64_t parked = 0;  ///< of these, because a straggler kept them waiting; at a worker or not
  uint64_t parker_results = 0;  ///< results of workers that kept the sums, passed on to all
  uint64_t reminders = 0;       ///< REMINDs that found their fragment in a slot
  // Contributions accepted (absorbed + bypassed) = held in slots + the following (I5).
  uint64_t contributions_in_results = 0;
  uint64_t contributions_moved = 0;      ///< to the fallback
  uint64_t contributions_discarded = 0;  ///< superseded by a result, or of a job that ended
  uint64_t slots_used = 0;               ///< slots that hold contributions now
  uint64_t slots_used_peak = 0;
  DropCounters drops;

  uint64_t dropped() const {
    uint64_t sum = 0;
    for (const uint64_t count : drops.count) sum += count;
    return sum;
  }
};

/// What one job did in this shard.
struct JobCounters {
  uint64_t slots_held = 0;
  uint64_t slots_held_peak = 0;
  uint64_t absorbed = 0;
  uint64_t bypassed = 0;
  uint64_t preempted = 0;  ///< slots lost to others or to its own more urgent fragments
  uint64_t results = 0;
  uint64_t fallback_results = 0;
  uint64_t parked = 0;
  uint64_t parked_now = 0;  ///< this and the peak need JobSpec::parked_at
  uint64_t parked_now_peak = 0;
  uint64_t parker_results = 0;
};

/// The oldest fragment that waits, and for whom.
struct Waiting {
  Seq seq;
  Bitmap missing = 0;
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
  /// are any).
  Aggregator(const Shape& shape, std::span<std::byte> rows);

  /// `index` < max_jobs and not in use; the conductor gives indices out.
  void add_job(JobIndex index, const JobSpec& spec);
  /// Sweeps the job's slots. Its packets are dropped from now on (kBadJob).
  void remove_job(JobIndex index);
  /// The job goes on in another epoch, with another instance of its fallback: sweeps its slots and
  /// forgets what it has seen. A spill fallback is replaced by `spill`.
  void new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill);

  /// Whether the worker can keep parked sums.
  void set_parker(JobIndex index, Rank rank, bool can);
  /// Whether any job has straggler help.
  bool parking() const { return parking_ != 0; }
  /// For when nobody sends, because everybody waits for a straggler: parks one fragment that is
  /// left behind. False: there is none.
  bool park_overdue(JobIndex index, Nanos now, Verdict& verdict);

  /// A job that is present has at most kMaxResultBuffers; their units do not overlap.
  void add_result_buffer(JobIndex index, const ResultBuffer& buffer);
  /// No operation of the job uses it any more.
  void remove_result_buffer(JobIndex index, uint32_t first_unit);

  /// Decides a burst (at most shape.burst packets, validated, bound): verdicts[i] for packets[i].
  /// In order, but that contributions to the same fragment (BurstGroups) follow the first of them
  /// at once: what becomes of each is what would if the burst had come in that order and one packet
  /// at a time. Payloads must stay readable until the verdicts have been carried out.
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
  /// For whoever serves a port: room for a burst that runs make longer.
  std::span<RxPacket> expanded() { return expanded_; }
  /// Likewise: bare results that have not been sent yet.
  BareResults& bare_results() { return bare_results_; }
  const BareResults& bare_results() const { return bare_results_; }

  /// Decides one message of the job's fallback whose home is this lane.
  void on_spill(JobIndex index, const wire::Outgoing& packet, Verdict& verdict);

  /// The number of a fragment of a job that is present.
  Seq seq_of(JobIndex index, uint32_t low) const { return extend(low, jobs_[index].limit); }
  /// The slot that holds a fragment; nullptr: none does. For who traces packets.
  const Slot* slot_of(JobIndex index, Seq seq) {
    return jobs_[index].present ? find_slot(jobs_[index], seq) : nullptr;
  }
  /// 1 + the highest fragment whose result passed this lane.
  Seq results_end(JobIndex index) const { return jobs_[index].results_end; }
  /// For whoever carries out verdicts: room for one more.
  Verdict& scratch() { return scratch_; }

  /// A job that is present.
  const JobSpec& spec(JobIndex index) const { return jobs_[index].spec; }
  const JobCounters& job_counters(JobIndex index) const { return jobs_[index].counters; }
  const Counters& counters() const { return counters_; }
  std::span<const Slot> slots() const { return slots_; }
  /// Contributions that lie in slots now. Looks at all of them: not for the packet path.
  uint64_t contributions_held() const;
  const Shape& shape() const { return shape_; }

 private:
  struct Job {
    // What each packet needs stands together.
    Bitmap full = 0;
    Seq limit;               ///< fragments the window allows are below this: highest result + 1 + W
    uint64_t park_next = 0;  ///< numbers of fragments below it were looked at for being left behind
    Bitmap late = 0;         ///< workers for which fragments are parked
    bool present = false;
    bool aborted = false;
    SlotAccount slots;
    ReplayWindow recent;
    Divider pool_slots;  ///< pools only
    JobSpec spec;
    ResultMemory results;
    Seq results_end;
    JobCounters counters;
    std::array<Seq, kMaxWorkers> progress;  ///< with help: 1 + the last fragment of each worker
    Bitmap out_of_room = 0;                 ///< workers whose windows are full (kFlagFull)
    Bitmap waited_for = 0;                  ///< workers that hold others up, and are not late,
    Nanos waited_since = 0;                 ///< since then
    Lockstep lockstep;
    Lockstep::Help help;
    Nanos calm_at = 0;  ///< nothing was parked in the horizon before that
    bool resting = false;
    Nanos rests_until = 0;                            ///< nothing is parked before that
    Nanos rest = 0;                                   ///< the last one was so long
    std::array<uint16_t, kMaxWorkers> parked_load{};  ///< fragments that each worker keeps
  };

  /// What a packet is about, looked up for a whole burst before any of it is decided.
  struct Lookup {
    Seq seq;
    uint64_t number = 0;     ///< of the fragment, among those of this lane
    Slot* slot = nullptr;    ///< of a GRAD of a job that is present: where it is, or might go
    Bitmap* seen = nullptr;  ///< with `slot`, where slots are hashed
    uint32_t first = 0;      ///< likewise: the slot that its hash names
  };

  /// Payloads of a group that are to be added to a slot's row in one pass. Their contributions
  /// count as added already. They are when the row is needed or the group ends, at the latest.
  struct Pending {
    bool collects = false;  ///< a group is being decided
    bool held = false;      ///< the row holds something
    Slot* slot = nullptr;   ///< nullptr: none wait
    uint32_t count = 0;
    std::array<const std::byte*, kMaxBurst> payloads;
  };

  static uint32_t spare_rows(const Shape& shape) { return 2 * shape.burst; }

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
  void decide_group(std::span<const uint16_t> group, std::span<const RxPacket> packets, Nanos now,
                    std::span<Verdict> verdicts);
  template <class Policy>
  bool join_together(Job& job, const Lookup& lookup, std::span<const uint16_t> group,
                     std::span<const RxPacket> packets, std::span<Verdict> verdicts);
  template <class Policy>
  void on_packet(const RxPacket& packet, const Lookup& lookup, Nanos now, Verdict& verdict);
  bool is_within(const Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void on_other(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void on_question(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void on_old_epoch(const Job& job, const RxPacket& packet, Verdict& verdict);
  void on_fallback_packet(Job& job, const RxPacket& packet, Verdict& verdict);
  void give_out(Job& job, Seq seq, const RxPacket& packet, wire::Origin origin, Verdict& verdict);
  void on_remind(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  static void forward(const RxPacket& packet, Verdict& verdict);

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
  void add_later(Slot& slot, const std::byte* payload);
  void add_pending();
  bool finish_pending(std::byte* result, const std::byte* last, uint32_t divisor);
  void count_group();
  void count_absorbed(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void finish(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  // moving.cc
  void on_static_move(Job& job, Slot& slot, const RxPacket& packet, Verdict& verdict);
  void on_mark(Job& job, const Lookup& lookup, const RxPacket& packet, Verdict& verdict);
  void count_mark(Job& job, Seq seq, Rank rank, Verdict& verdict);
  void hand_on(Job& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  void finish_move(Job& job, Slot& slot, const std::byte* payload, Verdict& verdict);
  void complete_parts(const Job& job, Seq seq, const RxPacket& mark, Verdict& verdict) const;

  void leave_as_part(Slot& slot, Verdict& verdict);
  void emit_part(const Slot& slot, Verdict& verdict);
  void emit_results(const Job& job, const Slot& slot, Verdict& verdict) const;
  Emission& emit_result(const Job& job, const Slot& slot, Emission::To to, Verdict& verdict) const;
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
  bool parking_pays(Job& job, Nanos now);
  static Nanos horizon_of(const Job& job) {
    return JobSpec::kHorizonPatiences * job.spec.park_patience;
  }
  static std::span<const Seq> progress_of(const Job& job) {
    return std::span(job.progress).first(job.spec.workers);
  }
  static bool awaits_late_only(Job& job, const Slot& slot, Nanos now);
  void park(Job& job, Slot& slot, Nanos now, Verdict& verdict);
  std::optional<Rank> parker_for(const Job& job, const Slot& slot) const;
  bool left_behind(const Job& job, uint64_t number) const {
    return job.spec.park_after != 0 && number < job.park_next;
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
  /// Whether a fragment may choose between slots.
  bool has_sets() const { return tags_.ways() > 1; }
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
  bool holds(const Slot& slot, JobIndex job, Seq seq) const {
    return slot.state != SlotState::kEmpty && slot.seq == seq && slot.job == job;
  }
  Slot* find_slot(const Job& job, Seq seq);
  Slot* find_in_set(JobIndex job, Seq seq, uint32_t first);
  JobIndex index_of(const Job& job) const { return static_cast<JobIndex>(&job - jobs_.data()); }
  uint32_t index_of(const Slot& slot) const { return static_cast<uint32_t>(&slot - slots_.data()); }
  Bitmap gone_to_fallback(const Job& job, Seq seq, const RxPacket& packet) const;
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
  std::byte* row_of(const Slot& slot) const { return rows_ + size_t{slot.row} * shape_.slot_bytes; }
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
  std::byte* rows_;
  uint32_t prefetch_bytes_;
  std::vector<Slot> slots_;
  SlotTags tags_;                ///< of `slots_`; kept where fragments have a choice
  std::vector<Lookup> lookups_;  ///< of the burst at hand
  BurstGroups groups_;           ///< likewise
  Pending pending_;
  /// for_each_noted(): a bit for each packet of the burst.
  std::array<uint64_t, kMaxBurst / 64> noted_{};
  size_t noted_words_ = 0;
  std::vector<RxPacket> expanded_;    ///< expanded()
  std::vector<uint32_t> spare_rows_;  ///< ring: a row that left is not written again in its burst
  uint32_t next_spare_ = 0;
  uint32_t parking_ = 0;  ///< jobs with straggler help
  SlotQuotas quotas_;
  std::vector<Job> jobs_;
  Verdict scratch_;
  BareResults bare_results_;
  Counters counters_;
};

}  // namespace ina::aggregator
