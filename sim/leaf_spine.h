// Racks whose switches add, under one switch that adds what they have: jobs of up to 4096 ranks,
// and for comparison the same network with racks that only forward, and with all-reduces by
// leaders. Objects, links and jobs as in a cluster.
#pragma once

#include "sim/cluster.h"

namespace ina::sim {

enum class Sums : uint8_t {
  kTree,     ///< made by the leaves' switches, and from these by the root
  kFlat,     ///< made by the root; the leaves' switches forward
  kLeaders,  ///< of a leaf, by its switch, for its leader; of the leaders, by the root
};

struct LeafSpineSpec {
  uint32_t leaves = 0;
  uint32_t workers = 16;  ///< at each leaf
  /// The uplink of a leaf has the rate of all its workers' links, divided by this.
  double oversubscription = 1;
  Sums sums = Sums::kTree;
  uint32_t chunk_fragments = 16;  ///< kLeaders: of a step
};

/// `cluster`: the jobs, whose workers are those of the leaves, and all else but the racks; the
/// first rack's link is that of each worker. Throws std::invalid_argument with a sentence if the
/// specification makes no sense.
Outcome run_leaf_spine(const ClusterSpec& cluster, const LeafSpineSpec& leaf_spine,
                       Progress progress = nullptr);

}  // namespace ina::sim
