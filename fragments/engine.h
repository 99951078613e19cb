// The protocol of one worker, without I/O. The engine cuts operations into fragments, keeps the
// windows, and decides which packets to send. It asks the fallback for results that do not come,
// and answers the fallback's questions. Where the workers are home to the fallback, the engine is
// one of the fallback's shards. Pure: time and packets come in, packets and copies go out. One
// thread at a time. docs/reliability.md explains the recovery.
//
// The parts, each with state of its own: Sending (new fragments), Results, Recovery (of overdue
// results), Parking (straggler help) and Answers (to the fallback). All use the Flow (fragments and
// windows) and its Deadlines. This class hands messages and places in bursts to them.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "aggregator/fallback.h"
#include "fragments/answers.h"
#include "fragments/copy_job.h"
#include "fragments/deadlines.h"
#include "fragments/engine_config.h"
#include "fragments/engine_counters.h"
#include "fragments/flow.h"
#include "fragments/operation.h"
#include "fragments/operation_queue.h"
#include "fragments/parking.h"
#include "fragments/recovery.h"
#include "fragments/results.h"
#include "fragments/sending.h"
#include "fragments/transport.h"
#include "scheduler/priority.h"

namespace ina::client {

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
  /// have given it another table of blocks. With `skip` it is complete without a fragment, which
  /// all workers must decide alike; from a listener only.
  void release_hold(Operation* operation, const std::byte* send, uint64_t elements,
                    bool skip = false);
  /// The caller has no more use for a finished (or failed) operation.
  void release(Operation* operation);

  /// Hints about the job's progress: they set the priority of later operations.
  void set_hints(const scheduler::Hints& hints, Nanos now) { operations_.set_hints(hints, now); }

  /// Fills `packets` in order: answers, the fallback's messages, parked sums, overdue fragments,
  /// new ones as the windows allow. The transport takes a prefix of `count`: sent().
  size_t prepare(std::span<TxPacket> packets, Nanos now);
  void sent(size_t count, Nanos now);

  /// Takes in received packets. `copier.copy(std::span<const CopyJob>)` moves the results; it must
  /// be finished when it returns, because only then is a result consumed (rule C1).
  template <class Copier>
  void on_packets(std::span<const RxPacket> packets, Nanos now, Copier& copier) {
    CopyJob jobs[2 * kBurst];
    flow_.counters.packets_received += packets.size();
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
  /// for it now. Its rules are taken over; the job's shape, home and straggler help are as
  /// they were.
  void rejoin(const EngineConfig& told, Nanos now);
  /// Results that lie in `memory` are copied where others may still need them: it may go.
  void keep_results(std::span<const std::byte> memory) { results_.keep(memory); }
  /// The job has another epoch; nothing else has changed for this worker.
  void set_epoch(uint32_t epoch, Nanos now);
  Standing standing() const {
    return {flow_.ring.low(), flow_.ring.next(), flow_.ring.results_end()};
  }

  /// Fragments of which this worker can give the result, as it tells a switch of a tree to which it
  /// attaches: `visit(seq)`.
  template <class Visit>
  void for_each_held(Visit&& visit) const {
    const Seq end = flow_.ring.results_end();
    for (Seq seq = end - std::min<uint64_t>(end.value, config().window); seq < end; ++seq)
      if (flow_.ring[seq].is_done() && !flow_.ring[seq].bare) visit(seq);
  }

  /// Operations that are not complete.
  size_t running() const { return operations_.running().size(); }
  /// All that were submitted, modulo 2^32; each has the number of those before it.
  uint32_t operations_submitted() const { return operations_.submitted(); }
  /// True if prepare() has something to send besides contributions.
  bool has_answers() const {
    return answers_.has_output() || parking_.has_output() || (fallback_ && fallback_->has_output());
  }
  /// When prepare() should be called again at the latest; kNever if nothing is under way.
  Nanos next_deadline() const {
    const Nanos next = deadlines_.next();
    return paced() ? std::min(next, flow_.windows.paced_until()) : next;
  }
  /// New fragments wait for their time, and for nothing else.
  bool paced() const { return sending_.paced(); }
  static constexpr Nanos kNever = Deadlines::kNever;
  const EngineCounters& counters() const { return flow_.counters; }
  const EngineConfig& config() const { return flow_.config; }
  /// The shard of the fallback that this worker is home to, or nullptr.
  const aggregator::Fallback* fallback() const { return fallback_ ? &*fallback_ : nullptr; }
  /// Set once, when workers turn out to disagree: in this worker's shard of the fallback, or
  /// because a result is of another operation than this worker's.
  const std::optional<aggregator::FallbackMismatch>& mismatch() const {
    return results_.mismatch() || !fallback_ ? results_.mismatch() : fallback_->mismatch();
  }
  /// The oldest operation that is not complete and of which `is(operation)` is true, or nullptr.
  template <class Is>
  const Operation* find_running(Is&& is) const {
    for (const Operation* operation : operations_.running())
      if (is(*operation)) return operation;
    return nullptr;
  }
  /// Oldest operation that is not complete, or nullptr.
  const Operation* oldest() const {
    return running() == 0 ? nullptr : operations_.running().front();
  }
  Seq low() const { return flow_.ring.low(); }
  /// True if the fragment was sent and has no result.
  bool awaits(Seq seq) const { return flow_.ring.awaits(seq); }
  /// True if the fragment awaits() a result that will have no bytes for this worker.
  bool awaits_bare(Seq seq) const {
    if (!awaits(seq)) return false;
    const Operation& operation = *flow_.ring[seq].operation;
    return operation.spec.blocks && operation.is_for_others(seq, config().rank);
  }
  /// More is to be sent, and nothing but the windows is in its way.
  bool held_up_by_window() const { return sending_.held_up_by_window(); }
  /// Fragments that may be in the switch at once, as congestion and parking allow.
  uint32_t window_now() const { return flow_.window_now(); }

 private:
  /// The packets of the last prepare() by kind, in their order, but for new fragments.
  struct Prepared {
    size_t answers = 0;
    size_t fallback = 0;
    size_t parked = 0;
    size_t overdue = 0;
    size_t closings = 0;
  };
  size_t accept(const RxPacket& packet, Nanos now, CopyJob* jobs);
  size_t on_park(const RxPacket& packet, Nanos now, CopyJob* jobs);
  size_t on_fallback_message(const RxPacket& packet, Nanos now, CopyJob* jobs);
  void on_poll(const wire::Message& poll, Nanos now);
  void finish_operations(Nanos now);

  Flow flow_;
  Deadlines deadlines_;
  OperationQueue operations_;
  std::optional<aggregator::Fallback> fallback_;
  Sending sending_;
  Recovery recovery_;
  Parking parking_;
  Answers answers_;
  Results results_;
  Prepared prepared_;
};

}  // namespace ina::client
