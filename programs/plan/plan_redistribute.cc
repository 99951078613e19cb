#include "programs/plan/plan_redistribute.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/output_file.h"
#include "programs/plan/redistribution_json.h"
#include "programs/plan/redistribution_svg.h"
#include "scheduler/redistribution/interpreter.h"
#include "scheduler/redistribution/planner.h"

namespace ina::cli {
namespace {

using redistribution::Expected;
using redistribution::Method;
using redistribution::Operation;
using redistribution::Plan;
using redistribution::Problem;
using redistribution::Step;

constexpr int kWrongPlan = 1;
constexpr double kBytesPerUsOfGbps = 125;
/// Of the buffers of all ranks together, and of elements of 4 bytes.
constexpr uint64_t kMostVerifiedBytes = uint64_t{4} << 30;

constexpr const char* kNotation =
    R"(A layout has a part for each dimension of the array, separated by commas:
  -      the dimension is whole on every rank
  x      it is cut along the mesh axis x
  x*y    it is cut by x, then each part by y, as PartitionSpec's ('x', 'y')
  x.0    it is cut by a part of x: x has a part for each prime factor of its size, x.0 the minor-most
Axes that a layout does not name replicate the array. Ranks are numbered in row-major order of the mesh.
Example: P('y', None, 'x') -> P(None, ('x', 'y'), None) is
  ina-plan redistribute --mesh x=4,y=2 --shape 16,16,16 --from y,-,x --to -,x*y,-)";

struct Options {
  std::string mesh;
  std::string shape;
  std::string from;
  std::string to;
  uint32_t element_bytes = 4;
  uint64_t limit_bytes = 0;
  std::optional<Method> method;
  std::optional<uint64_t> ranks;
  double alpha_us = redistribution::CostModel{}.operation_us;
  double message_us = redistribution::CostModel{}.message_us;
  double gbps = redistribution::CostModel{}.bytes_per_us / kBytesPerUsOfGbps;
  std::string json;
  std::string svg;
  bool explain = false;
  bool verify = false;
};

Expected<Problem> problem_of(const Options& options) {
  auto mesh = redistribution::Mesh::parse(options.mesh);
  if (!mesh) return tl::unexpected(mesh.error());
  if (options.ranks)
    if (auto checked = redistribution::check_ranks(*mesh, *options.ranks); !checked)
      return tl::unexpected(checked.error());
  const auto from = redistribution::parse_layout(*mesh, options.from);
  if (!from) return tl::unexpected("--from: " + from.error());
  const auto to = redistribution::parse_layout(*mesh, options.to);
  if (!to) return tl::unexpected("--to: " + to.error());
  Problem problem{std::move(*mesh),
                  {},
                  options.element_bytes,
                  *from,
                  *to,
                  {options.alpha_us, options.message_us, options.gbps * kBytesPerUsOfGbps},
                  options.limit_bytes};
  for (const std::string_view part : redistribution::split(options.shape, ',')) {
    const auto size = redistribution::parse_number(part);
    if (!size)
      return tl::unexpected(
          fmt::format("'{}' is no size of a dimension; a shape is written as 16,16,16", part));
    problem.shape.push_back(*size);
  }
  if (auto checked = redistribution::check_problem(problem); !checked)
    return tl::unexpected(checked.error());
  return problem;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 10 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 10 << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} B", bytes);
}

