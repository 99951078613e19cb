#include "programs/plan/plan_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/command_line.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "plans/themis/planner.h"
#include "plans/themis/text/topology_file.h"
#include "programs/plan/plan_json.h"
#include "programs/plan/plan_svg.h"

namespace ina::cli {
namespace {

using themis::Planned;
using themis::Scheduler;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr double kPicosPerUs = 1e6;

struct Options {
  std::string topology_file;
  themis::Collective collective = themis::Collective::kAllReduce;
  uint64_t bytes = 0;
  std::vector<std::string> also;
  themis::PlanOptions plan;
  std::optional<Scheduler> against;
  bool in_network_given = false;
  bool aggregating_switches = false;
  bool for_switches = false;
  bool json = false;
  std::string svg_file;
};

template <class Enum, size_t kCount>
command_line::Choices<Enum> choices_of(const std::array<std::string_view, kCount>& names) {
  command_line::Choices<Enum> choices;
  for (size_t i = 0; i < kCount; ++i)
    choices.emplace_back(std::string(names[i]), static_cast<Enum>(i));
  return choices;
}

/// A choice that has no default.
template <class Enum>
command_line::Option* add_optional_choice(command_line::App& app, const std::string& option,
                                          std::optional<Enum>& value,
                                          command_line::Choices<Enum> choices,
                                          const std::string& help) {
  std::vector<std::string> names;
  for (const auto& [name, known] : choices) names.push_back(name);
  const auto set = [&value, choices = std::move(choices)](size_t i) { value = choices[i].second; };
  return command_line::add_names(app, option, std::move(names), "", set, help);
}

/// "all-reduce:64MiB@250": the collective, its size, and its earliest begin in microseconds.
Result<themis::Request> parse_request(const std::string& text) {
  const std::string wrong = "--also: '" + ina::printable(text) +
                            "' is not COLLECTIVE:SIZE or COLLECTIVE:SIZE@MICROSECONDS";
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return fail(INA_ERR_INVALID, wrong);
  const size_t at = text.find('@', colon);
  const auto known = std::ranges::find(themis::kCollectiveNames, text.substr(0, colon));
  if (known == themis::kCollectiveNames.end()) return fail(INA_ERR_INVALID, wrong);
  themis::Request request;
  request.collective = static_cast<themis::Collective>(known - themis::kCollectiveNames.begin());
  std::string size = text.substr(colon + 1, at == std::string::npos ? at : at - colon - 1);
  if (!command_line::size()(size).empty() || !command_line::read_number(size, request.bytes))
    return fail(INA_ERR_INVALID, wrong);
  double issue_us = 0;
  if (at != std::string::npos &&
      (!command_line::read_number(text.substr(at + 1), issue_us) || !(issue_us >= 0) ||
       issue_us > static_cast<double>(themis::kMostIssuePs) / kPicosPerUs))
    return fail(INA_ERR_INVALID, wrong);
  request.issue_ps = static_cast<themis::Picos>(std::llround(issue_us * kPicosPerUs));
  return request;
}

Result<std::vector<themis::Request>> requests_of(const Options& options) {
  std::vector<themis::Request> requests = {
      {.collective = options.collective, .bytes = options.bytes}};
  for (const std::string& text : options.also) {
    const auto request = parse_request(text);
    if (!request) return tl::unexpected(request.error());
    requests.push_back(*request);
  }
  return requests;
}

Result<themis::Topology> topology_of(const Options& options) {
  auto topology = themis::load_topology_file(options.topology_file);
  if (!topology) {
    std::string text;
    for (const yaml::Error& error : topology.error())
      text += (text.empty() ? "" : "\n") + error.to_string();
    return fail(INA_ERR_INVALID, text);
  }
  if (options.for_switches) return themis::carried_by_switches(std::move(*topology));
  return options.aggregating_switches ? themis::with_aggregating_switches(std::move(*topology))
                                      : std::move(*topology);
}

double us(themis::Picos ps) {
  return static_cast<double>(ps) / kPicosPerUs;
}

double percent(themis::Picos part, themis::Picos whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// "1>2>3: 40, 2>1>3: 24": how many chunks take which order first.
std::string orders_text(const themis::Plan& plan) {
  std::map<std::string, int> counts;
  for (const themis::Chunk& chunk : plan.chunks) {
    std::string order;
    for (const themis::Stage& stage : chunk.stages) {
      if (stage.phase != chunk.stages.front().phase && stage.phase != themis::Phase::kAllReduce)
        break;
      order += fmt::format("{}{}{}", order.empty() ? "" : ">", stage.dimension + 1,
                           stage.in_network ? "*" : "");
    }
    ++counts[order];
  }
  std::string text;
  for (const auto& [order, count] : counts)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", order, count);
  return text;
}

void print_dimensions(const Planned& planned) {
  fmt::print("{:>2}  {:<22} {:>8} {:>6} {:>16} {:>16} {:>12} {:>8} {:>8}\n", "", "dimension",
             "Gb/s", "steps", "bytes sent", "bytes received", "busy [us]", "sends", "gets");
  const std::vector<themis::Load> loads = themis::loads_of(planned.plan);
  for (size_t d = 0; d < loads.size(); ++d) {
    const themis::Dimension& own = planned.plan.topology.dimensions[d];
    fmt::print("{:>2}  {:<22} {:>8.6g} {:>6} {:>16} {:>16} {:>12.1f} {:>6.1f} % {:>6.1f} %\n",
               d + 1, own.name, static_cast<double>(own.bits_per_s) * 1e-9,
               planned.plan.order[d].size(), loads[d].tx_bytes, loads[d].rx_bytes,
               us(std::max(loads[d].tx_ps, loads[d].rx_ps)),
               percent(loads[d].tx_ps, planned.timeline.end_ps),
               percent(loads[d].rx_ps, planned.timeline.end_ps));
  }
}

void print_requests(const Planned& planned) {
  if (planned.plan.requests.size() == 1) return;
  for (size_t r = 0; r < planned.plan.requests.size(); ++r) {
    const themis::Request& request = planned.plan.requests[r];
    fmt::print("collective {}: {} of {} bytes, from {:.1f} us to {:.1f} us\n", r + 1,
               themis::name(request.collective), request.bytes, us(request.issue_ps),
               us(planned.timeline.request_end_ps[r]));
  }
}

std::string summary(Scheduler scheduler, const Planned& planned) {
  const themis::Picos ideal_ps = themis::ideal_ps(planned.plan);
  return fmt::format("{}: predicted {:.1f} us, ideal {:.1f} us, utilisation {:.1f} %",
                     themis::name(scheduler), us(planned.timeline.end_ps), us(ideal_ps),
                     percent(ideal_ps, planned.timeline.end_ps));
}

void print_plan(Scheduler scheduler, const Planned& planned) {
  fmt::print("{}\n", summary(scheduler, planned));
  fmt::print("plan {:016x}, chunks by order of dimensions{}: {}\n", themis::hash_of(planned.plan),
             std::ranges::any_of(planned.plan.topology.dimensions, &themis::Dimension::aggregates)
                 ? " (*: aggregated by the switch)"
                 : "",
             orders_text(planned.plan));
  print_requests(planned);
  print_dimensions(planned);
}

/// "all-reduce of 1048576 bytes", "all-reduce and 2 others of 3145728 bytes together"
std::string requests_text(const std::vector<themis::Request>& requests) {
  const auto first = themis::name(requests[0].collective);
  if (requests.size() == 1) return fmt::format("{} of {} bytes", first, requests[0].bytes);
  uint64_t bytes = 0;
  for (const themis::Request& request : requests) bytes += request.bytes;
  return fmt::format("{} and {} other{} of {} bytes together", first, requests.size() - 1,
                     requests.size() > 2 ? "s" : "", bytes);
}

void print_text(const Options& options, const Planned& own, const std::optional<Planned>& other,
                themis::Picos one_after_another_ps) {
  const themis::Plan& plan = own.plan;
  fmt::print("{} in {}, {} participants, {} chunks\n\n", requests_text(plan.requests),
             plan.topology.name.empty() ? options.topology_file : plan.topology.name,
             plan.topology.participants(), plan.chunks.size());
  print_plan(options.plan.scheduler, own);
  if (plan.requests.size() > 1)
    fmt::print(
        "one after the other they take {:.1f} us, {:.3f} times as long\n", us(one_after_another_ps),
        static_cast<double>(one_after_another_ps) / static_cast<double>(own.timeline.end_ps));
  if (!other) return;
  fmt::print("\n");
  print_plan(*options.against, *other);
  fmt::print("\n{} is {:.3f} times as fast as {}\n", themis::name(options.plan.scheduler),
             static_cast<double>(other->timeline.end_ps) / static_cast<double>(own.timeline.end_ps),
             themis::name(*options.against));
}

void print_json(const Options& options, const Planned& own, const std::optional<Planned>& other,
                themis::Picos one_after_another_ps) {
  nlohmann::json json = json_of(own.plan, own.timeline);
  json["one_after_another_us"] = us(one_after_another_ps);
  json["scheduler"] = themis::name(options.plan.scheduler);
  if (other) {
    json["against"] = json_of(other->plan, other->timeline);
    json["against"]["scheduler"] = themis::name(*options.against);
  }
  fmt::print("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string svg_of(const Options& options, const Planned& own,
                   const std::optional<Planned>& other) {
  std::vector<SvgPanel> panels;
  if (other) panels.push_back({summary(*options.against, *other), &other->plan, &other->timeline});
  panels.push_back({summary(options.plan.scheduler, own), &own.plan, &own.timeline});
  return draw_svg(panels);
}

int complain(const std::string& text, int status) {
  fmt::print(stderr, "ina-plan: {}\n", text);
  return status;
}

int run_collective(Options options) {
  // As in the paper, which compares nothing.
  if (!options.plan.or_baseline && !options.plan.carry_loads) options.plan.carry_loads = false;
  if (options.for_switches) options.plan.in_network = themis::InNetwork::kAlways;
  auto svg = OutputFile::open(options.svg_file);
  if (!svg) return complain(svg.error().text, command_line::kExitUsage);
  const auto topology = topology_of(options);
  if (!topology) return complain(topology.error().text, command_line::kExitUsage);
  const auto requests = requests_of(options);
  if (!requests) return complain(requests.error().text, command_line::kExitUsage);
  const auto own = themis::make_plan(*topology, *requests, options.plan);
  if (!own) return complain(own.error().text, command_line::kExitUsage);
  std::optional<Planned> other;
  if (options.against) {
    themis::PlanOptions against = options.plan;
    against.scheduler = *options.against;
    against.discipline.reset();
    // A plan with aggregating switches is compared with the same network without them.
    if (options.against == Scheduler::kBaseline && !options.for_switches &&
        !options.in_network_given)
      against.in_network = themis::InNetwork::kNever;
    other = themis::make_plan(*topology, *requests, against).value();
  }
  if (const auto written = svg->write(svg->is_wanted() ? svg_of(options, *own, other) : "");
      !written)
    return complain(written.error().text, kFailed);
  const themis::Picos alone_ps =
      requests->size() == 1
          ? own->timeline.end_ps
          : themis::one_after_another_ps(*topology, *requests, options.plan).value();
  if (options.json)
    print_json(options, *own, other, alone_ps);
  else
    print_text(options, *own, other, alone_ps);
  return std::fflush(stdout) == 0 ? kDone : kFailed;
}

void add_plan_options(command_line::App& app, themis::PlanOptions& plan) {
  command_line::add_choice(app, "--scheduler", plan.scheduler,
                           choices_of<Scheduler>(themis::kSchedulerNames),
                           "How chunks get their order of dimensions");
  add_optional_choice(app, "--within", plan.discipline,
                      choices_of<themis::Discipline>(themis::kDisciplineNames),
                      "What goes first within a dimension; without it what suits\nthe scheduler");
  app.add_option("--chunks", plan.chunks, "Of each collective, at most")
      ->check(command_line::between(1u, themis::kMostChunks))
      ->capture_default_str();
  app.add_option("--element-bytes", plan.element_bytes, "What cannot be divided")
      ->check(command_line::between(1u, themis::kMostElementBytes))
      ->capture_default_str();
  command_line::Option* const carry = app.add_flag_callback(
      "--carry-loads", [&plan] { plan.carry_loads = true; },
      "Of several collectives each goes on from the loads of those before\nit; without, what is "
      "faster");
  app.add_flag_callback(
         "--fresh-loads", [&plan] { plan.carry_loads = false; },
         "Of several collectives each begins without load")
      ->excludes(carry);
  app.add_flag("!--strict", plan.or_baseline,
               "The scheduler themis as in the paper, even where the baseline, or\nseveral "
               "collectives in turn, are faster");
  command_line::add_choice(app, "--in-network", plan.in_network,
                           {{"by-cost", themis::InNetwork::kByLoad},
                            {"never", themis::InNetwork::kNever},
                            {"always", themis::InNetwork::kAlways}},
                           "Whether chunks go through aggregating switches");
  app.add_option("--evaluations", plan.evaluations, "Plans that --scheduler search simulates")
      ->check(command_line::between(1u, 1'000'000u))
      ->capture_default_str();
  app.add_option("--seed", plan.seed, "Of --scheduler search")->capture_default_str();
}

}  // namespace

void add_collective(command_line::App& app, std::function<int()>& chosen) {
  const auto options = std::make_shared<Options>();
  command_line::App* command = app.add_subcommand(
      "collective", "A collective over the dimensions of a network: steps, bytes, time");
  command->add_option("--topology", options->topology_file, "The network's dimensions, as YAML")
      ->required();
  command_line::add_choice(*command, "--collective", options->collective,
                           choices_of<themis::Collective>(themis::kCollectiveNames), "Which");
  command->add_option("--bytes", options->bytes, "Of the whole vector, e.g. 1GiB")
      ->required()
      ->transform(command_line::size())
      ->type_name("SIZE");
  command
      ->add_option("--also", options->also,
                   "Another one at the same time, COLLECTIVE:SIZE, or from a time\n"
                   "on, COLLECTIVE:SIZE@MICROSECONDS; may be repeated")
      ->take_all();
  add_plan_options(*command, options->plan);
  add_optional_choice(*command, "--against", options->against,
                      choices_of<Scheduler>(themis::kSchedulerNames),
                      "Compare with the plan of this scheduler; the baseline does not\n"
                      "go through aggregating switches, unless --in-network is given\n"
                      "or the plan is --for-switches");
  command->get_option("--in-network")->each([options](const std::string&) {
    options->in_network_given = true;
  });
  command_line::Option* const switches =
      command->add_flag("--aggregating-switches", options->aggregating_switches,
                        "Switches of all halving-doubling dimensions aggregate");
  command
      ->add_flag("--for-switches", options->for_switches,
                 "Plan as libina does: all dimensions are switches that\naggregate, whatever their "
                 "kinds")
      ->excludes(switches)
      ->excludes("--in-network");
  command->add_flag("-j,--json", options->json, "JSON, for programs");
  command->add_option("--svg", options->svg_file, "Draw what each dimension does when, as SVG");
  command->callback(
      [options, &chosen] { chosen = [options] { return run_collective(*options); }; });
}

}  // namespace ina::cli
