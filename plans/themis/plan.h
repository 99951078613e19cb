// The parts of a plan: collectives, cut into chunks. Each chunk passes the dimensions in stages,
// and the plan fixes the order of stages in each dimension.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "plans/themis/topology.h"

namespace ina::themis {

enum class Collective : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll };

inline constexpr std::array<std::string_view, 4> kCollectiveNames = {"all-reduce", "reduce-scatter",
                                                                     "all-gather", "all-to-all"};

constexpr std::string_view name(Collective collective) {
  return kCollectiveNames[static_cast<size_t>(collective)];
}

/// A collective of all participants.
struct Request {
  Collective collective = Collective::kAllReduce;
  /// The size of the whole vector that each participant has: before an all-reduce, a reduce-scatter
  /// and an all-to-all, and after an all-gather.
  uint64_t bytes = 0;
  Picos issue_ps = 0;          ///< when it may begin
  uint32_t element_bytes = 0;  ///< indivisible; 0: PlanOptions::element_bytes
  bool operator==(const Request&) const = default;
};

/// The work in a dimension.
enum class Phase : uint8_t {
  kReduceScatter,
  kAllGather,
  kAllReduce,  ///< both at once, by an aggregating switch
  kAllToAll,
};

inline constexpr std::array<std::string_view, 4> kPhaseNames = {"reduce-scatter", "all-gather",
                                                                "all-reduce", "all-to-all"};

constexpr std::string_view name(Phase phase) {
  return kPhaseNames[static_cast<size_t>(phase)];
}

/// One operation of a chunk in one dimension. Bytes and times are of each participant.
struct Stage {
  uint8_t dimension = 0;
  Phase phase = Phase::kReduceScatter;
  bool in_network = false;  ///< by an aggregating switch
  uint64_t held_bytes = 0;  ///< before it
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  Picos tx_ps = 0;  ///< that it keeps the sending side of its link busy
  Picos rx_ps = 0;
  Picos latency_ps = 0;  ///< until the last byte is there; the link is free meanwhile
  // The fields below count in carried topologies only.
  uint64_t piece_bytes = 0;  ///< that lie together, and have frames of their own; 0: all of a part
  Picos first_ps = 0;        ///< of sending, until the first byte can be received
  Picos close_ps = 0;        ///< after the last byte, until all participants know that all have all
  uint64_t fragments = 0;    ///< of all ranks of a group together, but for the closing one
  Picos fragment_ps = 0;     ///< from one of them to the next
  bool operator==(const Stage&) const = default;
};

/// Bytes of a participant after `stage`.
uint64_t held_after(const Stage& stage, const Dimension& dimension);

struct Chunk {
  uint32_t request = 0;
  uint64_t bytes = 0;  ///< of the whole vector, with padding
  std::vector<Stage> stages{};
  bool operator==(const Chunk&) const = default;
};

/// A stage of a chunk.
struct OperationId {
  uint32_t chunk = 0;
  uint32_t stage = 0;
  bool operator==(const OperationId&) const = default;
};

struct Plan {
  Topology topology;
  std::vector<Request> requests;
  std::vector<Chunk> chunks;
  /// For each dimension all its operations, in the order in which they begin. Participants that
  /// keep it cannot wait for each other in a circle.
  std::vector<std::vector<OperationId>> order;
  bool operator==(const Plan&) const = default;
};

/// One operation as it was simulated. Times from the start of the plan.
struct Operation {
  OperationId id{};
  Picos ready_ps = 0;  ///< its chunk has come so far
  Picos tx_start_ps = 0;
  Picos tx_end_ps = 0;
  Picos rx_start_ps = 0;
  Picos rx_end_ps = 0;
  Picos end_ps = 0;  ///< the next stage may begin
  bool operator==(const Operation&) const = default;
};

struct Timeline {
  /// For each dimension its operations in the order in which they begin.
  std::vector<std::vector<Operation>> dimensions;
  std::vector<Picos> request_end_ps;
  Picos end_ps = 0;
  bool operator==(const Timeline&) const = default;
};

/// The load of each participant in one dimension over a whole plan.
struct Load {
  uint64_t tx_bytes = 0;
  uint64_t rx_bytes = 0;
  Picos tx_ps = 0;
  Picos rx_ps = 0;
};

/// For each dimension.
std::vector<Load> loads_of(const Plan& plan);
/// Bytes that each participant sends in all dimensions.
uint64_t tx_bytes_of(const Plan& plan);
/// The least time in which links that never wait could send that: bytes / rate of all dimensions.
Picos ideal_ps(const Plan& plan);

/// A fingerprint of all that the participants must agree on: topology (without names), requests,
/// stages and order. FNV-1a, 64 bits, over these numbers as 8 bytes each, the lowest first:
///
///   1 (version of this list)
///   dimensions; of each: kind, size, bits_per_s, step_latency_ps, aggregation_bits_per_s,
///     point_to_point
///   requests; of each: collective, bytes, issue_ps
///   chunks; of each: request, bytes, stages; of each: dimension, phase, in_network, held_bytes
///   for each dimension: operations; of each: chunk, stage
/// Lists begin with their length, enumerators count from 0. It tells accidents, not attacks.
uint64_t hash_of(const Plan& plan);

}  // namespace ina::themis
