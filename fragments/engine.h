// The protocol of one worker, without I/O. The engine cuts operations into fragments, keeps the
// windows, and decides which packets to send. It asks the fallback for results that do not come,
// and answers the fallback's questions. Where the workers are home to the fallback, the engine is
// one of the fallback's shards. Pure: time and packets come in, packets and copies go out. One
// thread at a time. docs/reliability.md explains the recovery.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/fallback.h"
#include "aggregator/fixed_queue.h"
#include "fragments/kept_results.h"
#include "fragments/operation.h"
#include "fragments/parker.h"
#include "fragments/timeouts.h"
#include "fragments/transport.h"
#include "fragments/windows.h"
#include "scheduler/priority.h"
#include "wire/message.h"
#include "wire/retry.h"

namespace ina::client {

struct EngineConfig {
  Rank rank{};
  uint32_t workers = 1;
  uint32_t epoch = 0;
  uint32_t window = 0;  ///< W: fragments a worker may run ahead of its oldest incomplete one
  /// Fragments that may be in the switch at once: contributions sent, no result yet, and not
  /// parked. 0: W.
  uint32_t in_switch = 0;
  uint32_t slot_bytes = 0;
  uint32_t lanes = 1;
  /// The switch keeps a slot for each fragment of the window (policy static): lost contributions
  /// are sent again. Otherwise a contribution leaves once, and the fallback is asked.
  bool fixed_slots = true;
  Home home = Home::kWorkers;
  /// A received payload stays readable where it lies until 2W fragments later (the shm port's
  /// result ring); otherwise the engine keeps the last results itself.
  bool results_stay = false;
  /// Fragments whose partial sums it keeps for the switch while somebody is slow.
  uint32_t park_room = 0;
  uint8_t priority_max = 255;
  /// The window for congestion (ECN) and the one for aggregators (A2TP, EuroSys'23).
  bool congestion_window = true;
  bool aggregator_window = true;
  /// Lets the engine cap what is in flight by the rate of delivery, on a lossy link with the window
  /// for aggregators. Where stragglers get help (in_switch is set) there is no cap: those ahead of
  /// them shall run ahead. False: an ablation.
  bool window_cap = true;
  /// A network that drops packets when it is overloaded lies between worker and switch. The
  /// congestion window begins small, sending is spread over the round trip, and an overtaken
  /// fragment is recovered at once.
  bool lossy_link = false;
  /// Most fragments under way of operations whose results are copied to the user, 0: W. No more
  /// than the caches hold is faster. Where stragglers get help, in_switch counts in its place.
  uint32_t most_in_flight = 0;
  /// Without a lossy link: the fragments that the congestion window begins with, 0: W.
  /// Contributions that find no slot must find room where they go instead.
  uint32_t first_window = 0;
  Nanos rto_min_ns = kDefaultRtoMinNs;  ///< nothing is asked for or sent again sooner than this
  Nanos rto_max_ns = kDefaultRtoMaxNs;
};

/// Bytes to move from a received payload into a user's buffer.
struct CopyJob {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
  /// Nobody on this core reads `to` soon: the caches are better kept for something else.
  bool stream = false;
};

struct EngineCounters {
  uint64_t operations = 0;
  uint64_t fragments_sent = 0;
  uint64_t fragments_resent = 0;
  uint64_t marks_sent = 0;      ///< fragments to which this worker adds nothing
  uint64_t mark_runs_sent = 0;  ///< and the messages that said so
  uint64_t results = 0;
  uint64_t results_from_fallback = 0;  ///< of these, decided by the fallback
  uint64_t results_ignored = 0;  ///< duplicates, strays, and results refused by a bound worker
  uint64_t parked = 0;           ///< fragments that left their slots because somebody is slow
  uint64_t parks = 0;            ///< partial sums and later parts, taken for the switch
  uint64_t parks_lost = 0;       ///< that could not be: the fallback finds out
  uint64_t park_results = 0;     ///< completed here
  uint64_t queries = 0;          ///< results asked for
  uint64_t quick_queries = 0;    ///< of these, so that the switch may answer
  uint64_t raws_sent = 0;        ///< contributions sent to the fallback again
  uint64_t answers_lost = 0;     ///< questions that came faster than they could be answered
  uint64_t bytes_sent = 0;       ///< payload of contributions
  uint64_t bytes_received = 0;
  uint64_t bytes_by_fallback = 0;  ///< of these, of results that another than the switch completed
  uint64_t bytes_copied = 0;       ///< of these, moved to where their users want them
  uint64_t priority = 0;           ///< of the operation submitted last
  uint64_t overflows = 0;
  uint64_t ecn_marks = 0;
  uint64_t packets_sent = 0;  ///< of all kinds, with payload and without
  uint64_t packets_received = 0;
  uint64_t payloads_sent = 0;  ///< packets with payload of contributions; again where sent again
  uint64_t payloads_received = 0;  ///< and of results that were taken
};

/// How far a worker has come; told to the switch when it must be told again.
struct Standing {
  Seq low;          ///< oldest fragment without a result
  Seq next;         ///< next fragment to be sent
  Seq results_end;  ///< 1 + highest fragment with a result
};

class Engine {
 public:
  static constexpr size_t kBurst = 64;

