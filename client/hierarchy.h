// Hierarchical collectives: collectives of all ranks that go through the dimensions of a topology
// by a plan (plans/themis/). Each dimension's groups are contexts of their own, maybe of
// several switches.
//
// One executor runs a plan's Schedule over all of these contexts. It has a lock of its own, which
// is taken before a context's. Operations of a context report their end under that context's lock.
// The report goes into an inbox, and is taken out under the executor's lock, without a context's. A
// thread that waits drives all contexts, one after the other. Otherwise their sessions' background
// threads drive, and empty the inbox.
//
// The end of one channel ends the hierarchy on all ranks, because a rank then ends the channel of
// all ranks, too.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/context.h"
#include "client/hierarchical_call.h"
#include "client/hierarchy_plans.h"
#include "client/inbox.h"
#include "client/session.h"
#include "common/result.h"
#include "operations/executor.h"
#include "plans/themis/planner.h"

namespace ina::client {

class ContextChannel;

/// How a plan is made.
struct HierarchicalOptions {
  themis::Scheduler scheduler = themis::Scheduler::kThemis;
  uint32_t chunks = 16;  ///< of each collective, at most
};

class Hierarchy final : public Follower, public std::enable_shared_from_this<Hierarchy> {
 public:
  /// Collective: all ranks of `context` call it. `topology`: or why this rank has none, which all
  /// ranks hear of. `rails`: for each dimension a context of the same ranks, of which its groups
  /// are split; empty: all are split from `context`. In hierarchy_create.cc.
  static Result<std::shared_ptr<Hierarchy>> create(const std::shared_ptr<Context>& context,
                                                   const Result<themis::Topology>& topology,
                                                   std::span<const std::shared_ptr<Context>> rails);
  ~Hierarchy() override;
  Hierarchy(const Hierarchy&) = delete;
  Hierarchy& operator=(const Hierarchy&) = delete;

  /// The topology for which plans are made: a switch carries out each dimension.
  const themis::Topology& topology() const { return topology_; }
  /// The context of each dimension, and then that of all ranks.
  const std::vector<std::shared_ptr<Context>>& contexts() const { return contexts_; }

  /// Starts collectives that begin together, by one plan; one alone is no group. Errors of
  /// arguments leave everything as it was. `function`: that was called.
  Result<Operation*> start(std::string_view function, std::span<const HierarchicalCall> calls,
                           const HierarchicalOptions& options);
  /// As Context's.
  WaitEnd wait(Operation* operation, Nanos timeout_ns, bool give_up);
  int test(Operation* operation);
  void call_back(Operation* operation, void (*call)(void* argument, int status), void* argument);
  /// Collective: measures each dimension, and gives a topology that leads to better plans
  /// (client/calibration.h). INA_ERR_INVALID while something is under way. An error of one
  /// dimension ends the hierarchy.
  Result<themis::Topology> calibrate();
  /// Has the background threads look after operations under way.
  void kick();
  /// Collective: leaves all groups. The hierarchy is of no use afterwards.
  int leave(Nanos timeout_ns);
  std::string last_error() const;

  void follow() override;

 private:
  class Driving;
  struct Callback {
    Operation* operation = nullptr;
    void (*call)(void*, int) = nullptr;
    void* argument = nullptr;
  };
  struct Running {
    Operation* operation;
    std::shared_ptr<KnownPlan> plan;
  };

  Hierarchy(const std::shared_ptr<Context>& context, themis::Topology topology,
            std::vector<std::shared_ptr<Context>> contexts);
  Context& all() const { return *contexts_.back(); }
  Result<void> add_to(PlanKey& key, const HierarchicalCall& call) const;
  Result<Operation*> start(const PlanKey& key, std::span<const scheduler::BufferPair> pairs);
  void agree(const std::byte* hashes);
  template <class Done>
  bool drive_until(const Done& done, Nanos deadline);
  bool drive();
  bool take_in();
  bool has_failed();
  bool is_busy();
  std::string channel_name(size_t channel) const;
  void end(int status, const std::string& text, bool mismatch = false);
  void release(Operation* operation);
  WaitEnd timed_out(Operation* operation, Nanos waited_ns, bool give_up);
  std::vector<Callback> due_callbacks(bool failed);

  const themis::Topology topology_;
  const std::vector<std::shared_ptr<Context>> contexts_;
  const uint32_t rank_;
  const uint32_t ranks_;

  std::mutex mutex_;  ///< taken before a context's
  Inbox inbox_;       ///< reserved and delivered under mutex_
  std::vector<std::unique_ptr<ContextChannel>> channels_;
  std::unique_ptr<Executor> executor_;  ///< under mutex_
  HierarchyPlans plans_;                ///< under mutex_
  std::vector<Running> running_;        ///< under mutex_
  size_t operations_ = 0;               ///< under mutex_: of all that is running
  std::vector<Callback> callbacks_;     ///< under mutex_
  std::string disagreement_;            ///< under mutex_
  std::atomic<bool> disagree_{false};
  std::atomic<bool> has_callbacks_{false};

  std::atomic<size_t> under_way_{0};  ///< schedules

  std::mutex ending_mutex_;  ///< taken first
  std::atomic<int> failed_{INA_OK};
  mutable std::mutex text_mutex_;  ///< taken last
  std::string failure_text_;
  std::string last_error_;
  bool left_ = false;
};

}  // namespace ina::client