void print_steps(const Plan& plan) {
  const Problem& problem = plan.problem();
  const uint64_t bytes = problem.element_bytes;
  fmt::print("{:>4}  {:<13}  {:<24}  {:<18}  {:>10}  {:>8}  {:>10}  {:>10}\n", "step", "operation",
             "layout after it", "tile", "sent", "messages", "us", "in + out");
  fmt::print("{:>4}  {:<13}  {:<24}  {:<18}\n", "", "", layout_text(problem.mesh, problem.from),
             redistribution::shape_text(tile_shape(problem.mesh, problem.from, problem.shape)));
  size_t number = 0;
  for (const Step& step : plan.steps())
    fmt::print(
        "{:>4}  {:<13}  {:<24}  {:<18}  {:>10}  {:>8}  {:>10.1f}  {:>10}\n", ++number,
        name_of(step.operation), layout_text(problem.mesh, step.after),
        redistribution::shape_text(tile_shape(problem.mesh, step.after, problem.shape)),
        bytes_text(step.sent_elements * bytes), step.messages, step.predicted_us,
        bytes_text((step.input_elements + step.output_elements) / plan.pieces().count * bytes));
}

void print_plan(const Plan& plan) {
  const Problem& problem = plan.problem();
  fmt::print("{} of {} B elements on {} ranks ({}): {}, {} step{}\n\n",
             redistribution::shape_text(problem.shape), problem.element_bytes, problem.mesh.ranks(),
             problem.mesh.text(), name_of(plan.method()), plan.steps().size(),
             plan.steps().size() == 1 ? "" : "s");
  print_steps(plan);
  fmt::print(
      "\nEach rank sends at most {} ({} elements), in {:.1f} us by the cost model; its buffers "
      "hold at "
      "most {}.\n",
      bytes_text(plan.sent_bytes()), plan.sent_bytes() / problem.element_bytes, plan.predicted_us(),
      bytes_text(plan.peak_bytes()));
  if (plan.pieces().count > 1)
    fmt::print("All steps are done for one piece after another: {} pieces along dimension {}.\n",
               plan.pieces().count, plan.pieces().dimension);
  fmt::print("Plan hash: {:016x}\n", plan.hash());
}

