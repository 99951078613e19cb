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

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/context.h"
#include "client/hierarchical_call.h"
#include "client/hierarchy_failure.h"
#include "client/hierarchy_operations.h"
#include "client/session.h"
#include "common/result.h"
#include "plans/themis/planner.h"

namespace ina::client {

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
  std::string last_error() const { return failure_.last_error(); }

  void follow() override;

 private:
  class Driving;

  Hierarchy(const std::shared_ptr<Context>& context, themis::Topology topology,
            std::vector<std::shared_ptr<Context>> contexts);
  Context& all() const { return *contexts_.back(); }
  Result<void> add_to(PlanKey& key, const HierarchicalCall& call) const;
  template <class Done>
  bool drive_until(const Done& done, Nanos deadline);
  bool drive();
  bool has_failed();
  std::string channel_name(size_t channel) const;
  void end(int status, const std::string& text, bool mismatch = false);
  WaitEnd timed_out(Operation* operation, Nanos waited_ns, bool give_up);

  const themis::Topology topology_;
  const std::vector<std::shared_ptr<Context>> contexts_;
  const uint32_t rank_;
  const uint32_t ranks_;
  HierarchyOperations operations_;
  std::mutex ending_mutex_;  ///< taken first
  HierarchyFailure failure_;
  bool left_ = false;
};

}  // namespace ina::client
