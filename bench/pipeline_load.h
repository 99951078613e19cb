// A lane's work, prepared in memory: jobs, packets and an aggregator, for bench/pipeline_bench.cc.
//
// Order of the packets: a round is a window of all jobs, first all fragments from rank 0 of each
// job, then from rank 1, and so on. A row is touched again only after all others of the round, so
// that the stated place of the slots (cache or memory) holds for each packet. With groups of g, the
// ranks come g at a time, one packet of each in turn: so a NIC delivers what g workers send at the
// same time. Job ids are chosen so
// that no two fragments of a round share a slot. In the worst case two jobs share all slots
// instead. The priority rises with each pass over them, so that each packet preempts the other
// job's sum.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "aggregator/serve.h"
#include "common/fd.h"
#include "io/port.h"
#include "wire/header_check.h"

namespace ina::bench {

enum class Place { kL2, kL3, kDram };
const char* name(Place place);

/// Sizes of this machine's caches, or usual ones where it does not say.
size_t l2_bytes();
size_t l3_bytes();

struct LoadConfig {
  uint32_t payload_bytes = 1024;
  uint32_t fan_in = 8;
  DType dtype = DType::kFloat32;
  scheduler::PolicyKind policy = scheduler::PolicyKind::kEsa;
  Place slots_in = Place::kL2;
  Place packets_in = Place::kL3;
  uint32_t jobs = 1;  ///< 2 in the worst case
  bool worst_case = false;
  uint32_t slots = 0;  ///< 0: as many as fill slots_in
  uint32_t ways = 1;   ///< slots to choose from; not in the worst case
  uint32_t group =
      1;  ///< packets to the same fragment in a burst; divides fan_in. Not in the worst case
  uint32_t lanes = 1;
  uint32_t lane = 0;

  uint32_t elements() const { return payload_bytes / wire_bytes(dtype); }
  uint32_t slot_bytes() const { return elements() * wire_bytes(accumulator_of(dtype)); }
};

/// A worker writes one for each packet, the switch for each message: as on the shm port.
struct alignas(64) Descriptor {
  wire::Message message;
  uint64_t payload_offset = 0;
  uint32_t payload_bytes = 0;
  std::atomic<uint32_t> turn{0};
};
static_assert(sizeof(Descriptor) == 64);

/// A packet's place in a round.
struct Step {
  uint32_t rank = 0;  ///< the first of its group
  uint32_t job = 0;
  uint32_t fragment = 0;
  uint32_t member = 0;  ///< of the group
};

/// Takes prepared packets from the workers' memory, as the shm port does, and writes descriptors
/// into their receive rings. Payloads are only referred to. Prepared packets are used again and
/// again: their sequence numbers and priorities are written once they have been copied.
class MemoryPort {
 public:
  struct alignas(64) Endpoint {
    io::JobIndex job = 0;
    Rank rank{};
    // Sending side of the worker.
    const Descriptor* tx_ring = nullptr;
    const std::byte* worker_base = nullptr;
    size_t worker_bytes = 0;
    uint64_t tx_index = 0;
    uint32_t slot_bytes = 0;
    bool tx_taken = false;
    std::atomic<uint64_t>* tx_read = nullptr;
    wire::HeaderCheck header{};
    // Receiving side.
    Descriptor* rx_ring = nullptr;
    uint64_t rx_index = 0;
    uint64_t rx_read_seen = 0;
    const std::byte* results = nullptr;
    size_t results_bytes = 0;
  };

  size_t rx_burst(std::span<io::RxPacket> burst);
  void rx_release();
  bool tx(io::EndpointIndex endpoint, const wire::Message& message,
          std::span<const std::byte> payload);
  size_t tx_to_all(std::span<const io::EndpointIndex> to, const wire::Message& message,
                   std::span<const std::byte> payload);
  void tx_flush() {}
  const io::PortCounters& counters() const { return counters_; }

  /// Hands out the packets of `ranks` ranks, from `first_rank` on, of round `round`.
  void start(uint64_t round, uint32_t first_rank, uint32_t ranks);

  std::vector<Endpoint> endpoints;  ///< [job][rank], rank fan_in being the job's fallback
  uint32_t jobs = 0;
  uint32_t ranks_each = 0;  ///< endpoints of a job
  uint32_t window = 0;      ///< fragments of a round and job
  uint32_t tx_depth = 0;
  uint32_t rx_depth = 0;
  uint32_t lanes = 1;
  uint32_t lane = 0;
  uint32_t group = 1;
  bool rising_priority = false;

