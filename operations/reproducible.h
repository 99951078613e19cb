// Sums and averages of floats with the same bits for every order of arrival, composed of integer
// sums (fixed_point.h has the numbers): all-reduce, reduce and reduce-scatter. Pure; under the
// context's lock.
//
// A tensor is cut into chunks. For each, three operations:
//   E  max, int8: per block of 256 elements the largest exponent, and whether it has a NaN or Inf
//   V  sum, int32: the values in fixed point, scaled by their block's exponent
//   S  bitwise or, int32: of the blocks with a NaN or Inf, their classes; skipped if there is none
// The results of E are the same on all ranks, so the ranks agree on V's scale and S's size. They
// are a Schedule, whose operations have the order E0 E1 V0 S0 E2 V1 S1 E3 ... This order is the
// same on all ranks, and keeps one chunk on its way while another one's exponents are awaited. E's
// size also tells data type and operation apart, so that the switch notices ranks that disagree.
//
// E and S are all-reduces. V is of the caller's collective, with the part of its blocks that lies
// in the chunk, so that each rank receives only its own part. A block of 256 elements begins at the
// same place of the tensor for every division into shares, so the bits are those of an all-reduce.
#pragma once

#include <list>
#include <memory>

#include "operations/executor.h"
#include "operations/fixed_point.h"

namespace ina::client {

/// All reproducible operations of one context.
class Reproducible final : private Executor::Kernels {
 public:
  /// Chunks of a tensor that are under way at a time; each has 512 KiB of scratch memory at most,
  /// so that the chunks under way stay in the cache of their core.
  static constexpr uint64_t kSlots = 4;
  static constexpr uint64_t kMaxChunkElements = 64 * 1024;
  static constexpr uint64_t kMinChunkElements = 16 * 1024;

  /// The job's shape, as far as the operations depend on it.
  struct Job {
    uint32_t workers = 1;
    Rank rank{};
    uint32_t slot_bytes = 0;
  };
  /// `executor` must outlive it.
  Reproducible(Executor& executor, const Job& job);

  /// True if an operation's result depends on the order of arrival and can be made not to.
  static bool handles(const OperationSpec& spec);
  /// Elements of a chunk of a tensor: the same on all ranks.
  static uint64_t chunk_elements(uint64_t elements);

  /// Starts one, which handles() and which has elements. As Executor::start(); the result is the
  /// executor's to release.
  Operation* start(const OperationSpec& spec, Nanos now);

  /// Chunks in which finite values made Inf.
  uint64_t overflows() const { return overflows_; }

 private:
  enum Kernel : uint32_t { kExponents, kValues, kFinish };
  /// Made once for tensors of a size, type, operation and collective.
  struct Plan {
    uint64_t elements = 0;
    uint64_t tag = 0;
    Collective collective{};
    std::shared_ptr<const scheduler::BlockTable> blocks;
    std::shared_ptr<const scheduler::Schedule> schedule;
  };
  static constexpr size_t kMostPlans = 64;
  /// A chunk of the tensor, and its scratch memory.
  struct Chunk {
    size_t first;  ///< element of the tensor
    size_t elements;
    int8_t* exponents;  ///< E: the blocks' exponents, then their flags
    int8_t* specials;   ///< the flags
    int32_t* fixed;     ///< V
    int32_t* classes;   ///< S
  };

  std::shared_ptr<const scheduler::Schedule> schedule_for(const OperationSpec& spec);
  static Chunk chunk_of(const Executor::Frame& frame, uint64_t index);
  void run(const scheduler::Compute& compute, const Executor::Frame& frame) override;
  static void prepare_exponents(const Executor::Frame& frame, const Chunk& chunk);
  void prepare_values(const Executor::Frame& frame, const Chunk& chunk);
  void finish(const Executor::Frame& frame, const Chunk& chunk);
  void finish_part(const Executor::Frame& frame, const Chunk& chunk, uint64_t first,
                   uint64_t elements, std::byte* values);

  Executor& executor_;
  const Job job_;
  const uint32_t headroom_;
  std::list<Plan> plans_;  ///< the last used first
  uint64_t overflows_ = 0;
};

}  // namespace ina::client
