// Carries plans out on buffers in memory, rank by rank, and watches: the reference with which plans
// are proven and an executor can be compared.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/redistribution/plan.h"

namespace ina::redistribution {

/// A rank's tile in row-major order. An element's value stands for the element, of any size.
using Tile = std::vector<uint32_t>;

/// The measurements of a plan that was carried out.
struct Observation {
  std::vector<uint64_t> sent_bytes;  ///< by rank, to other ranks
  uint64_t peak_bytes = 0;           ///< high-water mark of a rank's buffers, of all ranks
  uint64_t largest_tile_bytes = 0;  ///< of any rank at any time; of a piece where there are several
  uint64_t elements_checked = 0;    ///< on all ranks
  uint64_t wrong_elements = 0;

  uint64_t most_sent_bytes() const;
};

/// Moves tiles (one a rank) from the source layout to the target layout, as the plan's steps say:
/// by slices, concatenations and exchanges within groups, not by global indices. Error: tiles that
/// are not as many or as large as the problem says.
Expected<std::vector<Tile>> interpret(const Plan& plan, std::vector<Tile> tiles,
                                      Observation& observation);

/// Carries the plan out with the global index of every element as its value, and checks each
/// element on each rank. Error: an array of more than 2^32 elements.
Expected<Observation> verify(const Plan& plan);

/// A rank's tile of an array whose elements are their own row-major indices.
Tile index_tile(const Mesh& mesh, const Layout& layout, const Shape& shape, uint32_t rank);

}  // namespace ina::redistribution