  explicit Engine(const EngineConfig& config);

  /// Starts an operation. All workers must submit the same operations in the same order.
  Operation* submit(const OperationSpec& spec, Nanos now);
  /// A held operation may go: its input is at `send`, its size may have changed, and the caller may
  /// have given it another table of blocks. With `skip` it is
  /// complete without a fragment, which all workers must decide alike; from a listener only.
  void release_hold(Operation* operation, const std::byte* send, uint64_t elements,
                    bool skip = false);
  /// The caller has no more use for a finished (or failed) operation.
  void release(Operation* operation);

  /// Hints about the job's progress: they set the priority of later operations.
  void set_hints(const scheduler::Hints& hints, Nanos now) { priority_.set_hints(hints, now); }

  /// Fills `packets` in order: answers, the fallback's messages, overdue fragments, new ones as the
  /// windows allow. The transport takes a prefix of `count`: sent().
  size_t prepare(std::span<TxPacket> packets, Nanos now);
  void sent(size_t count, Nanos now);

  /// Takes in received packets. `copier.copy(std::span<const CopyJob>)` moves the results; it must
  /// be finished when it returns, because only then is a result consumed (rule C1).
  template <class Copier>
  void on_packets(std::span<const RxPacket> packets, Nanos now, Copier& copier) {
    CopyJob jobs[2 * kBurst];
    counters_.packets_received += packets.size();
    while (!packets.empty()) {
      const auto burst = packets.first(std::min(packets.size(), kBurst));
      packets = packets.subspan(burst.size());
      size_t count = 0;
      for (const RxPacket& packet : burst) count += accept(packet, now, jobs + count);
      if (count != 0) copier.copy(std::span<const CopyJob>(jobs, count));
      finish_operations(now);
    }
  }

  /// Goes on in another epoch, after the switch has come back. Fragments sent in an older epoch are
  /// not sent again but asked for. Results that lie in the old switch's memory are copied: it may
  /// go afterwards. The new one has no result buffers: `recv` of every operation must be memory to
  /// copy to from now on.
  void rejoin(uint32_t epoch, Nanos now);
  /// Rejoins at a switch that has been given other rules: `told` is how an engine would be made
  /// for it now. Policy, timeouts, priority and windows are taken over. The job's shape, its home
  /// and its straggler help are as they were.
  void rejoin(const EngineConfig& told, Nanos now);
  /// Results that lie in `memory` are copied where others may still need them: it may go.
  void keep_results(std::span<const std::byte> memory);
  /// The job has another epoch; nothing else has changed for this worker.
  void set_epoch(uint32_t epoch, Nanos now);
  Standing standing() const { return {low_, next_, results_end_}; }

