#include "client/hierarchy_plans.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ina::client {

using themis::Execution;

void KnownPlan::run(const scheduler::Compute& compute, const Executor::Frame& frame) {
  switch (compute.kernel) {
    case Execution::kTell: {
      const uint64_t hash = execution->hash();
      std::memcpy(frame.scratch() + execution->hash_offset(), &hash, sizeof(hash));
      break;
    }
    case Execution::kAgree:
      agree_(frame.scratch());
      break;
    default:
      execution->keep(compute.argument, frame.buffers(execution->pair_of(compute.argument)),
                      frame.scratch());
  }
}

Result<std::shared_ptr<KnownPlan>> HierarchyPlans::get(const PlanKey& key) {
  const auto found = std::ranges::find(plans_, key, [](const auto& plan) { return plan->key; });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
    return plans_.front();
  }
  auto execution = make(key);
  if (!execution) return tl::unexpected(execution.error());
  plans_.push_front(std::make_shared<KnownPlan>(key, std::move(*execution), agree_));
  if (plans_.size() > kMostKept) plans_.pop_back();  // what runs has its own
  return plans_.front();
}

Result<std::unique_ptr<const Execution>> HierarchyPlans::make(const PlanKey& key) const {
  themis::Plan plan{.topology = topology_, .requests = key.requests, .chunks = {}, .order = {}};
  plan.order.resize(topology_.dimensions.size());
  if (key.requests.front().bytes != 0) {
    auto planned = themis::make_plan(topology_, plan.requests,
                                     {.scheduler = key.scheduler,
                                      .chunks = key.chunks,
                                      .in_network = themis::InNetwork::kAlways});
    if (!planned) return tl::unexpected(planned.error());
    plan = std::move(planned->plan);
  }
  themis::Job job{.rank = rank_, .slot_bytes = {}, .elements = key.elements};
  for (const auto& context : contexts_) job.slot_bytes.push_back(context->slot_bytes());
  return Execution::make(std::make_shared<const themis::Plan>(std::move(plan)), job);
}

}  // namespace ina::client
