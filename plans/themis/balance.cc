#include "plans/themis/balance.h"

#include <algorithm>
#include <utility>

#include "plans/themis/cost.h"

namespace ina::themis {
namespace {

/// Loads that differ by less than this part of a chunk are even (section 4.3 of the paper).
constexpr uint64_t kEvenPart = 16;

}  // namespace

Balancer::Balancer(const Topology& topology, InNetwork in_network)
    : topology_(topology), in_network_(in_network), loads_(topology.dimensions.size()) {}

void Balancer::begin(Collective collective, bool carry_loads) {
  collective_ = collective;
  for (size_t d = 0; d < loads_.size(); ++d) {
    const Dimension& dimension = topology_.dimensions[d];
    const Phase first = first_phase(collective);
    const bool in_network = in_network_ == InNetwork::kAlways && can_aggregate(dimension, first);
    Picos fixed_ps = latency_ps(dimension, first, in_network);
    if (collective == Collective::kAllReduce)
      fixed_ps += latency_ps(dimension, Phase::kAllGather, in_network);
    if (!carry_loads) loads_[d] = {};
    loads_[d].tx_ps += fixed_ps;
    loads_[d].rx_ps += fixed_ps;
  }
}

Picos Balancer::load_ps(size_t dimension) const {
  return std::max(loads_[dimension].tx_ps, loads_[dimension].rx_ps);
}

Way Balancer::next(uint64_t chunk_bytes) {
  return next_in_order(chunk_bytes,
                       order_of_loads(held_at_first(topology_, collective_, chunk_bytes)));
}

Way Balancer::next_in_order(uint64_t chunk_bytes, std::vector<uint8_t> order) {
  Way way{.order = std::move(order)};
  uint64_t held_bytes = held_at_first(topology_, collective_, chunk_bytes);
  for (const uint8_t d : way.order) {
    const bool is_last = d == way.order.back();
    const bool in_network = prefers_network(d, is_last, held_bytes);
    if (in_network) way.in_network |= 1u << d;
    const Cost cost = cost_of(d, in_network, is_last, held_bytes);
    loads_[d].tx_ps += cost.tx_ps;
    loads_[d].rx_ps += cost.rx_ps;
    if (collective_ == Collective::kAllGather)
      held_bytes *= topology_.dimensions[d].size;
    else if (collective_ != Collective::kAllToAll)
      held_bytes /= topology_.dimensions[d].size;
  }
  return way;
}

std::vector<uint8_t> Balancer::order_of_loads(uint64_t held_bytes) const {
  std::vector<uint8_t> order = baseline_order(topology_, Collective::kAllReduce);
  if (is_even(held_bytes)) return baseline_order(topology_, collective_);
  std::ranges::stable_sort(order, {}, [this](uint8_t d) { return load_ps(d); });
  if (collective_ == Collective::kAllGather) std::ranges::reverse(order);
  return order;
}

bool Balancer::is_even(uint64_t held_bytes) const {
  size_t least = 0, most = 0;
  for (size_t d = 1; d < loads_.size(); ++d) {
    if (load_ps(d) < load_ps(least)) least = d;
    if (load_ps(d) > load_ps(most)) most = d;
  }
  const Cost part = cost_of(static_cast<uint8_t>(least), in_network_ == InNetwork::kAlways, false,
                            held_bytes / kEvenPart);
  return load_ps(most) - load_ps(least) < std::max(part.tx_ps, part.rx_ps);
}

bool Balancer::prefers_network(uint8_t dimension, bool is_last, uint64_t held_bytes) const {
  if (in_network_ == InNetwork::kNever ||
      !can_aggregate(topology_.dimensions[dimension], first_phase(collective_)))
    return false;
  if (in_network_ == InNetwork::kAlways) return true;
  const auto load_with = [&](bool in_network) {
    const Cost cost = cost_of(dimension, in_network, is_last, held_bytes);
    return std::max(loads_[dimension].tx_ps + cost.tx_ps, loads_[dimension].rx_ps + cost.rx_ps);
  };
  return load_with(true) < load_with(false);
}

Balancer::Cost Balancer::cost_of(uint8_t dimension, bool in_network, bool is_last,
                                 uint64_t held_bytes) const {
  const Dimension& own = topology_.dimensions[dimension];
  const auto stage = [&](Phase phase, uint64_t held) {
    return make_stage(topology_, dimension, phase, in_network && can_aggregate(own, phase), held);
  };
  if (collective_ != Collective::kAllReduce) {
    const Stage only = stage(first_phase(collective_), held_bytes);
    return {only.tx_ps, only.rx_ps};
  }
  if (is_last && in_network && own.aggregates()) {
    const Stage fused = stage(Phase::kAllReduce, held_bytes);
    return {fused.tx_ps / 2, fused.rx_ps / 2};
  }
  const Stage first = stage(Phase::kReduceScatter, held_bytes);
  const Stage second = stage(Phase::kAllGather, held_bytes / own.size);
  return {(first.tx_ps + second.tx_ps) / 2, (first.rx_ps + second.rx_ps) / 2};
}

}  // namespace ina::themis
