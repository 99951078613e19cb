// The transfers that follow from the layouts alone: permutations and direct exchanges.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/redistribution/layout.h"

namespace ina::redistribution {

/// For each rank the rank whose tile it takes, itself where it has that tile already. Each rank
/// sends to one other at most. Both layouts have tiles of the same shape.
std::vector<uint32_t> permutation(const Mesh& mesh, const Layout& from, const Layout& to);

/// The rank from which `receiver` takes a part of the tile at `parts`, one index a dimension. Of
/// the ranks that hold it, this is the one with the receiver's coordinates on all axes that `from`
/// does not use. So no rank asks another for a part that it has, and replicas share the work.
uint32_t holder(const Mesh& mesh, const Layout& from, const std::vector<uint64_t>& parts,
                uint32_t receiver);

/// The load of the busiest rank.
struct Load {
  uint64_t sent_elements = 0;
  uint64_t received_elements = 0;
  uint32_t messages = 0;  ///< sent or received, whichever are more
};

/// The load where every rank gets each part of its target tile from holder(). Exact.
Load exchange_load(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to);

}  // namespace ina::redistribution
