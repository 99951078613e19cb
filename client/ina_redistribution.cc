// The C ABI of redistributions. Nothing thrown gets past this file.
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "client/abi.h"
#include "client/calibration.h"
#include "client/handles.h"
#include "ina/ina.h"
#include "plans/redistribution/planner.h"
#include "plans/redistribution/text/plan_json.h"
#include "plans/redistribution/text/plan_text.h"

using ina::client::Context;
using ina::client::global_failure;
using ina::client::guarded;
using ina::client::start_and_wait;
using ina::client::start_with_request;
using ina::redistribution::Expected;
using ina::redistribution::Method;
using ina::redistribution::Plan;
using ina::redistribution::Problem;

struct ina_plan {
  ina::client::PlanPointer plan;
  std::mutex mutex;
  std::string text, json;  ///< under mutex; once they were asked for
};

namespace {

/// Puts `name`, the name of the argument, before the error of `value`, if there is one.
template <class T>
Expected<T> named(const char* name, Expected<T> value) {
  if (value) return value;
  return tl::unexpected(std::string(name) + ": " + value.error());
}

// Size of the struct before it had costs.
constexpr size_t kWithoutCosts = offsetof(ina_redistribution, costs);

// Size of the costs before they had copies.
constexpr size_t kWithoutCopies = offsetof(ina_costs, copy_gbps);

bool is_size_of_costs(size_t struct_size) {
  return struct_size == sizeof(ina_costs) || struct_size == kWithoutCopies;
}

ina::redistribution::CostModel costs_of(const ina_redistribution& wanted) {
  if (wanted.struct_size == kWithoutCosts || !wanted.costs) return {};
  const ina_costs& costs = *wanted.costs;
  const double copy_gbps = costs.struct_size == kWithoutCopies ? 0 : costs.copy_gbps;
  return {costs.alpha_us, costs.message_us, costs.gbps * ina::redistribution::kBytesPerUsOfGbps,
          copy_gbps * ina::redistribution::kBytesPerUsOfGbps};
}

Expected<Problem> problem_of(const ina_redistribution& wanted) {
  for (const auto& [text, name] :
       {std::pair{wanted.mesh, "mesh"}, {wanted.from, "from"}, {wanted.to, "to"}})
    if (!text) return tl::unexpected(std::string(name) + " is NULL");
  if (!wanted.shape) return tl::unexpected<std::string>("shape is NULL");
  if (wanted.dimensions == 0 || wanted.dimensions > ina::redistribution::kMostDimensions)
    return tl::unexpected("an array has 1 to " +
                          std::to_string(ina::redistribution::kMostDimensions) +
                          " dimensions, not " + std::to_string(wanted.dimensions));
  const auto dtype = ina::client::dtype_of(wanted.dtype);
  if (!dtype) return tl::unexpected("dtype " + std::to_string(wanted.dtype) + " is no ina_dtype");
  auto mesh = named("mesh", ina::redistribution::Mesh::parse(wanted.mesh));
  if (!mesh) return tl::unexpected(mesh.error());
  const auto from = named("from", parse_layout(*mesh, wanted.from));
  if (!from) return tl::unexpected(from.error());
  const auto to = named("to", parse_layout(*mesh, wanted.to));
  if (!to) return tl::unexpected(to.error());
  Problem problem{std::move(*mesh),
                  {wanted.shape, wanted.shape + wanted.dimensions},
                  static_cast<uint32_t>(ina::wire_bytes(*dtype)),
                  *from,
                  *to,
                  costs_of(wanted),
                  wanted.limit_bytes};
  if (auto fine = check_problem(problem); !fine) return tl::unexpected(fine.error());
  return problem;
}

Expected<Plan> plan_of(const ina_redistribution& wanted) {
  if (wanted.struct_size != sizeof(ina_redistribution) && wanted.struct_size != kWithoutCosts)
    return tl::unexpected("struct_size " + std::to_string(wanted.struct_size) +
                          " must be sizeof(ina_redistribution), which is " +
                          std::to_string(sizeof(ina_redistribution)));
  if (wanted.struct_size != kWithoutCosts && wanted.costs &&
      !is_size_of_costs(wanted.costs->struct_size))
    return tl::unexpected<std::string>("costs->struct_size must be sizeof(ina_costs)");
  const auto problem = problem_of(wanted);
  if (!problem) return tl::unexpected(problem.error());
  if (!wanted.method) return ina::redistribution::plan(*problem);
  const auto method = ina::redistribution::method_named(wanted.method);
  if (!method)
    return tl::unexpected("no method is called '" + std::string(wanted.method) +
                          "'; there are synthesised, direct, xla-order and gather-slice");
  return plan_by(*problem, *method);
}

/// Hands out what `make()` gives.
template <class Make>
int give(const char* function, const void* input, const char* name, ina_plan** plan, Make&& make) {
  return guarded([&]() -> int {
    const auto invalid = [&](const std::string& text) {
      return global_failure(INA_ERR_INVALID, std::string(function) + ": " + text);
    };
    if (!plan) return invalid("plan is NULL");
    *plan = nullptr;
    if (!input) return invalid(std::string(name) + " is NULL");
    Expected<Plan> made = make();
    if (!made) return invalid(made.error());
    auto handle = std::make_unique<ina_plan>();
    handle->plan = std::make_shared<const Plan>(std::move(*made));
    *plan = handle.release();
    return INA_OK;
  });
}

/// The text that `make()` gives at the first time.
template <class Make>
const char* text_of(ina_plan* plan, std::string ina_plan::*text, Make&& make) {
  const char* given = nullptr;
  guarded([&]() -> int {
    if (!plan) return global_failure(INA_ERR_INVALID, "plan is NULL");
    const std::lock_guard lock(plan->mutex);
    if ((plan->*text).empty()) plan->*text = make(*plan->plan);
    given = (plan->*text).c_str();
    return INA_OK;
  });
  return given;
}

auto starter(ina_context* context, const ina_plan* plan, void* buffer, size_t bytes,
             const char* function) {
  return [=]() -> ina::Result<ina::client::Operation*> {
    if (!plan) return ina::fail(INA_ERR_INVALID, std::string(function) + ": plan is NULL");
    return context->impl->start(plan->plan, buffer, bytes, function);
  };
}

}  // namespace