std::string move_text(const Problem& problem, const Step& step) {
  const auto dimension_text = [&](const redistribution::Move& move) {
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

void print_explanation(const Plan& plan) {
  const Problem& problem = plan.problem();
  fmt::print("\nThe steps:\n");
  size_t number = 0;
  for (const Step& step : plan.steps())
    fmt::print("{:>4}  {}\n", ++number, sentence_of(problem, step));
  fmt::print(
      "\nThe costs: {} us an operation, {} us a message, {} Gb/s a rank and direction. The methods "
      "by these:\n",
      problem.costs.operation_us, problem.costs.message_us,
      problem.costs.bytes_per_us / kBytesPerUsOfGbps);
  fmt::print("{:<12}  {:>10}  {:>10}  {:>10}  {:>6}\n", "method", "sent", "us", "peak", "steps");
  for (const Method method :
       {Method::kSynthesised, Method::kDirect, Method::kXlaOrder, Method::kGatherSlice}) {
    const auto other = plan_by(problem, method);
    if (other)
      fmt::print("{:<12}  {:>10}  {:>10.1f}  {:>10}  {:>6}\n", name_of(method),
                 bytes_text(other->sent_bytes()), other->predicted_us(),
                 bytes_text(other->peak_bytes()), other->steps().size());
    else
      fmt::print("{:<12}  {}\n", name_of(method), other.error());
  }
}

/// The exit status. What was seen is said unless the output is for programs and all is right.
int verify_plan(const Plan& plan, bool is_for_people) {
  const Problem& problem = plan.problem();
  const uint64_t largest = plan.peak_bytes() / problem.element_bytes * sizeof(uint32_t);
  if (largest > kMostVerifiedBytes / problem.mesh.ranks()) {
    fmt::print(stderr,
               "ina-plan: --verify would need {} for all ranks, and takes at most {}; verify a "
               "smaller array\n",
               bytes_text(largest * problem.mesh.ranks()), bytes_text(kMostVerifiedBytes));
    return command_line::kExitUsage;
  }
  const auto seen = redistribution::verify(plan);
  if (!seen) {
    fmt::print(stderr, "ina-plan: {}\n", seen.error());
    return command_line::kExitUsage;
  }
  const bool is_right = seen->wrong_elements == 0 && seen->peak_bytes <= plan.peak_bytes();
  if (is_right && !is_for_people) return 0;
  fmt::print(is_right ? stdout : stderr,
             "\nCarried out in memory: {} of {} elements on {} ranks are wrong; a rank sent at "
             "most {}, and its "
             "buffers held at most {}.\n",
             seen->wrong_elements, seen->elements_checked, problem.mesh.ranks(),
             bytes_text(seen->most_sent_bytes()), bytes_text(seen->peak_bytes));
  return is_right ? 0 : kWrongPlan;
}

int complain(const std::string& text) {
  fmt::print(stderr, "ina-plan: {}\n", command_line::printable(text));
  return command_line::kExitUsage;
}

int run(const Options& options) {
  const auto problem = problem_of(options);
  if (!problem) return complain(problem.error());
  auto json = OutputFile::open(options.json);
  if (!json) return complain(json.error().text);
  auto svg = OutputFile::open(options.svg);
  if (!svg) return complain(svg.error().text);
  const auto plan =
      options.method ? plan_by(*problem, *options.method) : redistribution::plan(*problem);
  if (!plan) return complain(plan.error());
  if (auto written = json->write(to_json(*plan).dump(1) + "\n"); !written)
    return complain(written.error().text);
  if (auto written = svg->write(timeline_svg(*plan)); !written)
    return complain(written.error().text);
  const bool is_for_people = options.json != "-" && options.svg != "-";
  if (is_for_people) print_plan(*plan);
  if (is_for_people && options.explain) print_explanation(*plan);
  return options.verify ? verify_plan(*plan, is_for_people) : 0;
}

void add_options(CLI::App& command, Options& options) {
  using command_line::Choices;
  command.add_option("--mesh", options.mesh, "the axes and their sizes, as x=4,y=2")->required();
  command.add_option("--shape", options.shape, "of the whole array, as 16,16,16")->required();
  command.add_option("--from", options.from, "the layout that there is (see below)")->required();
  command.add_option("--to", options.to, "the layout that is wanted")->required();
  command.add_option("--element-bytes", options.element_bytes, "size of an element")
      ->check(command_line::between<uint32_t>(1, 4096))
      ->capture_default_str();
  command
      .add_option(
          "--limit", options.limit_bytes,
          "most that a rank's buffers may hold, as 64MiB; source, target and what is between")
      ->transform(command_line::size())
      ->type_name("SIZE");
  command_line::add_choice(command, "--method", options.method,
                           Choices<std::optional<Method>>{{"best", std::nullopt},
                                                          {"synthesised", Method::kSynthesised},
                                                          {"direct", Method::kDirect},
                                                          {"xla-order", Method::kXlaOrder},
                                                          {"gather-slice", Method::kGatherSlice}},
                           "how to plan");
  command.add_option("--ranks", options.ranks, "of the job; checked against the mesh");
  command.add_option("--alpha-us", options.alpha_us, "cost of an operation")
      ->check(command_line::at_least(0.0))
      ->capture_default_str();
  command.add_option("--message-us", options.message_us, "cost of a message to one other rank")
      ->check(command_line::at_least(0.0))
      ->capture_default_str();
  command.add_option("--gbps", options.gbps, "bandwidth of a rank, each direction")
      ->check(command_line::positive())
      ->capture_default_str();
  command.add_option("--json", options.json, "write the plan to this file; - is standard output");
  command.add_option("--svg", options.svg, "write a timeline to this file; - is standard output");
  command.add_flag("--explain", options.explain,
                   "what each step does, and what other methods cost");
  command.add_flag("--verify", options.verify,
                   "carry the plan out in memory and check every element on every rank");
}

}  // namespace

void add_redistribute(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* command = app.add_subcommand(
      "redistribute", "Plan how an array changes its layout on a mesh, within a memory limit");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->footer(kNotation);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ina::cli
