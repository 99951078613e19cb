// The protocol of one worker, without I/O: cuts operations into fragments, keeps the window,
// decides what to send and when to send again, and puts results where they belong. Pure: time and
// packets come in, packets and copies go out. One thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "client/src/transport.h"
#include "wire/message.h"

namespace ina::client {

struct EngineConfig {
  Rank rank{};
  uint32_t epoch = 0;
  uint32_t window = 0;  ///< W: fragments a worker may run ahead of its oldest incomplete one
  uint32_t slot_bytes = 0;
  uint32_t lanes = 1;
  Nanos rto_min_ns = 100'000'000;  ///< no fragment is sent again sooner than this
  Nanos rto_max_ns = 2'000'000'000;
  bool fixed_slots = true;    ///< policy static: a fragment without result is sent again
  bool home_workers = false;  ///< the fallback runs in the workers
};

struct OperationSpec {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;  ///< may equal send
  uint64_t elements = 0;
  DType dtype = DType::kInt8;
  Op op = Op::kSum;
  Collective collective = Collective::kAllReduce;
};

/// An operation under way. Owned by the engine; valid until release().
struct Operation {
  OperationSpec spec;
  uint32_t number = 0;
  uint32_t elements_per_fragment = 0;
  Seq first_seq;
  uint64_t fragments = 0;  ///< at least 1: an operation of no elements still synchronises
  uint64_t sent = 0;
  uint64_t complete = 0;
  Nanos started = 0;
  std::atomic<bool> done{false};  ///< set by the driving thread, read by any
};

/// Bytes to move from a received payload into a user's buffer.
struct CopyJob {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};

struct EngineCounters {
  uint64_t operations = 0;
  uint64_t fragments_sent = 0;
  uint64_t fragments_resent = 0;
  uint64_t results = 0;
  uint64_t results_ignored = 0;  ///< duplicates and strays
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t overflows = 0;
};

class Engine {
 public:
  static constexpr size_t kBurst = 64;

  explicit Engine(const EngineConfig& config);

  /// Starts an operation. All workers must submit the same operations in the same order.
  Operation* submit(const OperationSpec& spec, Nanos now);
  /// The caller has no more use for a finished (or failed) operation.
  void release(Operation* operation);

  /// Fills `packets` with what may be sent now: first what is overdue, then new fragments as the
  /// window allows. The transport takes a prefix of `count`, told by sent().
  size_t prepare(std::span<TxPacket> packets, Nanos now);
  void sent(size_t count, Nanos now);

  /// Takes in what was received. `copier.copy(std::span<const CopyJob>)` moves the results; it must
  /// be finished when it returns, because only then is a result consumed (rule C1).
  template <class Copier>
  void on_packets(std::span<const RxPacket> packets, Nanos now, Copier& copier) {
    CopyJob jobs[kBurst];
    while (!packets.empty()) {
      const auto burst = packets.first(std::min(packets.size(), kBurst));
      packets = packets.subspan(burst.size());
      size_t count = 0;
      for (const RxPacket& packet : burst)
        if (accept(packet, now, jobs[count]) && jobs[count].bytes != 0) ++count;
      if (count != 0) copier.copy(std::span<const CopyJob>(jobs, count));
      finish_operations();
    }
  }

  /// The job has another epoch; nothing else has changed for this worker.
  void set_epoch(uint32_t epoch, Nanos) { config_.epoch = std::max(config_.epoch, epoch); }

  /// Operations that are not complete.
  size_t running() const { return running_.size(); }
  /// When prepare() should be called again at the latest; kNever if nothing is under way.
  Nanos next_deadline() const { return next_deadline_; }
  static constexpr Nanos kNever = INT64_MAX;
  const EngineCounters& counters() const { return counters_; }
  const EngineConfig& config() const { return config_; }
  /// Oldest operation that is not complete, or nullptr.
  const Operation* oldest() const { return running_.empty() ? nullptr : running_.front(); }
  Seq low() const { return low_; }

 private:
  enum class State : uint8_t { kUnsent, kSent, kOverdue, kDone };
  /// One fragment of the window.
  struct Fragment {
    Operation* operation = nullptr;
    Nanos sent_at = 0;
    Nanos deadline = 0;
    uint8_t times_sent = 0;
    State state = State::kUnsent;
  };

  Fragment& fragment(Seq seq) { return ring_[seq.value % ring_.size()]; }
  void describe(Seq seq, Operation& operation, TxPacket& packet) const;
  bool accept(const RxPacket& packet, Nanos now, CopyJob& job);
  void finish_operations();
  void find_overdue(Nanos now);
  void sample_rtt(Nanos rtt);
  Nanos timeout_after(uint8_t times_sent) const;

  EngineConfig config_;
  std::vector<Fragment> ring_;  ///< [low_, next_) at seq mod W
  Seq low_;                     ///< oldest fragment without a result
  Seq next_;                    ///< next fragment to be sent
  Seq planned_;                 ///< first fragment of the next operation
  uint32_t operations_submitted_ = 0;
  std::vector<Seq> overdue_;
  size_t prepared_overdue_ = 0;
  std::deque<Operation*> running_;  ///< in order of submission
  std::deque<Operation*> to_send_;  ///< those with fragments not sent yet
  std::vector<std::unique_ptr<Operation>> storage_;
  std::vector<Operation*> spare_;
  std::vector<Operation*> finished_;
  Nanos next_deadline_ = kNever;
  Nanos srtt_ = 0;  ///< smoothed round trip, RFC 6298; 0: no sample yet
  Nanos rttvar_ = 0;
  EngineCounters counters_;
};

}  // namespace ina::client
