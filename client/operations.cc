#include "client/operations.h"

namespace ina::client {

namespace {

// Scratch memory of all schedules that are under way: two reproducible reductions of large tensors.
constexpr size_t kOperationsScratchBytes = size_t{5} << 20;

}  // namespace

std::string describe(const Operation& operation) {
  const OperationSpec& spec = operation.spec;
  std::string text = "operation " + std::to_string(operation.number) + " (";
  if (spec.collective == Collective::kBarrier) {
    text += "barrier";
  } else {
    text.append(name(spec.collective)).append(" of ").append(std::to_string(spec.elements));
    text.append(" ").append(name(spec.dtype));
    if (!is_moved(spec.collective)) text.append(" ").append(name(spec.op));
  }
  return text + "): " + std::to_string(operation.complete) + " of " +
         std::to_string(operation.fragments) + " fragments complete";
}

Operation* Operations::submit(const OperationSpec& spec, const OperationSource& source, Nanos now) {
  if (source.plan) return submit_plan(spec, *source.plan, now);
  if (source.call && source.call->counted) return submit_counted(spec, *source.call, now);
  if (settings_.reproducible && spec.elements != 0) return submit_sum(spec, now);
  return link_.engine().submit(spec, now);
}

/// Reductions of floats go other ways if they are to be reproducible.
Operation* Operations::submit_sum(const OperationSpec& spec, Nanos now) {
  Engine& engine = link_.engine();
  const EngineConfig& config = engine.config();
  if (RankOrder::handles(spec, settings_.world_size)) {
    if (!rank_order_)
      rank_order_.emplace(executor(), RankOrder::Job{.workers = settings_.world_size,
                                                     .rank = config.rank,
                                                     .slot_bytes = config.slot_bytes});
    return rank_order_->start(spec, now);
  }
  if (!Reproducible::handles(spec)) return engine.submit(spec, now);
  if (!reproducible_)
    reproducible_.emplace(executor(), Reproducible::Job{.workers = settings_.world_size,
                                                        .rank = config.rank,
                                                        .slot_bytes = config.slot_bytes});
  return reproducible_->start(spec, now);
}

Operation* Operations::submit_counted(const OperationSpec& spec, const CollectiveCall& call,
                                      Nanos now) {
  const EngineConfig& config = link_.engine().config();
  if (!counted_) counted_.emplace(executor(), config.rank, settings_.world_size, config.slot_bytes);
  OwnCounts counts;
  counts.send = call.counts;
  counts.receive = call.receive_counts;
  counts.send_displacements = call.displacements;
  counts.receive_displacements = call.receive_displacements;
  counts.destination = call.destination;
  counts.source = call.source;
  return counted_->start(spec, counts, now);
}

Operation* Operations::submit_plan(const OperationSpec& spec, const PlanPointer& plan, Nanos now) {
  const EngineConfig& config = link_.engine().config();
  if (!redistributions_)
    redistributions_.emplace(executor(), redistribution::Job{config.rank, config.slot_bytes});
  return redistributions_->start(plan, spec.recv, now);
}

void Operations::release(Operation* operation) {
  if (fused_ && fused_->release(operation)) return;
  if (counted_ && counted_->release(operation)) return;
  if (redistributions_ && redistributions_->release(operation)) return;
  if (!executor_ || !executor_->release(operation)) link_.engine().release(operation);
}

Executor& Operations::executor() {
  if (!executor_) {
    if (!channel_) channel_.emplace(link_.engine());
    Channel* const channels[] = {&*channel_};
    executor_.emplace(channels, kOperationsScratchBytes);
  }
  return *executor_;
}

// ---- small all-reduces

Operation* Operations::collect(const OperationSpec& spec, Nanos now) {
  if (!fused_) {
    if (settings_.coalesce_bytes == 0) return nullptr;
    fused_.emplace(executor(), settings_.coalesce_bytes);
  }
  Operation* const operation = fused_->collect(spec, is_fusable(spec), now);
  has_collected_ = fused_->has_collected();
  return operation;
}

/// A reproducible sum scales blocks of 256 elements alike: fused, a tensor would lend its neighbour
/// an exponent. A reduction in the order of the ranks is more than one operation. And a fused
/// result cannot be scattered to memory that only the switch can write.
bool Operations::is_fusable(const OperationSpec& spec) const {
  const bool is_native =
      !settings_.reproducible ||
      !(Reproducible::handles(spec) || RankOrder::handles(spec, settings_.world_size));
  return spec.deferrable && spec.target == 0 && is_native;
}

bool Operations::submit_collected_with(const Operation& operation, Nanos now) {
  if (!fused_->is_collected(operation)) return false;
  fused_->submit_collected(now);
  has_collected_ = false;
  return true;
}

void Operations::submit_collected(Nanos now) {
  if (fused_) fused_->submit_collected(now);
}

bool Operations::start_group(Nanos now) {
  if (!fused_) fused_.emplace(executor(), settings_.coalesce_bytes);
  const bool had_collected = fused_->has_collected();
  fused_->start_group(now);
  has_collected_ = false;
  open_group_ = ++groups_;
  return had_collected;
}

void Operations::end_group(Nanos now) {
  fused_->end_group(now);
  open_group_ = 0;
  has_collected_ = fused_->has_collected();
}

// ---- what became of them

const std::string& Operations::disagreement() const {
  static const std::string none;
  if (counted_ && !counted_->disagreement().empty()) return counted_->disagreement();
  return redistributions_ ? redistributions_->disagreement() : none;
}

uint64_t Operations::completed() const {
  uint64_t operations = link_.engine().counters().operations;
  if (executor_) operations += executor_->counters().schedules - executor_->counters().operations;
  if (fused_) operations += fused_->counters().tensors - fused_->counters().operations;
  return operations;
}

uint64_t Operations::overflows() const {
  return link_.engine().counters().overflows + (reproducible_ ? reproducible_->overflows() : 0) +
         (rank_order_ ? rank_order_->overflows() : 0);
}

}  // namespace ina::client
