// A collective as its caller asks for it: the meaning of its arguments, their checks, and the table
// of blocks that follows from them. All-reduce and barrier are not among them.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/short_vector.h"
#include "operations/counted_moves.h"
#include "plans/collectives.h"

namespace ina::client {

/// A number for each rank. Those of a job of a single switch need no memory of the heap.
template <class T>
using ByRank = ShortVector<T, kMaxWorkers>;

/// Counts and displacements are in elements, by rank: as many as there are workers, if not said
/// otherwise, and none where the collective has no such argument.
struct CollectiveCall {
  using Numbers = ByRank<uint64_t>;

  std::string_view function;  ///< that was called
  Collective collective{};
  const void* send = nullptr;
  void* recv = nullptr;
  int dtype_number = 0;
  int op_number = 0;  ///< of sums
  DType dtype{};      ///< known once it was checked; and the operation
  Op op = Op::kSum;
  int root = 0;
  /// Counts by rank. All-to-all: those that are sent. Permute: the same for all ranks. Reduce,
  /// broadcast, and a send and receive have one.
  Numbers counts;
  Numbers displacements;
  /// Only all-to-all, and a send and receive, have these; the latter has one count.
  Numbers receive_counts, receive_displacements;
  /// Each rank knows its own counts alone (CountedMoves).
  bool counted = false;
  ByRank<int32_t> destinations;  ///< of permute
  /// Only permute, and a send and receive, have these; permute knows them once it was checked.
  int32_t destination = scheduler::kNobody, source = scheduler::kNobody;

  /// Each of `workers` has this count, and the blocks lie one after the other. Throws
  /// std::bad_alloc.
  void set_even(uint32_t workers, uint64_t count);
};

/// The regions of `send` and `recv` from which a rank sends and to which it receives.
struct CallRegions {
  struct Region {
    uint64_t offset = 0;  ///< in elements
    uint64_t count = 0;
  };
  CallRegions(const CollectiveCall& call, uint32_t workers, uint32_t rank);

  ByRank<Region> send, recv;
  /// Indices of the regions of `send` and `recv` that may be the same memory, a rank's own block,
  /// if the collective has one.
  size_t own_send = 0, own_receive = 0;
  bool has_own = true;
  /// A block for itself, which nobody else sends: it is to be copied.
  bool copies_own = false;

 private:
  void add_send(uint64_t offset, uint64_t count) { send.push_back({offset, count}); }
  void add_receive(uint64_t offset, uint64_t count) { recv.push_back({offset, count}); }
  void add_shares(const CollectiveCall& call, uint32_t workers, uint32_t rank);
  void add_all_pairs(const CollectiveCall& call, uint32_t workers, uint32_t rank);
  void add_pair(int32_t destination, uint64_t sent, int32_t source, uint64_t received,
                uint32_t rank);
};

/// Fills in the fields that follow from the rest. INA_ERR_INVALID, with a sentence that names
/// function, argument and value.
Result<void> check(CollectiveCall& call, uint32_t workers, uint32_t rank);

/// Tables of a context's collectives that are not counted. Any thread.
class CallTables {
 public:
  /// `call` must have passed check().
  std::shared_ptr<const scheduler::BlockTable> table_for(const CollectiveCall& call,
                                                         uint32_t workers, uint32_t slot_bytes);

 private:
  std::mutex mutex_;
  std::vector<uint64_t> key_;  ///< kept for its memory
  scheduler::TableCache tables_;
};

}  // namespace ina::client