  /// Operations that are not complete.
  size_t running() const { return running_.size(); }
  /// All that were submitted, modulo 2^32; each has the number of those before it.
  uint32_t operations_submitted() const { return operations_submitted_; }
  /// True if prepare() has something to send besides contributions.
  bool has_answers() const {
    return questions_.size() != 0 || parked_out_.size() != 0 ||
           (fallback_ && fallback_->has_output());
  }
  /// When prepare() should be called again at the latest; kNever if nothing is under way.
  Nanos next_deadline() const {
    return paced_ ? std::min(next_deadline_, windows_.paced_until()) : next_deadline_;
  }
  /// New fragments wait for their time, and for nothing else.
  bool paced() const { return paced_; }
  static constexpr Nanos kNever = INT64_MAX;
  const EngineCounters& counters() const { return counters_; }
  const EngineConfig& config() const { return config_; }
  /// The shard of the fallback that this worker is home to, or nullptr.
  const aggregator::Fallback* fallback() const { return fallback_ ? &*fallback_ : nullptr; }
  /// Set once, when workers turn out to disagree: in this worker's shard of the fallback, or
  /// because a result is of another operation than this worker's.
  const std::optional<aggregator::FallbackMismatch>& mismatch() const {
    return mismatch_ || !fallback_ ? mismatch_ : fallback_->mismatch();
  }
  /// The oldest operation that is not complete and of which `is(operation)` is true, or nullptr.
  template <class Is>
  const Operation* find_running(Is&& is) const {
    for (const Operation* operation : running_)
      if (is(*operation)) return operation;
    return nullptr;
  }
  /// Oldest operation that is not complete, or nullptr.
  const Operation* oldest() const { return running_.empty() ? nullptr : running_.front(); }
  Seq low() const { return low_; }
  /// True if the fragment was sent and has no result.
  bool awaits(Seq seq) const {
    if (seq < low_ || seq >= next_) return false;
    const State state = ring_[seq.value % ring_.size()].state;
    return state == State::kSent || state == State::kOverdue;
  }
  /// True if the fragment awaits() a result that will have no bytes for this worker.
  bool awaits_bare(Seq seq) const {
    if (!awaits(seq)) return false;
    const Operation& operation = *ring_[seq.value % ring_.size()].operation;
    return operation.spec.blocks && operation.is_for_others(seq, config_.rank);
  }
  /// More is to be sent, and nothing but the windows is in its way.
  bool held_up_by_window() const;
  /// Fragments that may be in the switch at once, as congestion and parking allow.
  uint32_t window_now() const {
    const uint32_t window = windows_.fragments();
    if (parked_ == 0 && !catches_up_) return window;
    return std::min(window, std::max(1u, most_in_switch() / kInSwitchParts));
  }

 private:
  /// As far as new fragments of this operation may fill it.
  uint32_t window_for(const Operation& operation) const {
    const bool no_limit =
        config_.most_in_flight == 0 || config_.in_switch != 0 || operation.spec.target != 0;
    return no_limit ? window_now() : std::min(window_now(), config_.most_in_flight);
  }
  void play_by(const EngineConfig& told);
  /// A worker has only one of so many parts of in_switch in the switch while a fragment of its own
  /// is parked, or while it completes parked ones. So slots come free, and neither spills nor the
  /// results that keepers give out overrun links.
  static constexpr uint32_t kInSwitchParts = 4;
  enum class State : uint8_t { kUnsent, kSent, kOverdue, kDone };
  /// One fragment of the last W that are complete or the next W: a ring of 2W.
  struct alignas(64) Fragment {
    Operation* operation = nullptr;     ///< until done
    const std::byte* result = nullptr;  ///< once done, while it is kept
    Nanos sent_at = 0;
    Nanos deadline = 0;               ///< once done, when that was
    uint64_t operation_elements = 0;  ///< signature, for HAVE
    uint32_t operation_number = 0;
    uint32_t epoch = 0;  ///< in which it was sent
    uint32_t bound = 0;  ///< 1 + instance of the fallback whose result it waits for; 0: anybody's
    uint32_t target : 24 = 0;  ///< of the result, for HAVE
    uint32_t flags : 4 = 0;    ///< of the result, for HAVE
    bool mark : 1 = false;     ///< this worker adds nothing to it: it takes no place in the window
    bool bare : 1 = false;     ///< done without bytes, which were for others
    bool to_one : 1 = false;   ///< this worker alone gets its bytes
    bool prompt : 1 = false;   ///< the switch was told not to keep its bare result
    uint16_t elements = 0;
    DType dtype{};
    Op op{};
    Collective collective{};
    State state = State::kUnsent;
    uint8_t timeouts = 0;
    bool queried : 1 = false;
    bool parked : 1 =
        false;  ///< left its slot because a worker is slow: takes no place in the window
    bool all_to_fallback : 1 =
        false;  ///< parked here and passed on to the fallback, as later parts are
    bool overtaken : 1 =
        false;  ///< certainly lost, or gone round by the fallback: no need for patience
    bool again : 1 = false;       ///< overdue: the switch asks for it
    bool clocked : 1 = false;     ///< a result made room for it
    bool waited : 1 = false;      ///< longer than its time-out, while earlier results came
    bool asked_once : 1 = false;  ///< once done: its result came after a single question
  };
  static_assert(sizeof(Fragment) == 64);
  /// A POLL that waits to be answered.
  struct Question {
    Seq seq;
    WorkerSet ask = {};
    uint32_t instance = 0;
    wire::Phase phase{};
  };
  template <class Where>
  void keep_results_where(Where&& where);
  void keep_all_results();
  enum class Overdue : uint8_t { kAgain, kQuery };
  /// Overdue fragments that are looked after at once: the oldest, because the window waits for
  /// them.
  static constexpr size_t kMaxOverdue = 64;

