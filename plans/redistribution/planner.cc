#include "plans/redistribution/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plans/redistribution/baselines.h"
#include "plans/redistribution/layout_search.h"
#include "plans/redistribution/realise.h"

namespace ina::redistribution {
namespace {

constexpr uint64_t kAnySize = std::numeric_limits<uint64_t>::max();

/// Whole plans: in the normal form with a permutation, and without one; with late slices.
std::vector<Plan> synthesise(const Problem& problem, uint64_t most_moved) {
  if (problem.from == problem.to) return {*Plan::assemble(problem, Method::kSynthesised, {})};
  std::vector<Plan> plans;
  const Bound bound(problem);
  double below_us = std::numeric_limits<double>::infinity();
  if (const auto path = search_shapes(problem, bound, most_moved)) {
    if (auto plan = Plan::assemble(problem, Method::kSynthesised, realise(problem, *path))) {
      below_us = plan->predicted_us();
      plans.push_back(std::move(*plan));
    }
  }
  for (const Slicing slicing : {Slicing::kFirst, Slicing::kBetweenMoves}) {
    const auto steps = search_layouts(problem, bound, slicing, most_moved, below_us);
    if (!steps) continue;
    auto plan = Plan::assemble(problem, Method::kSynthesised, *steps);
    if (!plan) continue;
    below_us = std::min(below_us, plan->predicted_us());
    plans.push_back(std::move(*plan));
  }
  return plans;
}

/// All that may be chosen of one method, without cuts.
std::vector<Plan> candidates(const Problem& problem, Method method) {
  std::vector<StepChoice> steps;
  switch (method) {
    case Method::kSynthesised: {
      std::vector<Plan> plans = synthesise(problem, kAnySize);
      const auto fits = [&](const Plan& plan) { return plan.peak_bytes() <= problem.limit_bytes; };
      if (problem.limit_bytes == 0 || std::any_of(plans.begin(), plans.end(), fits)) return plans;
      // Moves need their tile twice.
      const uint64_t most_moved = problem.limit_bytes / problem.element_bytes / 2;
      for (Plan& plan : synthesise(problem, most_moved)) plans.push_back(std::move(plan));
      return plans;
    }
    case Method::kDirect:
      if (!(problem.from == problem.to)) steps.push_back({Operation::kExchange, {}, problem.to});
      break;
    case Method::kGatherSlice:
      steps = gather_slice_steps(problem);
      break;
    case Method::kXlaOrder:
      steps = xla_order_steps(problem);
      break;
  }
  return {*Plan::assemble(problem, method, steps)};
}

std::vector<Plan> candidates(const Problem& problem, const std::vector<Method>& methods) {
  std::vector<Plan> plans;
  for (const Method method : methods)
    for (Plan& plan : candidates(problem, method)) plans.push_back(std::move(plan));
  return plans;
}

/// Cuts what does not fit whole; the cheapest then. Of two alike the one with less memory.
std::optional<Plan> cheapest_within(uint64_t limit_bytes, const std::vector<Plan>& plans) {
  std::optional<Plan> best;
  const auto cost = [](const Plan& p) { return std::pair(p.predicted_us(), p.peak_bytes()); };
  for (const Plan& plan : plans) {
    const auto pieces =
        limit_bytes == 0 ? std::optional(plan.pieces()) : plan.pieces_for(limit_bytes);
    if (!pieces) continue;
    Plan cut = plan.cut(*pieces);
    if (!best || cost(cut) < cost(*best)) best = std::move(cut);
  }
  return best;
}

/// The least limit with which there is a plan. A limit has plans of its own considered, those that
/// move less, so what would do is tried: up until there is a plan, then down until there is none.
uint64_t least_limit(Problem problem, const std::vector<Method>& methods) {
  const auto least_peak = [&](uint64_t limit_bytes) {
    problem.limit_bytes = limit_bytes;
    uint64_t least = kAnySize;
    for (const Plan& plan : candidates(problem, methods))
      least = std::min(least, plan.least_peak_bytes());
    return least;
  };
  uint64_t limit = problem.limit_bytes;
  for (uint64_t least; (least = least_peak(limit)) > limit;) limit = least;
  for (uint64_t less; (less = least_peak(limit - 1)) < limit && least_peak(less) <= less;)
    limit = less;
  return limit;
}

Expected<Plan> plan_with(const Problem& problem, const std::vector<Method>& methods) {
  if (auto checked = check_problem(problem); !checked) return tl::unexpected(checked.error());
  if (auto best = cheapest_within(problem.limit_bytes, candidates(problem, methods)))
    return std::move(*best);
  return tl::unexpected(fmt::format(
      "no plan keeps the buffers of a rank within {} bytes; the least limit that does is {} bytes",
      problem.limit_bytes, least_limit(problem, methods)));
}

}  // namespace

Expected<Plan> plan_by(const Problem& problem, Method method) {
  return plan_with(problem, {method});
}

Expected<Plan> plan(const Problem& problem) {
  return plan_with(problem, {Method::kSynthesised, Method::kDirect});
}

std::string PlanCache::key_of(const Problem& problem) {
  const CostModel& costs = problem.costs;
  return fmt::format("{};{};{};{};{};{:a};{:a};{:a};{:a};{}", problem.mesh.text(),
                     fmt::join(problem.shape, ","), problem.element_bytes,
                     layout_text(problem.mesh, problem.from), layout_text(problem.mesh, problem.to),
                     costs.operation_us, costs.message_us, costs.bytes_per_us,
                     costs.copied_bytes_per_us, problem.limit_bytes);
}

Expected<std::shared_ptr<const Plan>> PlanCache::plan(const Problem& problem) {
  std::string key = key_of(problem);
  if (const auto known = index_.find(key); known != index_.end()) {
    ++hits_;
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->plan;
  }
  ++misses_;
  auto made = redistribution::plan(problem);
  if (!made) return tl::unexpected(made.error());
  if (entries_.size() >= capacity_) {
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front({key, std::make_shared<const Plan>(std::move(*made))});
  index_.emplace(std::move(key), entries_.begin());
  return entries_.front().plan;
}

}  // namespace ina::redistribution
