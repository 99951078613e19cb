// Redistributions that are under way: plans (plans/redistribution/) as Schedules of the
// executor, each preceded by a comparison of the plans' hashes. Pure; under the context's lock.
//
// Ranks whose plans differ all see the same hashes: disagreement() has the text, and nothing goes
// on.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "operations/executor.h"
#include "plans/redistribution/execution.h"

namespace ina::client {

/// All of one context.
class Redistributions final {
 public:
  /// Executions that are kept for plans that come again.
  static constexpr size_t kMostKept = 16;

  /// `executor` must outlive it.
  Redistributions(Executor& executor, const redistribution::Job& job);
  ~Redistributions();
  Redistributions(const Redistributions&) = delete;
  Redistributions& operator=(const Redistributions&) = delete;

  /// Carries a plan out in `buffer`, which has plan->peak_bytes() bytes. The plan's mesh has as
  /// many ranks as the job. Throws std::bad_alloc before anything is submitted.
  Operation* start(const std::shared_ptr<const redistribution::Plan>& plan, std::byte* buffer,
                   Nanos now);
  /// Returns false if the operation is not one of start()'s.
  bool release(Operation* operation);
  /// Empty: the ranks agree.
  const std::string& disagreement() const { return disagreement_; }

 private:
  class Known;

  Known& known(const std::shared_ptr<const redistribution::Plan>& plan);
  void agree(const redistribution::Plan& plan, const std::byte* hashes);

  Executor& executor_;
  const redistribution::Job job_;
  std::list<std::unique_ptr<Known>> known_;  ///< the last used first
  struct Running {
    Operation* operation;
    Known* known;
  };
  std::vector<Running> running_;
  std::string disagreement_;
};

}  // namespace ina::client
