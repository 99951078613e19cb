// The ways that operations of a channel go. Most go to the engine as one. Others are Schedules of
// one executor (engine/executor.h): reproducible reductions, collectives of which a rank knows only
// its own counts, redistributions, and small all-reduces that are made into one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/collective_call.h"
#include "client/link.h"
#include "client/settings.h"
#include "engine/counted_moves.h"
#include "engine/executor.h"
#include "engine/fused.h"
#include "engine/rank_order.h"
#include "engine/redistributions.h"
#include "engine/reproducible.h"

namespace ina::client {

using PlanPointer = std::shared_ptr<const redistribution::Plan>;

/// Of an operation, what its specification does not say.
struct OperationSource {
  const CollectiveCall* call = nullptr;  ///< of which it comes, but for all-reduce and barrier
  const PlanPointer* plan = nullptr;     ///< that it carries out
};

/// For a person: what it is, and how far it has come.
std::string describe(const Operation& operation);

/// Under the lock of Progress, unless it says otherwise. What is submitted is sent by whoever
/// drives.
class Operations {
 public:
  /// Both must outlive it. The engine is needed from the first operation on.
  Operations(const Settings& settings, Link& link) : settings_(settings), link_(link) {}
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  /// Submits one, which collect() has not taken.
  Operation* submit(const OperationSpec& spec, const OperationSource& source, Nanos now);
  /// Its caller has no more use for it: it is done, or the job has ended.
  void release(Operation* operation);

  // Small all-reduces, which are collected to be made into one (engine/fused.h).
  /// To be told of every operation before it is submitted. What stands for it, if it is collected;
  /// otherwise nullptr, and what must come before it has been submitted.
  Operation* collect(const OperationSpec& spec, Nanos now);
  /// Whether anything is collected. From any thread.
  bool has_collected() const { return has_collected_.load(std::memory_order_relaxed); }
  /// Submits what is collected, if this is among it. Returns whether it is.
  bool submit_collected_with(const Operation& operation, Nanos now);
  void submit_collected(Nanos now);
  /// What follows is collected, until the group ends. Returns whether something was submitted.
  bool start_group(Nanos now);
  void end_group(Nanos now);
  /// Number of the group that is open, from 1; 0: none is. From any thread.
  uint32_t open_group() const { return open_group_.load(); }

  /// What the ranks found when they told each other counts or plans; empty: they agree.
  const std::string& disagreement() const;
  /// Of the caller's operations, how many have completed.
  uint64_t completed() const;
  /// Sums that did not fit their type.
  uint64_t overflows() const;

 private:
  Operation* submit_sum(const OperationSpec& spec, Nanos now);
  Operation* submit_counted(const OperationSpec& spec, const CollectiveCall& call, Nanos now);
  Operation* submit_plan(const OperationSpec& spec, const PlanPointer& plan, Nanos now);
  bool is_fusable(const OperationSpec& spec) const;
  Executor& executor();

  const Settings& settings_;
  Link& link_;
  // Each once it is needed.
  std::optional<EngineChannel> channel_;
  std::optional<Executor> executor_;
  std::optional<Reproducible> reproducible_;
  std::optional<RankOrder> rank_order_;
  std::optional<CountedMoves> counted_;
  std::optional<Redistributions> redistributions_;
  std::optional<Fused> fused_;

  uint32_t groups_ = 0;                     ///< opened so far
  std::atomic<bool> has_collected_{false};  ///< written under the lock
  std::atomic<uint32_t> open_group_{0};     ///< likewise
};

}  // namespace ina::client
