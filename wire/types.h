// Basic types of the protocol: identities, sequence numbers, data types, operations.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "wire/named.h"
#include "wire/rules.h"

namespace ina {

enum class JobId : uint32_t {};
/// A worker's number in its job; at a switch of a tree: a member's number among its members there.
enum class Rank : uint16_t {};

constexpr uint32_t value(JobId id) {
  return static_cast<uint32_t>(id);
}
constexpr uint32_t value(Rank rank) {
  return static_cast<uint32_t>(rank);
}

/// A WorkerSet (the wire's worker bitmap) is one 64-bit word: the most members of a job at a
/// switch.
inline constexpr uint32_t kMaxWorkers = 64;
/// The most ranks of a job in a tree of switches of two levels.
inline constexpr uint32_t kMaxRanks = kMaxWorkers * kMaxWorkers;

/// The endpoint of a fallback server (ina-psd), or of the switch above in a tree. It is in no
/// WorkerSet: it contributes nothing of its own.
inline constexpr Rank kFallbackRank{64};

/// A fragment's roles, to contribute and to receive, are all workers' or one's: 0, or 1 + its rank
/// (docs/protocol.md, "Roles").
constexpr bool has_role(uint32_t role, Rank rank) {
  return role == 0 || role == 1 + value(rank);
}

/// Number of a fragment within its job: monotonic across operations and epochs, never reused.
/// 64 bits inside; the wire carries the low 32, which each receiver extends (see extend()).
struct Seq {
  uint64_t value = 0;
  friend constexpr auto operator<=>(Seq, Seq) = default;
  constexpr Seq operator+(uint64_t n) const { return {value + n}; }
  /// n must not exceed value: Seq 0 has no predecessor, and the difference would wrap.
  constexpr Seq operator-(uint64_t n) const { return {value - n}; }
  constexpr uint64_t operator-(Seq other) const { return value - other.value; }
  constexpr Seq& operator++() {
    ++value;
    return *this;
  }
  constexpr uint32_t low() const { return static_cast<uint32_t>(value); }
};

/// The sequence number nearest to `reference` whose low 32 bits are `low`. Exact while the true
/// number lies less than 2^31 from the reference, which the window guarantees for honest senders.
/// A number that would be below 0 is taken as the one 2^32 above it, which no window contains.
constexpr Seq extend(uint32_t low, Seq reference) {
  auto delta = static_cast<int32_t>(low - reference.low());
  // The effect of a narrower number: fragments 64 apart look the same.
  if (!std::is_constant_evaluated() && !rule(Rule::kWideKey))
    delta = (delta & 63) - ((delta & 32) << 1);
  if (delta < 0 && reference.value < static_cast<uint64_t>(-static_cast<int64_t>(delta)))
    return {uint64_t{low}};
  return {reference.value + static_cast<uint64_t>(static_cast<int64_t>(delta))};
}

/// The worker that is home to a fragment under Home::kWorkers.
constexpr Rank home_of(Seq seq, uint32_t workers) {
  return Rank{static_cast<uint8_t>(seq.value % workers)};
}

/// Nanoseconds of a monotonic clock. Pure code gets them as a parameter.
using Nanos = int64_t;

/// Where a job's fallback aggregator lives.
enum class Home : uint8_t {
  kWorkers,    ///< sharded over the job's workers: fragment s at rank s mod workers
  kDedicated,  ///< a server of its own (ina-psd)
  kSpill,      ///< in the switch's DRAM, on the lane of the fragment
  /// In the rows of each switch of a tree, or of one alone (aggregator/ascent.h). Nobody chooses
  /// it: jobs of more than kMaxWorkers have it.
  kTree,
};
/// True if what has no slot, or leaves it, stays in the switch, and loads no link.
constexpr bool keeps_in_switch(Home home) {
  return home == Home::kSpill || home == Home::kTree;
}
/// Those that a configuration can name.
inline constexpr Names<Home, 3> kHomeNames = {
    {{"workers", Home::kWorkers}, {"dedicated", Home::kDedicated}, {"spill", Home::kSpill}}};
inline constexpr Names<Home, 4> kAllHomeNames = {{{"workers", Home::kWorkers},
                                                  {"dedicated", Home::kDedicated},
                                                  {"spill", Home::kSpill},
                                                  {"tree", Home::kTree}}};

enum class DType : uint8_t {
  kInt8 = 1,
  kInt32,
  kInt64,
  kFloat32,
  kFloat64,
  kBFloat16,
  kFloat16,
  kUInt8,
  kBool,  ///< a byte, 0 for false; sum and max are or, product and min are and
};
inline constexpr DType kAllDTypes[] = {DType::kInt8,    DType::kInt32,   DType::kInt64,
                                       DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                       DType::kFloat16, DType::kUInt8,   DType::kBool};

enum class Op : uint8_t { kSum = 1, kMin, kMax, kAvg, kProduct, kBand, kBor, kBxor };
inline constexpr Op kAllOps[] = {Op::kSum,     Op::kMin,  Op::kMax, Op::kAvg,
                                 Op::kProduct, Op::kBand, Op::kBor, Op::kBxor};

/// The collective of an operation's fragments; part of its signature.
enum class Collective : uint8_t {
  // Sums: every worker contributes to every fragment.
  kAllReduce = 1,
  kBarrier,
  kReduce,
  kReduceScatter,
  // Moved: one worker contributes to a fragment, the others mark that they have come to it.
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kPermute,  ///< each worker sends to at most one other: also send and receive
};
inline constexpr Collective kLastCollective = Collective::kPermute;
constexpr bool is_moved(Collective c) {
  return c >= Collective::kBroadcast;
}
/// Not all workers get every result: the operation ends with a fragment that closes it
/// (docs/protocol.md, "Closing fragment").
constexpr bool has_closing(Collective c) {
  return c != Collective::kAllReduce && c != Collective::kBarrier && c != Collective::kBroadcast &&
         c != Collective::kAllGather;
}

/// Bytes of one element on the wire; 0 for a value that is no DType.
constexpr uint32_t wire_bytes(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return 1;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

/// Type in which the switch accumulates: 16-bit floats in float32, int8 and uint8 in int32, others
/// as they are.
constexpr DType accumulator_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
    case DType::kFloat16:
      return DType::kFloat32;
    case DType::kInt8:
    case DType::kUInt8:
      return DType::kInt32;
    default:
      return dtype;
  }
}

