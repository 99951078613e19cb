// The fallback aggregator (the parameter server of ATP and ESA), as a pure state machine with three
// homes: sharded over a job's workers, in a server of its own, or in the switch's DRAM. It adds the
// partial sums that had to leave the switch. It asks the workers about a fragment whose result one
// of them misses. docs/reliability.md explains the protocol rule by rule.
//
// No timers. Workers ask (QUERY), and the fallback answers with a result, or asks all (POLL). A
// worker that it has bound takes this fragment's result from no other source.
#pragma once

#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/fixed_queue.h"
#include "aggregator/kernels.h"
#include "wire/message.h"

namespace ina::aggregator {

struct FallbackConfig {
  uint32_t workers = 0;
  uint32_t window = 0;  ///< W, fragments over all lanes
  uint32_t slot_bytes = 0;
  uint32_t lanes = 1;
  /// The fallback serves the fragments s with s mod shards == shard.
  uint32_t shards = 1;
  uint32_t shard = 0;
  uint32_t instance = 0;  ///< number of this life; a restarted fallback gets a higher one
  uint32_t epoch = 0;     ///< of the job
  uint32_t min_epoch =
      0;      ///< partial sums of older epochs are refused: a predecessor may have them
  Seq start;  ///< fragments below this may be complete already
  /// Bind the workers as soon as all have sent: the static policy has no partial sums to wait for.
  bool bind_at_once = false;
};

/// Written by the thread that uses the object.
struct FallbackCounters {
  uint64_t parts = 0;    ///< partial sums merged
  uint64_t raws = 0;     ///< raw contributions merged, sent again by their workers
  uint64_t queries = 0;  ///< workers that missed a result
  uint64_t reminds = 0;
  uint64_t polls = 0;
  uint64_t decided = 0;          ///< fragments decided here
  uint64_t decided_by_have = 0;  ///< of these, with a result that a worker already had
  uint64_t results = 0;          ///< RESULTs sent, repetitions included
  uint64_t dropped = 0;          ///< messages too old, of another instance or epoch, or overlapping
};

/// Contributions that cannot be added because their operations differ.
struct FallbackMismatch {
  WorkerSet first = {};  ///< workers on one side
  WorkerSet other = {};  ///< and on the other
  wire::Signature first_signature;
  wire::Signature other_signature;
};

class Fallback {
 public:
  explicit Fallback(const FallbackConfig& config);

  /// Takes in a PART, QUERY, SENT, NOTYET, HAVE or DEFER; others are ignored. The message is
  /// validated and its rank is the sender's by its binding. The payload is needed during the call
  /// only.
  void on_message(const wire::Message& message, const std::byte* payload);
  /// All workers have all results up to `seq` (rule C2: one of them has the result of seq + W).
  void raise_floor(Seq seq);

  /// Fills `packets` with messages to be sent through the switch: RESULT, REMIND, POLL. Their
  /// payloads stay until the next call of any member. The first `count` have been sent: sent().
  size_t prepare(std::span<wire::Outgoing> packets);
  void sent(size_t count);
  /// The result of a fragment that is decided here, as prepare() gives it out. False: it is not.
  bool result_of(Seq seq, wire::Outgoing& packet);
  bool has_output() const { return queue_.size() != 0; }

  /// The job goes on in another epoch.
  void set_epoch(uint32_t epoch) { config_.epoch = epoch; }
  /// FallbackConfig::bind_at_once: the switch has another policy now.
  void set_bind_at_once(bool on) { config_.bind_at_once = on; }
  /// The job has lost its result buffers: results go to the ring from now on.
  void forget_targets();
  const FallbackCounters& counters() const { return counters_; }
  const FallbackConfig& config() const { return config_; }
  /// Set once, when workers turn out to disagree.
  const std::optional<FallbackMismatch>& mismatch() const { return mismatch_; }
  /// Bytes of memory that a fallback of this configuration takes.
  static size_t memory_bytes(const FallbackConfig& config);

 private:
  enum Output : uint8_t { kResult, kRemind, kPollStatus, kPollBind, kOutputs };
  struct Entry {
    Seq seq{};
    WorkerSet bits = {};      ///< contributions in the sum
    WorkerSet sent = {};      ///< workers that say they have sent
    WorkerSet asked = {};     ///< workers that have asked since the last POLL status
    WorkerSet deferred = {};  ///< workers that are bound to this result
    wire::Signature signature;
    uint16_t elements = 0;
    uint16_t flags = 0;
    uint16_t parts = 0;
    uint8_t queued = 0;  ///< bit o: Output o is in the queue
    bool used = false;
    bool decided = false;
    bool has_sum = false;    ///< or the payload that is to be moved
    bool moves = false;      ///< one worker's payload; the bits of others are marks
    bool parked = false;     ///< its parts left the array because somebody is slow
    bool congested = false;  ///< one of the parts met congestion: its workers are to hear of it
  };
  struct Queued {
    uint32_t entry;
    Output output;
    Seq seq;
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  uint32_t ring_size() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t index_of(Seq seq) const {
    return static_cast<uint32_t>(seq.value / config_.shards % ring_size());
  }
  std::byte* row(uint32_t index) { return rows_.get() + size_t{index} * config_.slot_bytes; }
  Entry* find(Seq seq);
  Entry* find_or_create(Seq seq);
  Entry* find_answered(Seq seq, const wire::Message& message);
  WorkerSet sender_of(const wire::Message& message) const;
  void on_part(Seq seq, const wire::Message& message, const std::byte* payload);
  void on_query(Seq seq, WorkerSet sender);
  void on_defer(Entry& entry, const wire::Message& message, const std::byte* payload);
  void on_have(Seq seq, const wire::Message& message, const std::byte* payload);
  void drop() { ++counters_.dropped; }
  void note_sent(Entry& entry, WorkerSet sender);
  bool merge(Entry& entry, const wire::Message& message, const std::byte* payload,
             WorkerSet workers);
  void merge_move(Entry& entry, const wire::Message& message, const std::byte* payload);
  bool is_foreign(const Entry& entry, const wire::Message& message, WorkerSet workers);
  bool disagree(const Entry& entry, const wire::Message& message, WorkerSet workers);
  bool is_complete(const Entry& entry) const {
    return entry.bits == full_ && (entry.has_sum || !entry.moves);
  }
  void decide(Entry& entry, uint32_t index);
  void enqueue(Entry& entry, Output output);
  bool describe(const Queued& queued, wire::Outgoing& packet);

  FallbackConfig config_;
  WorkerSet full_;
  Seq top_end_;  ///< fragments below top_end_ - 2W are known to everyone
  std::vector<Entry> entries_;
  std::unique_ptr<std::byte[], Free> rows_;  ///< the sums, then the results in their place
  FixedQueue<Queued> queue_;
  FallbackCounters counters_;
  std::optional<FallbackMismatch> mismatch_;
};

}  // namespace ina::aggregator
