#include "plans/redistribution/baselines.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "plans/redistribution/realise.h"

namespace ina::redistribution {
namespace {

/// All-to-alls between dimensions, if the multiset of cuts is the same in both layouts. Each moves
/// as much as its two dimensions have too much and too little.
std::optional<std::vector<ShapeMove>> exchange_pattern(const Problem& problem, Splits splits,
                                                       const Splits& target) {
  Splits sorted_source = splits, sorted_target = target;
  std::sort(sorted_source.begin(), sorted_source.end());
  std::sort(sorted_target.begin(), sorted_target.end());
  if (sorted_source != sorted_target) return std::nullopt;
  std::vector<ShapeMove> moves;
  const auto dimensions = static_cast<uint8_t>(problem.shape.size());
  for (uint8_t from = 0; from < dimensions; ++from)
    for (uint8_t to = 0; to < dimensions; ++to) {
      if (splits[from] % target[from] != 0 || target[to] % splits[to] != 0) continue;
      const uint32_t factor = std::gcd(splits[from] / target[from], target[to] / splits[to]);
      if (factor == 1) continue;
      splits[from] /= factor;
      splits[to] *= factor;
      moves.push_back({from, to, factor});
    }
  if (splits != target) return std::nullopt;
  return moves;
}

/// True if each dimension is cut as far in `fine` as in `coarse`, or further.
bool refines(const Splits& fine, const Splits& coarse) {
  for (size_t d = 0; d < fine.size(); ++d)
    if (fine[d] % coarse[d] != 0) return false;
  return true;
}

}  // namespace

std::vector<StepChoice> gather_slice_steps(const Problem& problem) {
  Layout whole;
  whole.dimensions = problem.from.dimensions;
  std::vector<StepChoice> steps = gathers(problem, problem.from, whole);
  const auto sliced = slices(whole, problem.to);
  steps.insert(steps.end(), sliced.begin(), sliced.end());
  return steps;
}

std::vector<StepChoice> xla_order_steps(const Problem& problem) {
  const Splits source = splits_of(problem.mesh, problem.from);
  const Splits target = splits_of(problem.mesh, problem.to);
  if (source == target) return realise(problem, {source, source, {}});
  if (const auto moves = exchange_pattern(problem, source, target))
    return realise(problem, {source, target, *moves});
  if (refines(target, source)) return realise(problem, {target, target, {}});
  if (refines(source, target)) return realise(problem, {source, source, {}});
  return gather_slice_steps(problem);
}

}  // namespace ina::redistribution