 private:
  bool take(Endpoint& endpoint, uint32_t seq, io::RxPacket& packet);
  static void write(Endpoint& endpoint, uint32_t depth, const wire::Message& message,
                    std::span<const std::byte> payload);

  uint64_t first_seq_ = 0;
  Step next_;
  uint32_t end_rank_ = 0;
  std::vector<uint32_t> taken_from_;
  io::PortCounters counters_;
};

/// Sizes that follow from a LoadConfig.
struct LoadSizes {
  explicit LoadSizes(const LoadConfig& config);

  uint32_t slot_bytes;
  uint32_t slots;
  uint32_t window;   ///< fragments of one job in this lane
  uint32_t senders;  ///< of a job: workers whose packets come in a round
  uint32_t tx_depth;
  uint32_t rx_depth;
  size_t result_bytes;  ///< of a job's ring
};

/// The memory of workers and switch, in huge pages.
class LoadMemory {
 public:
  /// `row_bytes`: of all slots.
  LoadMemory(const LoadConfig& config, const LoadSizes& sizes, size_t row_bytes);

 private:
  template <class T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }
  std::byte* take_bytes(size_t bytes);

  Mapping map_;
  size_t used_ = 0;

 public:
  std::byte* const rows;
  std::byte* const results;    ///< [job], LoadSizes::result_bytes each
  WorkerSet* const seen;       ///< [job][fragment of two windows]
  std::byte* const payloads;   ///< [job][rank][place in the ring]
  Descriptor* const tx_rings;  ///< [endpoint][place in the ring]
  Descriptor* const rx_rings;
  std::atomic<uint64_t>* const positions;  ///< [endpoint], a cache line each
};

class Load {
 public:
  explicit Load(const LoadConfig& config);
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  enum class Send { kDescriptors, kNothing };
  struct Times {
    Nanos contributions_ns = 0;
    Nanos acknowledgements_ns = 0;  ///< handling of the fallback's results, of fcfs
  };
  /// The whole path. Without Send::kDescriptors, messages are counted but not written.
  Times run_path(uint64_t rounds, Send send);
  /// The bare kernels over the same memory in the same order: one add a packet, or with kGroups one
  /// pass a group, which goes past the row where it is a whole fragment.
  template <bool kPrefetch, bool kGroups>
  Nanos run_floor(uint64_t rounds);

  /// Contributions that run_path() times in a round.
  uint64_t packets_per_round() const;
  /// Messages to all workers, or to the fallback, because of them.
  uint64_t emissions_per_round() const;
  uint64_t acknowledgements_per_round() const;
  /// Makes all results wrong, so that check() finds those that are not written after this.
  void spoil_results();

  /// Compares counters with the packets run so far. Compares every element that the last rounds
  /// left in the result ring, or that one more round sends out, with the right sum. Returns the
  /// error, or nothing.
  std::string check();

 private:
  struct Writer;
  struct Counter;

  const scheduler::PolicyTraits& policy() const { return scheduler::traits(config_.policy); }
  bool has_fallback() const { return config_.worst_case || policy().held_until_acknowledged; }
  aggregator::Shape shape() const;
  void choose_ids();
  void add_jobs();
  void write_packets();
  template <class OnEmission>
  void serve(OnEmission&& on_emission);
  template <class OnEmission>
  Times run_round(OnEmission&& on_emission);
  uint32_t slot_of(uint32_t job, uint64_t seq) const;
  std::byte* result_row(uint32_t job, uint64_t seq) const;
  uint64_t seq_of(uint64_t round, uint32_t fragment) const {
    return config_.lane + uint64_t{config_.lanes} * (round * sizes_.window + fragment);
  }
  bool is_sum(const std::byte* values, uint32_t job, uint64_t seq, WorkerSet ranks,
              DType dtype) const;
  /// Preemptions in the worst case's first pass: all but the first job's packets preempt already.
  uint64_t untimed_preemptions() const {
    return config_.worst_case ? uint64_t{sizes_.window} * (config_.jobs - 1) : 0;
  }
  std::string check_counters() const;
  std::string check_ring(uint64_t first_round, uint64_t end_round) const;
  std::string check_round();

  const LoadConfig config_;
  const LoadSizes sizes_;
  LoadMemory memory_;
  std::vector<JobId> ids_;
  aggregator::Aggregator aggregator_;
  MemoryPort port_;
  std::vector<io::EndpointIndex> workers_;  ///< endpoints of workers: [job][rank]
  std::vector<io::RxPacket> packets_;
  std::vector<aggregator::Verdict> verdicts_;
  uint64_t rounds_ = 0;
  bool mismatch_ = false;
  uint64_t unsent_ = 0;
};

}  // namespace ina::bench