  Fragment& fragment(Seq seq) { return ring_[seq.value % ring_.size()]; }
  /// Messages of new fragments, in the order of prepare(), from the first one on.
  struct New {
    enum class Kind : uint8_t { kContribution, kMarks, kClosingLater };
    Kind kind{};
    uint32_t packets = 0;
    uint64_t fragments = 0;
  };
  void describe(Seq seq, const Operation& operation, uint32_t in_flight, TxPacket& packet) const;
  size_t describe_marks(Seq seq, uint64_t fragments, const Operation& operation, uint32_t in_flight,
                        std::span<TxPacket> packets) const;
  size_t prepare_answers(std::span<TxPacket> packets);
  size_t prepare_parked(std::span<TxPacket> packets);
  size_t prepare_overdue(std::span<TxPacket> packets);
  size_t prepare_closings(std::span<TxPacket> packets);
  bool may_close(const Operation& operation) const;
  bool answer(const Question& question, TxPacket& packet);
  void query(Seq seq, TxPacket& packet) const;
  bool is_quick(const Fragment& fragment) const;
  void send_again(Seq seq, bool is_lost, Nanos now);
  Overdue what_to_do(const Fragment& fragment) const;
  size_t accept(const RxPacket& packet, Nanos now, CopyJob* jobs);
  size_t on_fallback_message(const RxPacket& packet, Nanos now, CopyJob* jobs);
  void flag_kept(TxPacket& packet);
  /// Results that are made here are taken here. If one gets lost, another worker must ask for it.
  /// Otherwise the switch would never hear of it, and refuse fragments W later.
  bool keeps_results() const {
    return config_.park_room != 0 && config_.workers > 1 && !config_.results_stay;
  }
  void forget_bare_results(const Operation& operation);
  bool is_slowed_by(const wire::Message& message, bool parked) const;
  void on_parked(const wire::Message& message, Nanos now);
  void leaves_window(Seq seq, Fragment& fragment, Nanos now);
  size_t on_park(const RxPacket& packet, Nanos now, CopyJob* jobs);
  void queue_parked(Parker::Held& held);
  void describe_parked(const Parker::Held& held, TxPacket& packet);
  void parked_sent(size_t count);
  void overdue_sent(size_t count, Nanos now);
  void closings_sent(size_t count, Nanos now);
  size_t accept_result(const RxPacket& packet, Nanos now, CopyJob* jobs);
  void accept_bare_results(const wire::Message& message, Nanos now);
  void accept_missing_bare_results(Operation& operation, const wire::Message& message, Nanos now);
  void note_mismatch(const wire::Signature& ours, const wire::Message& message);
  /// True if the worker cannot wait for bare results that the switch keeps: its window is less than
  /// half of the most that it may have in the switch, and with one more fragment than those in
  /// flight half of it is used. A window that is halved then has room for a fragment that says so.
  bool needs_prompt_results(uint32_t in_flight) const {
    const uint64_t window = window_now();
    return 2 * window < most_in_switch() && 2 * (uint64_t{in_flight} + 2) > window;
  }
  uint32_t most_in_switch() const {
    return config_.in_switch == 0 ? config_.window : std::min(config_.window, config_.in_switch);
  }
  bool takes_bare_result(Seq seq, const Fragment& fragment, const wire::Message& message) const;
  void complete(Seq seq, Fragment& fragment, const wire::Message& message, Nanos now);
  void finish_operations(Nanos now);
  void link_loses(Seq seq);
  bool may_be_queued(const Fragment& fragment, Nanos now) const;
  void probe_oldest(Nanos now);
  void overtake(Seq seq, Fragment& fragment);
  bool is_missed(const Fragment& fragment, Seq seq) const;
  void expect_late(Seq begin, Seq end, Nanos now);
  bool may_be_next(Seq seq, const Fragment& fragment) const;
  void find_overdue(Nanos now);
  void look_for_needless_question(Seq seq, Nanos now);
  void doubt_rtt(const Fragment& recovered, Nanos now);
  Nanos timeout_of(Seq seq, const Fragment& fragment) const;
  Nanos timeout_of_sent(Seq seq, const Fragment& fragment) const;
  Nanos timeout_of_late(const Fragment& late) const;
  Nanos timeout_of_parked(const Fragment& late) const;
  /// A link has lost something lately, and the switch answers questions.
  bool loses_now(Seq seq) const {
    return config_.lossy_link && !config_.fixed_slots && seq < losses_end_;
  }
  /// A late result may be on its way through the fallback, which takes as long as its queues,
  /// rather than lost.
  bool may_go_round(Seq seq) const { return windows_.split_lately(seq) && !loses_now(seq); }
  /// Until the answers to all questions that may be under way can have come.
  Nanos time_of_answers() const { return windows_.time_of_results(in_flight_); }
  void more_operations();
  void mark_sent(Seq seq, Operation& operation, Nanos now);
  void new_sent(const New& sent, Nanos now);
  size_t prepare_new(std::span<TxPacket> packets, Nanos now);
  uint64_t marks_from(const Operation& operation, Seq seq, Seq end) const;
  void adjust_windows(const wire::Message& message, Seq seq, const Fragment& fragment);
  void look_after_overtaken(const Fragment& by, Seq seq);

