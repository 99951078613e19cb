// The collectives that can be measured: which elements a rank has and gets, and the call of libina.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ina/ina.h"

namespace ina::perf {

enum class Collective : uint8_t {
  kAllreduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kPermute,
  kSendReceive,
  kBarrier,
};

inline constexpr Collective kAllCollectives[] = {
    Collective::kAllreduce,   Collective::kReduce,    Collective::kReduceScatter,
    Collective::kBroadcast,   Collective::kAllGather, Collective::kGather,
    Collective::kScatter,     Collective::kAllToAll,  Collective::kPermute,
    Collective::kSendReceive, Collective::kBarrier,
};

/// "reduce-scatter".
std::string_view name(Collective collective);

/// True if the collective adds up.
constexpr bool is_sum(Collective collective) {
  return collective <= Collective::kReduceScatter;
}

/// True if the whole vector has a block for each rank.
bool has_blocks(Collective collective);

/// Elements of the whole vector (docs/collectives.md) that `bytes` of it have room for: a multiple
/// of the ranks where each has a block.
uint64_t whole_elements(Collective collective, uint64_t bytes, size_t width, int ranks);

/// A part of a rank's result.
struct Segment {
  static constexpr int kResult = -1;  ///< the sum of all ranks' inputs

  uint64_t to = 0;     ///< first element in the rank's result
  uint64_t count = 0;  ///< elements
  int source = 0;      ///< rank whose input it is, or kResult
  uint64_t from = 0;   ///< first element of that input
};

/// One rank's part in an operation.
struct Shape {
  uint64_t send = 0;  ///< elements that it has
  uint64_t recv = 0;  ///< elements of its result buffer
  std::vector<Segment> segments;
  bool to_all = false;  ///< all get the same, so that it may go to a result buffer
};

/// `whole`: of whole_elements(); `root`: of a reduce, broadcast, gather or scatter.
Shape shape_of(Collective collective, uint64_t whole, int rank, int ranks, int root = 0);

/// Largest bandwidth that a rank's link needs, by that of the algorithm (as nccl-tests define
/// them).
double bus_factor(Collective collective, int ranks);

struct Call {
  Collective collective{};
  uint64_t whole = 0;  ///< elements
  ina_dtype dtype{};
  ina_op op{};  ///< of sums
  int root = 0;
  bool direct = false;  ///< `recv` is a result buffer
  int64_t timeout_us = 0;
};

/// Makes the call of libina that waits; returns its status. The root of a broadcast has its result
/// in `send`, but where the call is direct.
int call(ina_context* context, const Call& what, const void* send, void* recv);

}  // namespace ina::perf
