// Reductions of floats that integers cannot carry, with the same bits for every order of arrival:
// products, and sums and averages of float64. All-reduce, reduce and reduce-scatter. Pure; under
// the context's lock.
//
// The switch only moves bytes. Each rank owns a share of the tensor. It gets all ranks'
// contributions to its share, reduces them in the order of their ranks by the switch's own kernels,
// and passes the result on to its receivers. The bits are those of a native operation whose
// contributions arrive in that order. A tensor is cut into chunks, each a part of every share; for
// each chunk:
//   X  all-to-all: the contributions to each rank's part, into a row each of scratch memory
//   G  all-gather, or gather to the root: the reduced parts. A reduce-scatter has none
// The operations have the order X0 X1 X2 G0 X3 G1 X4 ..., so that links and switch are busy while a
// part is reduced. A tensor of one fragment at most is one chunk with another form: all ranks, or
// the root, get all contributions by an all-gather (a gather) and reduce them, in one round trip.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "operations/executor.h"

namespace ina::client {

/// All such operations of one context.
class RankOrder final : private Executor::Kernels {
 public:
  /// Chunks of a tensor that are under way at a time, and the scratch memory of each, about.
  static constexpr uint64_t kSlots = 4;
  static constexpr uint64_t kChunkBytes = uint64_t{512} << 10;
  /// So many times as much for jobs of more than kMaxWorkers ranks: an all-to-all has a fragment
  /// for each pair of ranks, of which full ones are fewer.
  static constexpr uint64_t kManyRanksFactor = 8;

  /// The job's shape, as far as a plan depends on it.
  struct Job {
    uint32_t workers = 1;
    Rank rank{};
    uint32_t slot_bytes = 0;
    uint64_t chunk_bytes = kChunkBytes;  ///< alike on all ranks; of a job of few
  };
  /// `executor` must outlive it.
  RankOrder(Executor& executor, const Job& job);

  /// True if an operation's result depends on the order of arrival, and is made here not to. A
  /// reduction of two contributions has one order.
  static bool handles(const OperationSpec& spec, uint32_t workers);

  /// Starts one, which handles() and which has elements. A reduce-scatter has at most one block for
  /// each receiver. As Executor::start(); the result is the executor's to release.
  Operation* start(const OperationSpec& spec, Nanos now);

  /// The schedule of what handles(), as this rank runs it. Made once, and kept for the next ones.
  std::shared_ptr<const scheduler::Schedule> schedule_for(const OperationSpec& spec);

  /// Chunks in which a result of 16 bits that this rank received is Inf, as the switch reports for
  /// its own sums.
  uint64_t overflows() const { return overflows_; }

 private:
  enum Kernel : uint32_t { kReduceAll, kReducePart, kCheck };
  /// A rank's share of the tensor, in elements.
  struct Share {
    uint64_t first = 0;
    uint64_t elements = 0;
    uint64_t receive_offset = 0;  ///< in its receivers' `recv`
  };
  class Shares;
  class Planner;
  /// Made once for tensors of a size, type, operation and collective.
  struct Plan {
    uint64_t elements = 0;
    DType dtype{};
    Op op{};
    Collective collective{};
    std::shared_ptr<const scheduler::BlockTable> blocks;
    std::shared_ptr<const scheduler::Schedule> schedule;
  };
  static constexpr size_t kMostPlans = 64;

  void run(const scheduler::Compute& compute, const Executor::Frame& frame) override;
  void reduce_all(const Executor::Frame& frame, const Shares& shares);
  void reduce_part(const Executor::Frame& frame, const Shares& shares, uint64_t chunk);
  void reduce(const Executor::Frame& frame, uint64_t first, uint64_t count, std::byte* rows,
              uint64_t row_bytes, std::byte* result);
  void check(DType dtype, const std::byte* results, uint64_t count);

  Executor& executor_;
  const Job job_;
  std::list<Plan> plans_;                   ///< the last used first
  std::vector<const std::byte*> payloads_;  ///< by rank; for one reduction
  uint64_t overflows_ = 0;
};

}  // namespace ina::client
