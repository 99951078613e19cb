#include "sim/plan_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace ina::sim {
namespace {

constexpr uint64_t kMbit = 1'000'000;

class Draw {
 public:
  Draw(uint64_t seed, uint64_t index) : random_(seed * 1'000'003 + index) {}
  uint64_t even(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random_);
  }
  /// As often between 1 and 10 as between 10 and 100.
  uint64_t by_magnitude(uint64_t least, uint64_t most) {
    std::uniform_real_distribution<double> exponent(std::log(least), std::log(most));
    return std::clamp(static_cast<uint64_t>(std::exp(exponent(random_))), least, most);
  }

 private:
  std::mt19937_64 random_;
};

themis::Topology drawn_topology(Draw& draw) {
  themis::Topology topology;
  for (uint64_t left = draw.even(1, 4); left > 0; --left) {
    themis::Dimension dimension{.name = "dimension",
                                .kind = themis::DimensionKind::kRing,
                                .size = static_cast<uint32_t>(draw.even(2, 8))};
    while (topology.participants() * dimension.size > kMaxWorkers) --dimension.size;
    if (dimension.size < 2) break;
    dimension.bits_per_s = draw.by_magnitude(10'000, 400'000) * kMbit;
    dimension.step_latency_ps = static_cast<themis::Picos>(draw.by_magnitude(500, 50'000)) * 1000;
    topology.dimensions.push_back(dimension);
  }
  return themis::carried_by_switches(std::move(topology));
}

}  // namespace

PlanSpec drawn_point(uint64_t seed, uint64_t index, const PointLimits& limits) {
  Draw draw(seed, index);
  PlanSpec spec;
  spec.topology = drawn_topology(draw);
  spec.collective = static_cast<themis::Collective>(index % themis::kCollectiveNames.size());
  spec.bytes = draw.by_magnitude(
      limits.least_bytes,
      std::min(limits.most_bytes, limits.most_work / spec.topology.participants()));
  spec.options.chunks = static_cast<uint32_t>(draw.by_magnitude(1, 64));
  spec.options.scheduler = static_cast<themis::Scheduler>(draw.even(0, 2));
  spec.options.evaluations = 300;
  spec.most_rounds = 32;
  return spec;
}

std::string describe(const PlanSpec& spec) {
  std::string sizes, links;
  for (const themis::Dimension& dimension : spec.topology.dimensions) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : "x", dimension.size);
    links += fmt::format("{}{:.4g} Gb/s {:.4g} us", links.empty() ? "" : ", ",
                         static_cast<double>(dimension.bits_per_s) * 1e-9,
                         static_cast<double>(dimension.step_latency_ps) * 1e-6);
  }
  return fmt::format("{} of {} bytes in {} chunks by {} over {}: {}", themis::name(spec.collective),
                     spec.bytes, spec.options.chunks, themis::name(spec.options.scheduler), sizes,
                     links);
}

}  // namespace ina::sim