  EngineConfig config_;
  std::vector<Fragment> ring_;  ///< [low_ - W, low_ + W) at seq mod 2W
  Seq low_;                     ///< oldest fragment without a result
  Seq next_;                    ///< next fragment to be sent
  Seq results_end_;
  uint32_t in_flight_ = 0;       ///< fragments sent that have no result and are not parked
  uint32_t parked_ = 0;          ///< and those that are
  bool catches_up_ = false;      ///< the last result was of a fragment parked by others at a worker
  Seq losses_end_;               ///< the link counts as one that loses until then
  Seq overtaken_end_;            ///< below it, fragments were looked at for having been overtaken
  Nanos progress_at_ = 0;        ///< when the last result was taken
  Nanos delivered_sent_at_ = 0;  ///< when the latest one was sent of those that have results
  uint32_t operations_submitted_ = 0;
  std::vector<Seq> overdue_;
  size_t recoveries_until_look_ = 0;  ///< 0: all that was overdue is looked after
  // Not deques, which allocate as they move on.
  std::vector<Operation*> running_;   ///< in order of submission
  std::vector<Operation*> to_send_;   ///< those with fragments not sent yet
  std::vector<Operation*> to_close_;  ///< sent but for their closing fragments
  std::vector<New> prepared_new_;
  size_t prepared_closings_ = 0;
  std::vector<std::unique_ptr<Operation[]>> storage_;
  std::vector<Operation*> spare_;
  std::vector<Operation*> received_;  ///< of which all bytes have just come, and listeners hear
  std::vector<Operation*> finished_;
  std::optional<aggregator::Fallback> fallback_;
  aggregator::FixedQueue<Question> questions_;
  std::optional<Parker> parker_;
  aggregator::FixedQueue<Seq> parked_out_;  ///< parked sums, or their results, that are to be sent
  /// The packets of the last prepare(), by kind.
  size_t prepared_answers_ = 0;
  size_t prepared_fallback_ = 0;
  size_t prepared_parked_ = 0;
  size_t prepared_overdue_ = 0;

  KeptResults kept_;  ///< if the transport does not keep the results

  std::optional<aggregator::FallbackMismatch> mismatch_;
  Nanos next_deadline_ = kNever;
  Timeouts timeouts_;
  Windows windows_;
  bool paced_ = false;    ///< a new fragment waits for its time
  bool full_ = false;     ///< a new fragment waits for a result
  bool clocked_ = false;  ///< it did before the last prepare()
  scheduler::PriorityMeter priority_;
  EngineCounters counters_;
};

}  // namespace ina::client
