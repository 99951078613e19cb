#include "programs/plan/plan_redistribute.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/output_file.h"
#include "plans/redistribution/interpreter.h"
#include "plans/redistribution/planner.h"
#include "plans/redistribution/text/plan_json.h"
#include "plans/redistribution/text/plan_text.h"
#include "programs/plan/redistribution_svg.h"

namespace ina::cli {
namespace {

using redistribution::bytes_text;
using redistribution::Expected;
using redistribution::Method;
using redistribution::Plan;
using redistribution::Problem;

constexpr int kWrongPlan = 1;
/// Limit for the buffers of all ranks together, with elements of 4 bytes.
constexpr uint64_t kMostVerifiedBytes = uint64_t{4} << 30;

constexpr const char* kNotation =
    R"(A layout has a part for each dimension of the array, separated by commas:
  -      the dimension is whole on every rank
  x      it is cut along the mesh axis x
  x*y    it is cut by x, then each part by y, as PartitionSpec's ('x', 'y')
  x.0    it is cut by a part of x: x has a part for each prime factor of its size, the least first and
         minor-most; of 6 ranks x.0 has 2 and x.1 has 3
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
  double gbps = redistribution::CostModel{}.bytes_per_us / redistribution::kBytesPerUsOfGbps;
  double copy_gbps = 0;
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
  Problem problem{
      std::move(*mesh),
      {},
      options.element_bytes,
      *from,
      *to,
      {options.alpha_us, options.message_us, options.gbps * redistribution::kBytesPerUsOfGbps,
       options.copy_gbps * redistribution::kBytesPerUsOfGbps},
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

/// The exit status. Prints the measurements unless the output is for programs and all is right.
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
  fmt::print(stderr, "ina-plan: {}\n", ina::printable(text));
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
  if (is_for_people) fmt::print("{}", plan_text(*plan));
  if (is_for_people && options.explain) fmt::print("{}", explanation_text(*plan));
  return options.verify ? verify_plan(*plan, is_for_people) : 0;
}

void add_options(command_line::App& command, Options& options) {
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
      ->check(command_line::at_least<uint64_t>(1))
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
  command
      .add_option("--copy-gbps", options.copy_gbps,
                  "rate at which a rank orders a tile in its memory; 0: that takes no time")
      ->check(command_line::at_least(0.0))
      ->capture_default_str();
  command.add_option("--json", options.json, "write the plan to this file; - is standard output");
  command.add_option("--svg", options.svg, "write a timeline to this file; - is standard output");
  command.add_flag("--explain", options.explain,
                   "what each step does, and what other methods cost");
  command.add_flag("--verify", options.verify,
                   "carry the plan out in memory and check every element on every rank");
}

}  // namespace

void add_redistribute(command_line::App& app, std::function<int()>& chosen) {
  command_line::App* command = app.add_subcommand(
      "redistribute", "Plan how an array changes its layout on a mesh, within a memory limit");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->footer(kNotation);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ina::cli
