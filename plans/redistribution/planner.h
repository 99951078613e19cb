// Chooses a plan: synthesises one, makes the plans of the other methods, and takes the cheapest
// within the limit.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "plans/redistribution/plan.h"

namespace ina::redistribution {

/// The plan of one method, cut into as few pieces as its limit needs. Of the synthesised ones the
/// cheapest that fits. They include plans that slice first, and so move little. Errors: those of
/// check_problem(), or that no cut fits the limit, with the least limit that does.
Expected<Plan> plan_by(const Problem& problem, Method method);

/// The cheapest of a synthesised and a direct plan; neither has a tile larger than the larger of
/// source and target. Errors likewise.
Expected<Plan> plan(const Problem& problem);

/// Remembers the plans that were used last. A problem is the same if mesh, shape, layouts, size of
/// an element, costs and limit are. Not for several threads at once.
class PlanCache {
 public:
  /// `capacity`: plans, at least 1.
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}

  /// As plan(). Errors are not remembered.
  Expected<std::shared_ptr<const Plan>> plan(const Problem& problem);

  size_t size() const { return entries_.size(); }
  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Plan> plan;
  };
  static std::string key_of(const Problem& problem);

  size_t capacity_;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
  std::list<Entry> entries_;  ///< the one used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

}  // namespace ina::redistribution
