// The ways that operations of a channel go. Most go to the engine as one. Others are Schedules of
// one executor (operations/executor.h): reproducible reductions, collectives of which a rank knows
// only its own counts, redistributions, and small all-reduces that are made into one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/collective_call.h"
#include "client/link.h"
#include "client/settings.h"
#include "operations/counted_moves.h"
#include "operations/executor.h"
#include "operations/fused.h"
#include "operations/rank_order.h"
#include "operations/redistributions.h"
#include "operations/reproducible.h"

namespace ina::client {

using PlanPointer = std::shared_ptr<const redistribution::Plan>;

/// The origin of an operation, beyond its specification.
struct OperationSource {
  const CollectiveCall* call = nullptr;  ///< of which it comes, but for all-reduce and barrier
  const PlanPointer* plan = nullptr;     ///< that it carries out
};

/// For a person: the operation and its progress.
std::string describe(const Operation& operation);

/// Under the lock of Progress, unless it says otherwise. The driving thread sends submitted
/// operations.
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

  // Small all-reduces, which are collected to be made into one (operations/fused.h).
  /// To be called for every operation before its submission. Returns the operation that stands for
  /// it, if it is collected; otherwise nullptr, and all operations that must precede it have been
  /// submitted.
  Operation* collect(const OperationSpec& spec, Nanos now);
  /// True if anything is collected. From any thread.
  bool has_collected() const { return has_collected_.load(std::memory_order_relaxed); }
  /// Submits what is collected, if this is among it. Returns whether it is.
  bool submit_collected_with(const Operation& operation, Nanos now);
  void submit_collected(Nanos now);
  /// Later operations are collected until the group ends. Returns whether something was submitted.
  bool start_group(Nanos now);
  void end_group(Nanos now);
  /// Number of the group that is open, from 1; 0: none is. From any thread.
  uint32_t open_group() const { return open_group_.load(); }

  /// The disagreement that the ranks found in their counts or plans; empty: they agree.
  const std::string& disagreement() const;
  /// The number of the caller's operations that have completed.
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
  std::atomic<uint32_t> open_group_{0};     ///< written under the lock
};

}  // namespace ina::client
