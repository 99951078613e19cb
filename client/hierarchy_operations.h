// The operations of a hierarchy that are under way: the executor of their plans, its lock, and the
// callbacks of those for which nobody waits.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "client/hierarchy_plans.h"
#include "client/inbox.h"
#include "operations/executor.h"

namespace ina::client {

class ContextChannel;

/// For any thread that has no context's lock: the lock of this is taken before one.
class HierarchyOperations {
 public:
  struct Callback {
    Operation* operation = nullptr;  ///< nullptr: it has ended with an error
    void (*call)(void*, int) = nullptr;
    void* argument = nullptr;
  };

  /// As HierarchyPlans has them. `ranks`: in all.
  HierarchyOperations(const themis::Topology& topology,
                      const std::vector<std::shared_ptr<Context>>& contexts, uint32_t rank,
                      uint32_t ranks);
  ~HierarchyOperations();
  HierarchyOperations(const HierarchyOperations&) = delete;
  HierarchyOperations& operator=(const HierarchyOperations&) = delete;

  /// Starts collectives by one plan.
  Result<Operation*> start(const PlanKey& key, std::span<const scheduler::BufferPair> pairs);
  void release(Operation* operation);
  /// Takes in what contexts have reported. True: there was something.
  bool take_in();
  /// Nothing touches memory of callers any more.
  void stop();

  /// Some are not released.
  bool any() const { return count_.load() != 0; }
  /// Some have not ended.
  bool is_busy();
  /// One that is not released, in words, and how far it has come.
  std::string describe(const Operation* operation);
  /// The way in which the plans of the ranks differ, which has stopped all; empty: they agree.
  std::string disagreement();

  void add_callback(const Callback& callback);
  bool has_callbacks() const { return has_callbacks_.load(); }
  /// Callbacks whose operations have ended, which are released. `failed`: the others, too, without
  /// their operations.
  std::vector<Callback> take_due_callbacks(bool failed);

 private:
  struct Running {
    Operation* operation;
    std::shared_ptr<KnownPlan> plan;
  };
  void agree(const std::byte* hashes);
  void drop(Operation* operation);

  const uint32_t ranks_;
  std::mutex mutex_;  ///< of all that follows, but for atomics
  Inbox inbox_;       ///< reserved and delivered under mutex_
  std::vector<std::unique_ptr<ContextChannel>> channels_;
  std::unique_ptr<Executor> executor_;
  HierarchyPlans plans_;
  std::vector<Running> running_;
  size_t stages_ = 0;  ///< operations of contexts in all that is running
  std::vector<Callback> callbacks_;
  std::string disagreement_;
  std::atomic<bool> disagree_{false};
  std::atomic<bool> has_callbacks_{false};
  std::atomic<size_t> count_{0};  ///< of running_
};

}  // namespace ina::client
