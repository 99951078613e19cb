#include "plans/themis/topology.h"

#include <algorithm>
#include <bit>

namespace ina::themis {

uint64_t Dimension::in_network_bits_per_s() const {
  if (aggregation_bits_per_s == 0) return bits_per_s;
  return std::min(bits_per_s, aggregation_bits_per_s / size);
}

uint64_t Topology::participants() const {
  uint64_t product = 1;
  for (const Dimension& dimension : dimensions) product *= dimension.size;
  return product;
}

uint64_t Topology::bits_per_s() const {
  uint64_t sum = 0;
  for (const Dimension& dimension : dimensions) sum += dimension.bits_per_s;
  return sum;
}

std::string problem_of(const Dimension& dimension) {
  if (dimension.size < 2 || dimension.size > kMostParticipants)
    return "a dimension has 2 to " + std::to_string(kMostParticipants) + " participants, not " +
           std::to_string(dimension.size);
  if (dimension.algorithm() == DimensionKind::kIna)
    return "point to point is ring, direct or halving-doubling, not ina";
  if (dimension.algorithm() == DimensionKind::kHalvingDoubling &&
      !std::has_single_bit(dimension.size))
    return "halving-doubling needs a power of two, not " + std::to_string(dimension.size) +
           " participants; ring and direct take any number";
  if (dimension.bits_per_s < kLeastBitsPerS || dimension.bits_per_s > kMostBitsPerS)
    return "the rate is not in 0.01..1000000 Gb/s";
  if (dimension.step_latency_ps < 0 || dimension.step_latency_ps > kMostStepLatencyPs)
    return "the step latency is not in 0..1000000000 ns";
  if (dimension.aggregation_bits_per_s != 0 && !dimension.aggregates())
    return "only a dimension of kind ina has a capacity of aggregation";
  if (dimension.aggregates() && dimension.in_network_bits_per_s() < kLeastBitsPerS)
    return "the capacity of aggregation leaves each participant less than 0.01 Gb/s";
  return {};
}

Result<void> validate(const Topology& topology) {
  const size_t count = topology.dimensions.size();
  if (count == 0 || count > kMostDimensions)
    return fail(INA_ERR_INVALID, "a topology has 1 to " + std::to_string(kMostDimensions) +
                                     " dimensions, not " + std::to_string(count));
  uint64_t participants = 1;
  for (size_t i = 0; i < count; ++i) {
    const Dimension& dimension = topology.dimensions[i];
    if (std::string problem = problem_of(dimension); !problem.empty())
      return fail(INA_ERR_INVALID,
                  "dimension " + std::to_string(i + 1) + " (" + dimension.name + "): " + problem);
    participants *= dimension.size;
    if (participants > kMostParticipants)
      return fail(INA_ERR_INVALID, "a topology has at most " + std::to_string(kMostParticipants) +
                                       " participants; dimensions 1 to " + std::to_string(i + 1) +
                                       " have more");
  }
  return {};
}

Topology with_aggregating_switches(Topology topology) {
  for (Dimension& dimension : topology.dimensions) {
    if (dimension.kind != DimensionKind::kHalvingDoubling) continue;
    // Names that say the kind, as files without names have them.
    const std::string_view kind = themis::name(dimension.kind);
    if (dimension.name.starts_with(kind))
      dimension.name.replace(0, kind.size(), themis::name(DimensionKind::kIna));
    dimension.kind = DimensionKind::kIna;
    dimension.point_to_point = DimensionKind::kHalvingDoubling;
  }
  return topology;
}

Topology carried_by_switches(Topology topology) {
  for (Dimension& dimension : topology.dimensions) {
    dimension.kind = DimensionKind::kIna;
    dimension.point_to_point = DimensionKind::kDirect;
  }
  topology.carried = true;
  topology.window = kDefaultWindow;
  return topology;
}

}  // namespace ina::themis
