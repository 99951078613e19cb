// Plans of hierarchical collectives, as this rank carries them out. The last ones are kept for
// calls that come again.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "client/context.h"
#include "common/result.h"
#include "operations/executor.h"
#include "plans/themis/execution.h"
#include "plans/themis/planner.h"

namespace ina::client {

/// The properties of a call that its plan depends on.
struct PlanKey {
  std::vector<themis::Request> requests;
  std::vector<themis::Elements> elements;  ///< of each
  themis::Scheduler scheduler{};
  uint32_t chunks = 0;
  bool operator==(const PlanKey&) const = default;
};

/// A plan, and the kernels of its schedule.
class KnownPlan final : public Executor::Kernels {
 public:
  /// Gets the hashes of all ranks' plans, one after the other.
  using Agree = std::function<void(const std::byte* hashes)>;

  KnownPlan(PlanKey its_key, std::unique_ptr<const themis::Execution> its_execution, Agree agree)
      : key(std::move(its_key)), execution(std::move(its_execution)), agree_(std::move(agree)) {}

  void run(const scheduler::Compute& compute, const Executor::Frame& frame) override;

  const PlanKey key;
  const std::unique_ptr<const themis::Execution> execution;

 private:
  const Agree agree_;
};

/// Used by one thread at a time.
class HierarchyPlans {
 public:
  static constexpr size_t kMostKept = 16;

  /// `contexts`: of each dimension of the topology, and then of all ranks. They and the topology
  /// must outlive it. `rank`: among all.
  HierarchyPlans(const themis::Topology& topology,
                 const std::vector<std::shared_ptr<Context>>& contexts, uint32_t rank,
                 KnownPlan::Agree agree)
      : topology_(topology), contexts_(contexts), rank_(rank), agree_(std::move(agree)) {}

  /// A plan that was made before, or a new one. Callers share it with the cache, which forgets the
  /// plan that was not used for longest.
  Result<std::shared_ptr<KnownPlan>> get(const PlanKey& key);

 private:
  Result<std::unique_ptr<const themis::Execution>> make(const PlanKey& key) const;

  const themis::Topology& topology_;
  const std::vector<std::shared_ptr<Context>>& contexts_;
  const uint32_t rank_;
  const KnownPlan::Agree agree_;
  std::list<std::shared_ptr<KnownPlan>> plans_;  ///< the last used first
};

}  // namespace ina::client
