// One shard of the aggregator array: the slots of one lane, and what happens to each packet that
// reaches them. Pure: it sends nothing itself but says, per packet, what became of it and
// what is to be sent. One thread uses a shard; nothing is shared with other shards.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/kernels.h"
#include "aggregator/slot.h"
#include "io/port.h"
#include "scheduler/policy.h"
#include "scheduler/static_pool.h"
#include "wire/message.h"

namespace ina::aggregator {

struct Shape {
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;  ///< width of a value row
  uint32_t max_jobs = 0;
};

class Fallback;

/// A job as the conductor admitted it. The result ring outlives the job's stay in the shard.
struct JobSpec {
  JobId id{};
  uint32_t epoch = 0;
  uint32_t workers = 0;  ///< 1..64
  uint32_t window = 0;   ///< W in fragments, over all lanes; a multiple of the lanes
  scheduler::StaticPool pool;
  std::byte* results = nullptr;  ///< ring of 2W rows of slot_bytes; row = seq mod 2W
  Bitmap* seen = nullptr;        ///< ring of seen_words() zeros; shared slots only
  Seq start;                     ///< fragments below this are complete
  scheduler::Quota quota;        ///< of this lane; shared slots only
  uint8_t priority_max = 255;
  Home home = Home::kWorkers;
  uint32_t instance = 0;      ///< of the fallback
  Fallback* spill = nullptr;  ///< the job's fallback if its home is this lane

  static size_t seen_words(uint32_t window, uint32_t lanes) { return 2 * size_t{window} / lanes; }
};

/// What became of a packet (I5: exactly one of these) and what is to be sent because of it.
struct Verdict {
  enum class Fate : uint8_t { kAbsorbed, kForwarded, kDropped };
  enum class Emit : uint8_t { kNothing, kToSender, kToAll };

  Fate fate = Fate::kDropped;
  Emit emit = Emit::kNothing;
  DropReason reason{};
  // Emission: a message whose payload lies in the job's result ring.
  wire::Message message;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  // For reason kMismatch: the other side.
  Rank first_rank{};
  wire::Signature first_signature;
};

/// Written by the shard's thread only.
struct Counters {
  uint64_t packets = 0;
  uint64_t absorbed = 0;  ///< contributions accepted; bytes below are their payload
  uint64_t absorbed_bytes = 0;
  uint64_t results = 0;        ///< fragments completed
  uint64_t results_again = 0;  ///< results answered from the slot
  uint64_t contributions_in_results = 0;
  uint64_t contributions_discarded = 0;  ///< held by slots of a job that ended
  uint64_t slots_used = 0;               ///< slots that hold contributions now
  uint64_t slots_used_peak = 0;
  DropCounters drops;

  uint64_t dropped() const {
    uint64_t sum = 0;
    for (const uint64_t count : drops.count) sum += count;
    return sum;
  }
};

/// The oldest fragment that waits, and for whom.
struct Waiting {
  Seq seq;
  Bitmap missing = 0;
  wire::Signature signature;
};

class Aggregator {
 public:
  static constexpr size_t kMaxBurst = 512;

  /// Bytes of value-row memory that `shape` needs, at an alignment of 64.
  static size_t row_memory_bytes(const Shape& shape) {
    return size_t{shape.slots} * shape.slot_bytes;
  }

  /// `rows`: row_memory_bytes() bytes, 64-byte aligned, owned by the caller (hugepages, if there
  /// are any).
  Aggregator(const Shape& shape, std::span<std::byte> rows);

  /// `index` < max_jobs and not in use; the conductor gives indices out.
  void add_job(JobIndex index, const JobSpec& spec);
  /// Sweeps the job's slots. Its packets are dropped from now on (kBadJob).
  void remove_job(JobIndex index);
  /// The job goes on in another epoch, with another instance of its fallback: sweeps its slots.
  void new_epoch(JobIndex index, uint32_t epoch, uint32_t instance, Fallback* spill);
  /// Its packets are dropped from now on (kJobAborted); the slots stay until remove_job.
  void abort_job(JobIndex index);

  /// Decides a burst (at most kMaxBurst packets, validated, bound) in order: verdicts[i] for
  /// packets[i]. Payloads must stay readable during the call only.
  void on_burst(std::span<const io::RxPacket> packets, Nanos now, std::span<Verdict> verdicts);

  /// Oldest incomplete fragment of a job. Looks at all its slots: not for the packet path.
  std::optional<Waiting> oldest_waiting(JobIndex index) const;

  /// 1 + the highest fragment of a job that is known to be complete.
  Seq results_end(JobIndex index) const {
    return jobs_[index].top - uint64_t{jobs_[index].spec.window};
  }
  /// Workers of a job that is present.
  uint32_t workers(JobIndex index) const { return jobs_[index].spec.workers; }
  const Counters& counters() const { return counters_; }
  const Shape& shape() const { return shape_; }

 private:
  struct Job {
    JobSpec spec;
    Bitmap full = 0;
    Seq top;  ///< all fragments the window allows are below this: highest completed + 1 + W
    bool present = false;
    bool aborted = false;
  };

  void on_packet(const io::RxPacket& packet, Nanos now, Verdict& verdict);
  void on_grad(Job& job, const io::RxPacket& packet, Nanos now, Verdict& verdict);
  void contribute(Job& job, Slot& slot, const io::RxPacket& packet, Verdict& verdict);
  void install(const Job& job, Slot& slot, Seq seq, const io::RxPacket& packet, Nanos now);
  void emit_result(const Job& job, const Slot& slot, Verdict::Emit emit, Verdict& verdict) const;
  void drop(Verdict& verdict, DropReason reason);

  Seq seq_of(const Job& job, const io::RxPacket& packet) const {
    return extend(packet.message.seq, job.top);
  }
  std::byte* row_of(const Slot& slot) { return rows_ + size_t{slot.row} * shape_.slot_bytes; }
  std::byte* result_row(const Job& job, Seq seq) const {
    return job.spec.results + seq.value % (2 * uint64_t{job.spec.window}) * shape_.slot_bytes;
  }

  Shape shape_;
  std::byte* rows_;
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;
  Counters counters_;
};

}  // namespace ina::aggregator
