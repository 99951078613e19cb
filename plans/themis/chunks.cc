#include "plans/themis/chunks.h"

#include <algorithm>
#include <numeric>

#include "plans/themis/cost.h"

namespace ina::themis {
namespace {

bool is_in_network(const Topology& topology, const Way& way, uint8_t dimension, Phase phase) {
  return (way.in_network >> dimension & 1) != 0 &&
         can_aggregate(topology.dimensions[dimension], phase);
}

/// Adds a stage to those of a chunk of which `held_bytes` are held, and brings these up to date.
void add_stage(const Topology& topology, const Way& way, uint8_t dimension, Phase phase,
               uint64_t& held_bytes, std::vector<Stage>& stages, uint64_t piece_bytes = 0) {
  stages.push_back(make_stage(topology, dimension, phase,
                              is_in_network(topology, way, dimension, phase), held_bytes,
                              piece_bytes));
  held_bytes = held_after(stages.back(), topology.dimensions[dimension]);
}

void add_all_reduce(const Topology& topology, const Way& way, uint64_t held_bytes,
                    std::vector<Stage>& stages) {
  const uint8_t last = way.order.back();
  const bool is_fused = is_in_network(topology, way, last, Phase::kAllReduce);
  for (const uint8_t dimension : way.order)
    if (dimension != last)
      add_stage(topology, way, dimension, Phase::kReduceScatter, held_bytes, stages);
  if (is_fused) {
    add_stage(topology, way, last, Phase::kAllReduce, held_bytes, stages);
  } else {
    add_stage(topology, way, last, Phase::kReduceScatter, held_bytes, stages);
    add_stage(topology, way, last, Phase::kAllGather, held_bytes, stages);
  }
  for (auto dimension = way.order.rbegin() + 1; dimension != way.order.rend(); ++dimension)
    add_stage(topology, way, *dimension, Phase::kAllGather, held_bytes, stages);
}

}  // namespace

std::vector<uint8_t> baseline_order(const Topology& topology, Collective collective) {
  std::vector<uint8_t> order(topology.dimensions.size());
  std::iota(order.begin(), order.end(), uint8_t{0});
  if (collective == Collective::kAllGather) std::ranges::reverse(order);
  return order;
}

Phase first_phase(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return Phase::kAllGather;
    case Collective::kAllToAll:
      return Phase::kAllToAll;
    default:
      return Phase::kReduceScatter;
  }
}

std::vector<uint64_t> cut(uint64_t bytes, uint32_t chunks, uint64_t participants,
                          uint32_t element_bytes) {
  const uint64_t granule_bytes = participants * element_bytes;
  uint64_t granules = (bytes + granule_bytes - 1) / granule_bytes;
  const uint64_t each = (granules + chunks - 1) / chunks;
  std::vector<uint64_t> sizes;
  for (; granules > 0; granules -= std::min(granules, each))
    sizes.push_back(std::min(granules, each) * granule_bytes);
  return sizes;
}

uint64_t held_at_first(const Topology& topology, Collective collective, uint64_t chunk_bytes) {
  return collective == Collective::kAllGather ? chunk_bytes / topology.participants() : chunk_bytes;
}

Chunk make_chunk(const Topology& topology, uint32_t request, Collective collective,
                 uint64_t chunk_bytes, const Way& way) {
  Chunk chunk{.request = request, .bytes = chunk_bytes};
  chunk.stages.reserve(2 * way.order.size());
  uint64_t held_bytes = held_at_first(topology, collective, chunk_bytes);
  if (collective == Collective::kAllReduce) {
    add_all_reduce(topology, way, held_bytes, chunk.stages);
    return chunk;
  }
  // In the caller's buffer the chunk is a strip of each participant's block.
  const size_t strips_at = collective == Collective::kReduceScatter ? 0 : way.order.size() - 1;
  for (const uint8_t dimension : way.order)
    add_stage(topology, way, dimension, first_phase(collective), held_bytes, chunk.stages,
              chunk.stages.size() == strips_at ? chunk_bytes / topology.participants() : 0);
  return chunk;
}

}  // namespace ina::themis
