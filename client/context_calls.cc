// Context: operations as their callers start them, and fused groups.
#include <cstring>

#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

namespace {

/// Copies the block that a rank keeps for itself: no message carries it.
void copy_own(const CollectiveCall& call, const CallRegions& regions) {
  if (!regions.copies_own) return;
  const CallRegions::Region& from = regions.send[regions.own_send];
  const CallRegions::Region& to = regions.recv[regions.own_receive];
  const size_t width = wire_bytes(call.dtype);
  const auto* source = static_cast<const std::byte*>(call.send) + from.offset * width;
  auto* target = static_cast<std::byte*>(call.recv) + to.offset * width;
  if (from.count != 0 && source != target) std::memcpy(target, source, from.count * width);
}

std::string in_group_text(std::string_view function) {
  return std::string(function) +
         ": a group is open (ina_group_start), in which only asynchronous calls start "
         "operations; call ina_group_end first";
}

}  // namespace

Result<Operation*> Context::start(CollectiveCall& call) {
  const uint32_t workers = settings_.world_size;
  const auto rank = static_cast<uint32_t>(settings_.rank);
  if (auto fine = check(call, workers, rank); !fine) return tl::unexpected(fine.error());
  OperationSpec spec;
  spec.send = static_cast<const std::byte*>(call.send);
  spec.recv = static_cast<std::byte*>(call.recv);
  spec.dtype = call.dtype;
  spec.op = call.op;
  spec.collective = call.collective;
  if (!call.counted) {
    spec.blocks = call_tables_.table_for(call, workers, link_.engine().config().slot_bytes);
    spec.elements = spec.blocks->elements();
  }
  auto operation = start(std::move(spec), {.call = &call});
  if (operation) copy_own(call, CallRegions(call, workers, rank));
  return operation;
}

Result<Operation*> Context::start(const PlanPointer& plan, void* buffer, size_t bytes,
                                  std::string_view function) {
  const auto invalid = [&](const std::string& text) {
    return fail(INA_ERR_INVALID, std::string(function) + ": " + text);
  };
  if (auto fine = redistribution::check_ranks(plan->problem().mesh, settings_.world_size); !fine)
    return invalid(fine.error());
  if (!buffer) return invalid("buffer is NULL");
  if (bytes < plan->peak_bytes())
    return invalid("buffer has " + std::to_string(bytes) + " bytes, the plan needs " +
                   std::to_string(plan->peak_bytes()));
  OperationSpec spec;
  spec.recv = static_cast<std::byte*>(buffer);
  spec.send = spec.recv;
  return start(std::move(spec), {.plan = &plan});
}

Result<Operation*> Context::start(OperationSpec spec, const OperationSource& source) {
  if (callers_.failed() != INA_OK) return callers_.failure();
  const auto lock = progress_.lock();
  if (auto aimed = memory_.aim(spec, source); !aimed) return tl::unexpected(aimed.error());
  if (auto fine = writable_.check(spec, source, now_ns()); !fine)
    return tl::unexpected(fine.error());
  const size_t running = link_.engine().running();
  if (Operation* const collected = operations_.collect(spec, now_ns())) {
    if (link_.engine().running() != running) progress_.send();
    return collected;
  }
  Operation* const operation = operations_.submit(spec, source, now_ns());
  progress_.send();
  return operation;
}

Result<void> Context::check_writable(std::span<const std::byte> memory, std::string_view function,
                                     std::string_view argument) {
  const auto lock = progress_.lock();
  return writable_.check(memory, function, argument, now_ns());
}

// ---- small all-reduces that are made into one

int Context::start_group() {
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  const auto lock = progress_.lock();
  if (operations_.open_group() != 0)
    return set_error(INA_ERR_INVALID,
                     "ina_group_start: a group is open already; groups do not nest");
  if (operations_.start_group(now_ns())) progress_.send();
  return INA_OK;
}

int Context::end_group() {
  {
    const auto lock = progress_.lock();
    if (operations_.open_group() == 0)
      return set_error(INA_ERR_INVALID, "ina_group_end: no group is open");
    operations_.end_group(now_ns());
    if (callers_.failed() == INA_OK) progress_.send();
  }
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  kick_if_running();
  return INA_OK;
}

int Context::refuse_in_group(std::string_view function) {
  if (operations_.open_group() == 0) return INA_OK;
  return set_error(INA_ERR_INVALID, in_group_text(function));
}

int Context::refuse_in_group(std::string_view function, uint32_t group) {
  if (group == 0 || operations_.open_group() != group) return INA_OK;
  return set_error(INA_ERR_INVALID, std::string(function) +
                                        ": the request belongs to a group that is still open; "
                                        "call ina_group_end first");
}

void Context::start_collected(const Operation& operation) {
  if (!operations_.has_collected()) return;
  {
    const auto lock = progress_.lock();
    if (callers_.failed() != INA_OK || !operations_.submit_collected_with(operation, now_ns()))
      return;
    progress_.send();
  }
  kick_if_running();
}

}  // namespace ina::client