extern "C" {

int ina_plan_create(const ina_redistribution* wanted, ina_plan** plan) {
  return give("ina_plan_create", wanted, "wanted", plan, [&] { return plan_of(*wanted); });
}

int ina_plan_parse(const char* json, ina_plan** plan) {
  return give("ina_plan_parse", json, "json", plan,
              [&] { return ina::redistribution::plan_from_json(json); });
}

void ina_plan_free(ina_plan* plan) {
  delete plan;
}

int ina_plan_get_facts(const ina_plan* plan, ina_plan_facts* facts) {
  return guarded([&]() -> int {
    if (!plan || !facts || facts->struct_size < sizeof(size_t) ||
        facts->struct_size > sizeof(ina_plan_facts) ||
        facts->struct_size % alignof(ina_plan_facts) != 0)
      return global_failure(INA_ERR_INVALID, plan
                                                 ? "ina_plan_get_facts: facts->struct_size must be "
                                                   "sizeof(ina_plan_facts)"
                                                 : "ina_plan_get_facts: plan is NULL");
    const Plan& made = *plan->plan;
    const Problem& problem = made.problem();
    ina_plan_facts all{};
    all.struct_size = facts->struct_size;
    all.buffer_bytes = made.peak_bytes();
    all.source_bytes = problem.source_elements() * problem.element_bytes;
    all.target_bytes = problem.target_elements() * problem.element_bytes;
    all.sent_bytes = made.sent_bytes();
    all.hash = made.hash();
    all.predicted_us = made.predicted_us();
    all.steps = static_cast<uint32_t>(made.steps().size());
    all.pieces = static_cast<uint32_t>(made.pieces().count);
    std::memcpy(facts, &all, facts->struct_size);
    return INA_OK;
  });
}

const char* ina_plan_text(ina_plan* plan) {
  return text_of(plan, &ina_plan::text,
                 [](const Plan& made) { return plan_text(made) + explanation_text(made); });
}

const char* ina_plan_json(ina_plan* plan) {
  return text_of(plan, &ina_plan::json,
                 [](const Plan& made) { return to_json(made).dump(1) + "\n"; });
}

int ina_measure_costs(ina_context* context, ina_costs* costs) {
  return guarded([&]() -> int {
    constexpr const char* kFunction = "ina_measure_costs";
    if (const int status = ina::client::check_context(context, kFunction); status != INA_OK)
      return status;
    if (const int status = context->impl->refuse_in_group(kFunction); status != INA_OK)
      return status;
    if (!costs || !is_size_of_costs(costs->struct_size))
      return context->impl->set_error(
          INA_ERR_INVALID, std::string(kFunction) + (costs ? ": costs->struct_size must be "
                                                             "sizeof(ina_costs)"
                                                           : ": costs is NULL"));
    const auto measured = ina::client::measure_costs(*context->impl);
    if (!measured)
      return context->impl->set_error(measured.error().status,
                                      std::string(kFunction) + ": " + measured.error().text);
    costs->alpha_us = measured->operation_us;
    costs->message_us = measured->message_us;
    costs->gbps = measured->bytes_per_us / ina::redistribution::kBytesPerUsOfGbps;
    if (costs->struct_size == sizeof(ina_costs))
      costs->copy_gbps = measured->copied_bytes_per_us / ina::redistribution::kBytesPerUsOfGbps;
    return INA_OK;
  });
}

int ina_redistribute(ina_context* context, const ina_plan* plan, void* buffer, size_t buffer_bytes,
                     int64_t timeout_us) {
  constexpr const char* kFunction = "ina_redistribute";
  return start_and_wait(context, kFunction, timeout_us,
                        starter(context, plan, buffer, buffer_bytes, kFunction));
}

int ina_redistribute_async(ina_context* context, const ina_plan* plan, void* buffer,
                           size_t buffer_bytes, ina_request** request) {
  constexpr const char* kFunction = "ina_redistribute_async";
  return start_with_request(context, kFunction, request,
                            starter(context, plan, buffer, buffer_bytes, kFunction));
}

}  // extern "C"
