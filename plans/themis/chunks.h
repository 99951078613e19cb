// How collectives are cut into chunks, and a chunk's stages for a given order of dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/themis/plan.h"

namespace ina::themis {

/// A chunk's way. The reduce-scatter of an all-reduce takes `order`, its all-gather the reverse.
struct Way {
  std::vector<uint8_t> order{};  ///< of the dimensions, each once
  uint32_t in_network = 0;       ///< a bit for each dimension whose switch aggregates the chunk
  bool operator==(const Way&) const = default;
};

/// The baseline's order: dimension 1 to D, and for an all-gather D to 1.
std::vector<uint8_t> baseline_order(const Topology& topology, Collective collective);

/// The first phase of a collective; of an all-reduce, its first half.
Phase first_phase(Collective collective);

/// Bytes of each chunk, at most `chunks` of them. All are multiples of participants *
/// element_bytes, so that every share is a whole number of elements: the last one is padded, and
/// may be smaller.
std::vector<uint64_t> cut(uint64_t bytes, uint32_t chunks, uint64_t participants,
                          uint32_t element_bytes);

/// Bytes that each participant holds of a chunk before its first stage.
uint64_t held_at_first(const Topology& topology, Collective collective, uint64_t chunk_bytes);

/// The chunk with its stages. Where the last dimension of an all-reduce's reduce-scatter
/// aggregates, its two halves are one all-reduce.
Chunk make_chunk(const Topology& topology, uint32_t request, Collective collective,
                 uint64_t chunk_bytes, const Way& way);

}  // namespace ina::themis
