// A network of dimensions. Each participant is at one coordinate of each. Within a dimension it
// talks to the participants that differ from it in that coordinate alone (Rashidi et al., "Themis",
// ISCA 2022, section 2).
//
// All times are whole picoseconds and all rates whole bits a second. No float decides anything, so
// every participant computes the same plan, with any compiler and processor.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ina::themis {

using Picos = int64_t;

constexpr uint64_t kBitsPerByte = 8;

/// How a dimension's participants exchange data.
enum class DimensionKind : uint8_t {
  kRing,             ///< each with its neighbours
  kDirect,           ///< each with all others at once (fully connected)
  kHalvingDoubling,  ///< by a switch, in pairs of doubling distance
  kIna,              ///< by a switch that aggregates; also point to point
};

/// Names as files have them, in the order of the enumerators.
inline constexpr std::array<std::string_view, 4> kDimensionKindNames = {"ring", "direct",
                                                                        "halving-doubling", "ina"};

constexpr std::string_view name(DimensionKind kind) {
  return kDimensionKindNames[static_cast<size_t>(kind)];
}

struct Dimension {
  std::string name{};
  DimensionKind kind = DimensionKind::kRing;
  uint32_t size = 2;          ///< participants
  uint64_t bits_per_s = 0;    ///< of one participant, each way
  Picos step_latency_ps = 0;  ///< of one step; kIna: from host to switch to host
  // kIna only.
  uint64_t aggregation_bits_per_s = 0;  ///< that the switch adds up, of all; 0: the ports' rate
  /// The kind of exchange for chunks that do not go through the aggregation. Never kIna.
  DimensionKind point_to_point = DimensionKind::kHalvingDoubling;

  /// True if the switch can aggregate.
  bool aggregates() const { return kind == DimensionKind::kIna; }
  /// How chunks travel that are not aggregated on their way.
  DimensionKind algorithm() const { return aggregates() ? point_to_point : kind; }
  /// A participant's rate through an aggregating switch: the port's rate, or its share of the
  /// capacity.
  uint64_t in_network_bits_per_s() const;
  bool operator==(const Dimension&) const = default;
};

inline constexpr size_t kMostDimensions = 6;
inline constexpr uint64_t kMostParticipants = 1 << 20;
/// Between them all times fit into 64 bits.
inline constexpr uint64_t kLeastBitsPerS = 10'000'000;
inline constexpr uint64_t kMostBitsPerS = 1'000'000'000'000'000;
inline constexpr Picos kMostStepLatencyPs = 1'000'000'000'000;  // a second

/// The window of a group, where nothing else is said: 4 MiB of fragments of 8 KiB.
inline constexpr uint32_t kDefaultWindow = 512;

struct Topology {
  std::string name{};
  std::vector<Dimension> dimensions{};  ///< in the baseline's order
  /// Times are those of libina's operations through its switches: with frames, the switch's delay
  /// and closing fragments (cost.h).
  bool carried = false;
  /// With `carried`: fragments that all ranks of a group together have under way in a dimension.
  /// 0: any number.
  uint32_t window = 0;

  uint64_t participants() const;
  /// The sum of all dimensions' rates.
  uint64_t bits_per_s() const;
  bool operator==(const Topology&) const = default;
};

/// A sentence that says what is wrong with dimension `index` alone; empty if nothing is.
std::string problem_of(const Dimension& dimension);
/// INA_ERR_INVALID with a sentence that names the dimension.
Result<void> validate(const Topology& topology);

/// The topology with its switches (halving-doubling) able to aggregate, each at its ports' rate.
Topology with_aggregating_switches(Topology topology);

/// The topology with an aggregating switch in each dimension: the product carries all kinds out
/// like this, and `carried` says so. The window is kDefaultWindow. Data that is only moved goes
/// straight to its receivers.
Topology carried_by_switches(Topology topology);

}  // namespace ina::themis
