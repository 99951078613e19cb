#include "plugins/python/binding/plan.h"

#include <new>

#include <ina/ina.hpp>

namespace ina::python {

namespace {

void check(int status) {
  if (status < 0) throw Exception(status, ina_last_error(nullptr));
}

std::string checked(const char* text) {
  if (!text) throw std::bad_alloc();
  return text;
}

}  // namespace

Plan::Plan(const std::string& mesh, const std::vector<size_t>& shape, const std::string& from,
           const std::string& to, ina_dtype dtype, uint64_t limit_bytes,
           const std::optional<std::string>& method, const std::optional<Costs>& costs) {
  ina_redistribution wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.mesh = mesh.c_str();
  wanted.shape = shape.data();
  wanted.dimensions = shape.size();
  wanted.from = from.c_str();
  wanted.to = to.c_str();
  wanted.dtype = dtype;
  wanted.limit_bytes = limit_bytes;
  wanted.method = method ? method->c_str() : nullptr;
  ina_costs own{sizeof(ina_costs), 0, 0, 0, 0};
  if (costs) {
    own.alpha_us = (*costs)[0];
    own.message_us = (*costs)[1];
    own.gbps = (*costs)[2];
    own.copy_gbps = (*costs)[3];
    wanted.costs = &own;
  }
  ina_plan* plan = nullptr;
  check(ina_plan_create(&wanted, &plan));
  plan_.reset(plan, &ina_plan_free);
}

Plan Plan::parse(const std::string& json) {
  ina_plan* plan = nullptr;
  check(ina_plan_parse(json.c_str(), &plan));
  return Plan(plan);
}

ina_plan_facts Plan::facts() const {
  ina_plan_facts facts{};
  facts.struct_size = sizeof facts;
  check(ina_plan_get_facts(plan_.get(), &facts));
  return facts;
}

std::string Plan::text() const {
  return checked(ina_plan_text(plan_.get()));
}

std::string Plan::json() const {
  return checked(ina_plan_json(plan_.get()));
}

}  // namespace ina::python
