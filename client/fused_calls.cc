// Context: groups and coalescing. What is collected and when it goes is fused.h's to decide.
#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

namespace {

std::string in_group_text(std::string_view function) {
  return std::string(function) +
         ": a group is open (ina_group_start), in which only asynchronous calls start "
         "operations; call ina_group_end first";
}

}  // namespace

/// Under mutex_. Returns what stands for the operation if it is collected, else nullptr: then it is
/// to be submitted, and what must come before it has been.
Operation* Context::collect(const OperationSpec& spec) {
  if (!fused_) {
    if (settings_.coalesce_bytes == 0) return nullptr;
    fused_.emplace(executor(), settings_.coalesce_bytes);
  }
  // A reproducible sum scales blocks of 256 elements alike: fused, a tensor would lend its
  // neighbour an exponent. What is reduced in the order of the ranks is not one operation.
  // And nothing can be scattered to where only the switch can write.
  const bool is_native =
      !settings_.reproducible ||
      !(Reproducible::handles(spec) || RankOrder::handles(spec, settings_.world_size));
  const bool fusable = spec.deferrable && spec.target == 0 && is_native;
  const size_t running = engine_->running();
  Operation* operation = fused_->collect(spec, fusable, now_ns());
  if (operation && engine_->running() != running) send_submitted();
  has_collected_ = fused_->has_collected();
  return operation;
}

/// Under mutex_: after collected operations were submitted.
void Context::send_submitted() {
  transport_->set_idle(false);
  progress();
  running_.store(engine_->running(), std::memory_order_relaxed);
  rest();
}

int Context::start_group() {
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  const auto lock = lock_engine();
  if (open_group_.load() != 0)
    return set_error(INA_ERR_INVALID,
                     "ina_group_start: a group is open already; groups do not nest");
  if (!fused_) fused_.emplace(executor(), settings_.coalesce_bytes);
  const bool had_collected = fused_->has_collected();
  fused_->start_group(now_ns());
  has_collected_ = false;
  if (had_collected) send_submitted();
  open_group_ = ++groups_;
  return INA_OK;
}

int Context::end_group() {
  {
    const auto lock = lock_engine();
    if (open_group_.load() == 0)
      return set_error(INA_ERR_INVALID, "ina_group_end: no group is open");
    fused_->end_group(now_ns());
    open_group_ = 0;
    has_collected_ = fused_->has_collected();
    if (callers_.failed() == INA_OK) send_submitted();
  }
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  kick_if_running();
  return INA_OK;
}

int Context::refuse_in_group(std::string_view function) {
  if (open_group_.load() == 0) return INA_OK;
  return set_error(INA_ERR_INVALID, in_group_text(function));
}

int Context::refuse_in_group(std::string_view function, uint32_t group) {
  if (group == 0 || open_group_.load() != group) return INA_OK;
  return set_error(INA_ERR_INVALID, std::string(function) +
                                        ": the request belongs to a group that is still open; "
                                        "call ina_group_end first");
}

void Context::start_collected(const Operation& operation) {
  if (!has_collected_.load(std::memory_order_relaxed)) return;
  {
    const auto lock = lock_engine();
    if (callers_.failed() != INA_OK || !fused_->is_collected(operation)) return;
    fused_->submit_collected(now_ns());
    has_collected_ = false;
    send_submitted();
  }
  kick_if_running();
}

void Context::kick_if_running() {
  if (running_.load(std::memory_order_relaxed) != 0) kick();
}

}  // namespace ina::client
