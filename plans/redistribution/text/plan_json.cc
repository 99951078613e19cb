#include "plans/redistribution/text/plan_json.h"

#include <fmt/format.h>

namespace ina::redistribution {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "ina-redistribution";
constexpr int kVersion = 1;

/// Leaves plan_from_json() by its one way out.
struct Unreadable {
  std::string text;
};

template <class T>
T value_or_throw(Expected<T> value) {
  if (!value) throw Unreadable{value.error()};
  return std::move(*value);
}

ordered_json step_json(const Problem& problem, const Step& step) {
  ordered_json moves = ordered_json::array();
  for (const Move& move : step.moves)
    moves.push_back({{"from", move.from},
                     {"popped", axes_text(problem.mesh, move.popped)},
                     {"to", move.to},
                     {"pushed", axes_text(problem.mesh, move.pushed)}});
  const uint64_t bytes = problem.element_bytes;
  return {{"operation", name_of(step.operation)},
          {"moves", moves},
          {"after", layout_text(problem.mesh, step.after)},
          {"group", step.group},
          {"input_bytes", step.input_elements * bytes},
          {"output_bytes", step.output_elements * bytes},
          {"sent_bytes", step.sent_elements * bytes},
          {"received_bytes", step.received_elements * bytes},
          {"copied_bytes", step.copied_elements * bytes},
          {"messages", step.messages},
          {"predicted_us", step.predicted_us}};
}

Problem read_problem(const json& value) {
  Problem problem{
      value_or_throw(Mesh::parse(value.at("mesh").get<std::string>())), {}, 4, {}, {}, {}, 0};
  problem.shape = value.at("shape").get<std::vector<uint64_t>>();
  problem.element_bytes = value.at("element_bytes").get<uint32_t>();
  problem.from =
      value_or_throw(parse_layout(problem.mesh, value.at("from").get_ref<const std::string&>()));
  problem.to =
      value_or_throw(parse_layout(problem.mesh, value.at("to").get_ref<const std::string&>()));
  const json& costs = value.at("costs");
  problem.costs = {costs.at("operation_us").get<double>(), costs.at("message_us").get<double>(),
                   costs.at("bytes_per_us").get<double>(), costs.value("copied_bytes_per_us", 0.0)};
  problem.limit_bytes = value.at("limit_bytes").get<uint64_t>();
  return problem;
}

StepChoice read_step(const Mesh& mesh, const json& value) {
  const auto operation = operation_named(value.at("operation").get_ref<const std::string&>());
  if (!operation) throw Unreadable{"no operation is called " + value.at("operation").dump()};
  StepChoice step{*operation, {}, {}};
  for (const json& move : value.at("moves"))
    step.moves.push_back(
        {move.at("from").get<uint8_t>(), move.at("to").get<uint8_t>(),
         value_or_throw(parse_axes(mesh, move.at("popped").get_ref<const std::string&>())),
         value_or_throw(parse_axes(mesh, move.at("pushed").get_ref<const std::string&>()))});
  step.after = value_or_throw(parse_layout(mesh, value.at("after").get_ref<const std::string&>()));
  return step;
}

Plan read_plan(const json& value) {
  if (value.at("format") != kFormat || value.at("version") != kVersion)
    throw Unreadable{fmt::format("it is not {}, version {}", kFormat, kVersion)};
  const Problem problem = read_problem(value);
  const auto method = method_named(value.at("method").get_ref<const std::string&>());
  if (!method) throw Unreadable{"no method is called " + value.at("method").dump()};
  std::vector<StepChoice> steps;
  for (const json& step : value.at("steps")) steps.push_back(read_step(problem.mesh, step));
  const json& pieces = value.at("pieces");
  Plan plan = value_or_throw(
      Plan::assemble(problem, *method, steps,
                     {pieces.at("dimension").get<uint8_t>(), pieces.at("count").get<uint64_t>()}));
  const std::string hash = fmt::format("{:016x}", plan.hash());
  if (value.at("hash") != hash)
    throw Unreadable{fmt::format("its hash is {}, but it says {}", hash, value.at("hash").dump())};
  return plan;
}

}  // namespace

ordered_json to_json(const Plan& plan) {
  const Problem& problem = plan.problem();
  ordered_json steps = ordered_json::array();
  for (const Step& step : plan.steps()) steps.push_back(step_json(problem, step));
  return {{"format", kFormat},
          {"version", kVersion},
          {"mesh", problem.mesh.text()},
          {"shape", problem.shape},
          {"element_bytes", problem.element_bytes},
          {"from", layout_text(problem.mesh, problem.from)},
          {"to", layout_text(problem.mesh, problem.to)},
          {"costs",
           {{"operation_us", problem.costs.operation_us},
            {"message_us", problem.costs.message_us},
            {"bytes_per_us", problem.costs.bytes_per_us},
            {"copied_bytes_per_us", problem.costs.copied_bytes_per_us}}},
          {"limit_bytes", problem.limit_bytes},
          {"method", name_of(plan.method())},
          {"pieces",
           {{"dimension", plan.pieces().dimension},
            {"count", plan.pieces().count},
            {"grain", plan.pieces().grain}}},
          {"steps", steps},
          {"peak_bytes", plan.peak_bytes()},
          {"sent_bytes", plan.sent_bytes()},
          {"predicted_us", plan.predicted_us()},
          {"hash", fmt::format("{:016x}", plan.hash())}};
}

Expected<Plan> plan_from_json(const std::string& text) {
  const std::string prefix = "this is no plan: ";
  try {
    return read_plan(json::parse(text));
  } catch (const Unreadable& problem) {
    return tl::unexpected(prefix + problem.text);
  } catch (const json::exception& error) {
    return tl::unexpected(prefix + error.what());
  }
}

}  // namespace ina::redistribution
