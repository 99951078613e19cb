// Context: fused groups, and what coalescing collects (engine/fused.h).
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
