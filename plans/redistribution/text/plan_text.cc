#include "plans/redistribution/text/plan_text.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

#include "plans/redistribution/planner.h"

namespace ina::redistribution {
namespace {

void add_steps(const Plan& plan, std::string& text) {
  const auto to = std::back_inserter(text);
  const Problem& problem = plan.problem();
  const uint64_t bytes = problem.element_bytes;
  fmt::format_to(to, "{:>4}  {:<13}  {:<24}  {:<18}  {:>10}  {:>8}  {:>10}  {:>10}\n", "step",
                 "operation", "layout after it", "tile", "sent", "messages", "us", "in + out");
  fmt::format_to(to, "{:>4}  {:<13}  {:<24}  {:<18}\n", "", "",
                 layout_text(problem.mesh, problem.from),
                 shape_text(tile_shape(problem.mesh, problem.from, problem.shape)));
  size_t number = 0;
  for (const Step& step : plan.steps())
    fmt::format_to(
        to, "{:>4}  {:<13}  {:<24}  {:<18}  {:>10}  {:>8}  {:>10.1f}  {:>10}\n", ++number,
        name_of(step.operation), layout_text(problem.mesh, step.after),
        shape_text(tile_shape(problem.mesh, step.after, problem.shape)),
        bytes_text(step.sent_elements * bytes), step.messages, step.predicted_us,
        bytes_text((step.input_elements + step.output_elements) / plan.pieces().count * bytes));
}

std::string move_text(const Problem& problem, const Step& step) {
  const auto dimension_text = [&](const Move& move) {
    switch (step.operation) {
      case Operation::kDynamicSlice:
        return fmt::format("dimension {} by {}", move.to, axes_text(problem.mesh, move.pushed));
      case Operation::kAllGather:
        return fmt::format("dimension {} along {}", move.from,
                           axes_text(problem.mesh, move.popped));
      default:
        return fmt::format("{} from dimension {} to dimension {}",
                           axes_text(problem.mesh, move.popped), move.from, move.to);
    }
  };
  std::vector<std::string> texts;
  for (const auto& move : step.moves) texts.push_back(dimension_text(move));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string sentence_of(const Problem& problem, const Step& step) {
  switch (step.operation) {
    case Operation::kDynamicSlice:
      return "every rank keeps its part of " + move_text(problem, step) + "; nothing is sent";
    case Operation::kAllToAll:
      return fmt::format("groups of {} ranks exchange chunks: {}", step.group,
                         move_text(problem, step));
    case Operation::kAllGather:
      return fmt::format("groups of {} ranks gather {}", step.group, move_text(problem, step));
    case Operation::kAllPermute:
      return "whole tiles change places, because the next layout has the same tiles on other ranks";
    case Operation::kExchange:
      return fmt::format("every rank sends each of at most {} others just what that needs",
                         step.messages);
  }
  return "";
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 10 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 10 << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} B", bytes);
}

std::string plan_text(const Plan& plan) {
  std::string text;
  const auto to = std::back_inserter(text);
  const Problem& problem = plan.problem();
  fmt::format_to(to, "{} of {} B elements on {} ranks ({}): {}, {} step{}\n\n",
                 shape_text(problem.shape), problem.element_bytes, problem.mesh.ranks(),
                 problem.mesh.text(), name_of(plan.method()), plan.steps().size(),
                 plan.steps().size() == 1 ? "" : "s");
  add_steps(plan, text);
  fmt::format_to(
      to,
      "\nEach rank sends at most {} ({} elements), in {:.1f} us by the cost model; its buffers "
      "hold at "
      "most {}.\n",
      bytes_text(plan.sent_bytes()), plan.sent_bytes() / problem.element_bytes, plan.predicted_us(),
      bytes_text(plan.peak_bytes()));
  if (plan.pieces().count > 1)
    fmt::format_to(
        to, "All steps are done for one piece after another: {} pieces along dimension {}.\n",
        plan.pieces().count, plan.pieces().dimension);
  fmt::format_to(to, "Plan hash: {:016x}\n", plan.hash());
  return text;
}

std::string explanation_text(const Plan& plan) {
  std::string text;
  const auto to = std::back_inserter(text);
  const Problem& problem = plan.problem();
  fmt::format_to(to, "\nThe steps:\n");
  size_t number = 0;
  for (const Step& step : plan.steps())
    fmt::format_to(to, "{:>4}  {}\n", ++number, sentence_of(problem, step));
  fmt::format_to(to,
                 "\nThe costs: {} us an operation, {} us a message, {} Gb/s a rank and "
                 "direction{}. The methods "
                 "by these:\n",
                 problem.costs.operation_us, problem.costs.message_us,
                 problem.costs.bytes_per_us / kBytesPerUsOfGbps,
                 problem.costs.copied_bytes_per_us > 0
                     ? fmt::format(", copies at {} Gb/s",
                                   problem.costs.copied_bytes_per_us / kBytesPerUsOfGbps)
                     : "");
  fmt::format_to(to, "{:<12}  {:>10}  {:>10}  {:>10}  {:>6}\n", "method", "sent", "us", "peak",
                 "steps");
  for (const Method method :
       {Method::kSynthesised, Method::kDirect, Method::kXlaOrder, Method::kGatherSlice}) {
    const auto other = plan_by(problem, method);
    if (other)
      fmt::format_to(to, "{:<12}  {:>10}  {:>10.1f}  {:>10}  {:>6}\n", name_of(method),
                     bytes_text(other->sent_bytes()), other->predicted_us(),
                     bytes_text(other->peak_bytes()), other->steps().size());
    else
      fmt::format_to(to, "{:<12}  {}\n", name_of(method), other.error());
  }
  return text;
}

}  // namespace ina::redistribution
