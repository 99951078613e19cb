// One rank's part in carrying a plan out: a Schedule (plans/schedule.h) whose operations name
// their dimension as channel, in the order that the plan fixes for each. Pure.
//
// A dimension's channel has the ranks that differ in that dimension's coordinate alone. A rank's
// number has the first dimension's coordinate as its fastest digit.
//
// A chunk of an all-reduce is a range of the vector. Each reduce-scatter leaves coordinate i with
// part i of the range, the all-gathers take the way back, and all happens in the caller's buffers.
// The part of a padded chunk beyond the vector's end is cut off: ranks of a channel have the same
// range, so they cut alike.
//
// Reduce-scatter, all-gather and all-to-all have a block for each rank, and a chunk has the
// same columns of each: a strip of every block. So rank r has block r at the end, in any order
// of its chunks' dimensions. Strips lie apart in the caller's buffers, and in the order of a
// chunk's own dimensions in the scratch memory, where the parts that later stages need are
// neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "plans/schedule.h"
#include "plans/themis/plan.h"

namespace ina::themis {

/// The elements of a collective's vector.
struct Elements {
  DType dtype = DType::kInt32;
  Op op = Op::kSum;  ///< of sums
  bool operator==(const Elements&) const = default;
};

/// The properties of its rank and channels that an execution depends on.
struct Job {
  uint32_t rank = 0;  ///< among all participants
  /// The slot sizes of each dimension's channel, and then of the channel of all ranks.
  std::vector<uint32_t> slot_bytes{};
  std::vector<Elements> elements{};  ///< of each collective of the plan
};

/// Where a rank stands in each dimension.
std::vector<uint32_t> coordinates_of(const Topology& topology, uint32_t rank);

/// The part of one rank. Does not change once it is made.
class Execution {
 public:
  /// Kernels of the schedule.
  enum Kernel : uint32_t {
    kTell,   ///< put the plan's hash to hash_offset() of the scratch memory
    kAgree,  ///< compare the hashes of all ranks, one after the other in the scratch memory
    kKeep,   ///< keep(argument)
  };

  /// `plan`: of collectives whose bytes are whole elements, and whole blocks where each rank has
  /// one; no chunks if there are no bytes. The n-th collective is in the caller's n-th pair of
  /// buffers. INA_ERR_INVALID: it is not such a plan, or its order is not one that can be kept.
  /// Throws std::bad_alloc.
  static Result<std::unique_ptr<const Execution>> make(std::shared_ptr<const Plan> plan, Job job);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const scheduler::Schedule>& schedule() const { return schedule_; }
  /// The channel of all ranks; those of dimensions are numbered as these.
  uint32_t channel_of_all() const {
    return static_cast<uint32_t>(plan_->topology.dimensions.size());
  }
  uint64_t hash() const { return hash_; }
  /// Where this rank's hash is told, in bytes.
  size_t hash_offset() const { return job_.rank * sizeof(uint64_t); }
  /// The pair of buffers that keep(argument) is to be given.
  uint32_t pair_of(uint64_t argument) const { return kept_[argument].request; }
  /// Moves the part of an all-to-all that stays with this rank to its next place.
  void keep(uint64_t argument, const scheduler::BufferPair& pair, std::byte* scratch) const;

 private:
  using Stage = scheduler::Schedule::Stage;
  /// Strips of a chunk, one for each rank.
  struct Strips {
    scheduler::Buffer::Place place{};
    uint64_t first = 0;   ///< element of strip 0
    uint64_t stride = 0;  ///< elements from strip to strip
  };
  /// A chunk on its way.
  struct Chunk {
    uint32_t request = 0;
    uint64_t first = 0;    ///< of an all-reduce: element of the vector; otherwise column of a block
    uint64_t length = 0;   ///< elements, or columns
    uint64_t scratch = 0;  ///< its own, in elements
    std::vector<uint8_t> digits{};   ///< dimensions, in the order of strips in the scratch memory
    std::vector<uint64_t> begins{};  ///< in elements, of the part that is held after each stage
    std::vector<uint64_t> held{};    ///< its elements
    std::vector<Stage> last{};       ///< the next stage waits for their end
    std::vector<Stage> received{};   ///< the next stage waits for their receipt
    std::vector<Stage> moves{};      ///< those of an all-to-all so far
  };
  struct Kept {
    Strips from, to;
    uint64_t elements = 0;
    uint32_t dimension = 0;
    uint32_t request = 0;
  };

  Execution(std::shared_ptr<const Plan> plan, Job job);
  Result<void> check() const;
  Result<void> check(uint32_t request) const;
  Result<std::vector<OperationId>> sequence() const;
  void agree();
  void place_chunks();
  void place(const themis::Chunk& planned, Chunk& chunk);
  void add(const OperationId& id);
  void add(const scheduler::Operate& operation, Chunk& chunk);
  void add_all_reduce_stage(const OperationId& id, uint64_t begin, uint64_t elements, Chunk& chunk);
  void add_reduce_scatter(const OperationId& id, Chunk& chunk);
  void add_all_gather(const OperationId& id, Chunk& chunk);
  void add_all_to_all(const OperationId& id, Chunk& chunk);
  uint64_t strips_in_turn(const OperationId& id, uint64_t elements, uint64_t strips) const;
  void operate(const OperationId& id, std::vector<scheduler::Block> blocks, scheduler::Buffer from,
               scheduler::Buffer to, Chunk& chunk);
  Strips strips_before(uint32_t stage, const Chunk& chunk) const;

  Collective collective_of(uint32_t request) const { return plan_->requests[request].collective; }
  uint64_t width(uint32_t request) const { return wire_bytes(job_.elements[request].dtype); }
  /// The elements of a request's whole vector.
  uint64_t elements(uint32_t request) const {
    return plan_->requests[request].bytes / width(request);
  }
  uint32_t size_of(uint32_t dimension) const { return plan_->topology.dimensions[dimension].size; }
  uint64_t stages_of(const OperationId& id) const { return plan_->chunks[id.chunk].stages.size(); }
  scheduler::Buffer at(scheduler::Buffer::Place place, uint64_t element, const Chunk& chunk) const;
  uint32_t rank_of(uint64_t strip, const Chunk& chunk) const;
  uint64_t step_of(uint32_t dimension) const;

  const std::shared_ptr<const Plan> plan_;
  const Job job_;
  const uint64_t hash_;
  const uint32_t ranks_;
  const std::vector<uint32_t> coordinates_;
  uint64_t scratch_bytes_ = 0;  ///< of the hashes and the chunks placed so far
  std::vector<Chunk> chunks_;   ///< while it is made
  Stage agreed_ = 0;
  std::vector<Kept> kept_;
  scheduler::Schedule made_;
  std::shared_ptr<const scheduler::Schedule> schedule_;
};

}  // namespace ina::themis