/// Most elements of one fragment, whose number has 16 bits on the wire: the largest rows have room
/// for more single bytes.
inline constexpr uint32_t kMaxFragmentElements = 1u << 15;

/// Elements of `width` bytes that a fragment has in a row of `slot_bytes`; 0 for width 0.
constexpr uint32_t elements_in_row(uint32_t width, uint32_t slot_bytes) {
  if (width == 0) return 0;
  const uint32_t elements = slot_bytes / width;
  return elements < kMaxFragmentElements ? elements : kMaxFragmentElements;
}

/// Elements of one fragment: as many accumulators as fit a slot's value row. 0 for a value that is
/// no DType, so that a packet not yet validated cannot divide by zero.
constexpr uint32_t elements_per_fragment(DType dtype, uint32_t slot_bytes) {
  return elements_in_row(wire_bytes(accumulator_of(dtype)), slot_bytes);
}
/// Elements of one fragment of a collective: elements that are moved are not added, and fill a row
/// as they are.
constexpr uint32_t elements_per_fragment(Collective collective, DType dtype, uint32_t slot_bytes) {
  if (!is_moved(collective)) return elements_per_fragment(dtype, slot_bytes);
  return elements_in_row(wire_bytes(dtype), slot_bytes);
}

constexpr bool is_valid(DType dtype) {
  return wire_bytes(dtype) != 0;
}
constexpr bool is_float(DType dtype) {
  return dtype >= DType::kFloat32 && dtype <= DType::kFloat16;
}
constexpr bool is_valid(Op op) {
  return op >= Op::kSum && op <= Op::kBxor;
}
constexpr bool is_bitwise(Op op) {
  return op >= Op::kBand && op <= Op::kBxor;
}
constexpr bool is_valid(Collective c) {
  return c >= Collective::kAllReduce && c <= kLastCollective;
}
/// avg is refused for integers: nobody wants a rounded mean. Bitwise operations are refused for
/// floats.
constexpr bool is_valid(DType dtype, Op op) {
  return is_valid(dtype) && is_valid(op) && (op != Op::kAvg || is_float(dtype)) &&
         !(is_bitwise(op) && is_float(dtype));
}

std::string_view name(DType dtype);
std::string_view name(Op op);
std::string_view name(Collective collective);
constexpr std::string_view name(Home home) {
  return name_in(kAllHomeNames, home);
}

}  // namespace ina
