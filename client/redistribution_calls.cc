// Context: redistributions of arrays.
#include "client/context.h"

namespace ina::client {

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

}  // namespace ina::client
