// ina-redistribute: one rank of a job that redistributes arrays, each case by several methods in
// turn. scripts/bench_redistribute.py starts the ranks.
//
// Says in JSON how long each round of each method took on this rank, and the bytes sent. Every
// element is checked in every round, outside of the time taken; bytes beyond what a plan may use
// are watched. Plans are made for the costs that are measured first. Methods that come to the same
// plan share its rounds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/redistribute/cases.h"
#include "common/command_line.h"
#include "common/json/json.h"
#include "ina/ina.hpp"
#include "plans/redistribution/interpreter.h"

namespace ina::redistribution {
namespace {

using nlohmann::json;

/// The measured methods: the plan as it is chosen, and those that it is compared with.
constexpr std::pair<const char*, const char*> kMethods[] = {{"chosen", nullptr},
                                                            {"synthesised", "synthesised"},
                                                            {"direct", "direct"},
                                                            {"xla", "xla-order"},
                                                            {"naive", "gather-slice"}};
constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

struct Options {
  std::string url;
  int rank = 0;
  int ranks = 4;
  uint64_t cases = 20;
  uint64_t seed = 1;
  uint64_t most_elements = uint64_t{1} << 22;
  uint64_t least_elements = 0;
  int rounds = 5;
};

Context join(const Options& options) {
  ina_config config;
  ina_config_init(&config);
  config.url = options.url.c_str();
  config.job = "redistribute";
  config.rank = options.rank;
  config.world_size = options.ranks;
  return Context(config);
}

/// Those of the users that have as many ranks, and seeded ones.
std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> drawn;
  for (const Case& user : users_cases())
    if (user.problem.mesh.ranks() == static_cast<uint32_t>(options.ranks)) drawn.push_back(user);
  const std::vector<std::vector<uint32_t>> meshes =
      options.ranks == 8 ? std::vector<std::vector<uint32_t>>{{4, 2}, {2, 2, 2}}
                         : std::vector<std::vector<uint32_t>>{{4}, {2, 2}};
  Cases cases(options.seed);
  for (uint64_t i = 0; i < options.cases; ++i)
    drawn.push_back(
        cases.on_mesh(meshes[i % meshes.size()], options.most_elements, options.least_elements));
  // Elements are their own indices.
  for (Case& one : drawn) one.problem.element_bytes = sizeof(Tile::value_type);
  return drawn;
}

RedistributionPlan plan_of(const Problem& problem, const char* method, const ina_costs& costs) {
  const std::string mesh = problem.mesh.text();
  const std::string from = layout_text(problem.mesh, problem.from);
  const std::string to = layout_text(problem.mesh, problem.to);
  ina_redistribution wanted{};
  wanted.mesh = mesh.c_str();
  wanted.shape = problem.shape.data();
  wanted.dimensions = problem.shape.size();
  wanted.from = from.c_str();
  wanted.to = to.c_str();
  wanted.dtype = INA_INT32;
  wanted.method = method;
  wanted.costs = &costs;
  return RedistributionPlan(wanted);
}

/// One method's plan of one case, and its measurements.
class Way {
 public:
  explicit Way(RedistributionPlan plan) : plan_(std::move(plan)), facts_(plan_.facts()) {}

  uint64_t hash() const { return facts_.hash; }

  /// `memory` serves all ways, so that its pages are there.
  void run(Context& context, const Tile& source, const Tile& target, bool timed,
           std::vector<std::byte>& memory) {
    memory.resize(std::max(memory.size(), facts_.buffer_bytes + kGuardBytes));
    const auto buffer = std::span(memory).first(facts_.buffer_bytes);
    const auto guard = std::span(memory).subspan(facts_.buffer_bytes, kGuardBytes);
    std::ranges::fill(guard, kGuard);
    std::ranges::copy(std::as_bytes(std::span(source)), buffer.begin());
    context.barrier();
    const uint64_t sent = context.stats().bytes_sent;
    const auto begin = std::chrono::steady_clock::now();
    context.redistribute(plan_, buffer);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    sent_bytes_ = context.stats().bytes_sent - sent;
    if (timed) samples_us_.push_back(took.count());
    const auto* got = reinterpret_cast<const uint32_t*>(buffer.data());
    for (size_t i = 0; i < target.size(); ++i) wrong_ += got[i] != target[i] ? 1 : 0;
    violations_ += std::ranges::count(guard, kGuard) == kGuardBytes ? 0 : 1;
  }
  json result() const {
    return {{"samples_us", samples_us_},           {"wrong_elements", wrong_},
            {"memory_violations", violations_},    {"sent_bytes", sent_bytes_},
            {"planned_bytes", facts_.sent_bytes},  {"peak_bytes", facts_.buffer_bytes},
            {"predicted_us", facts_.predicted_us}, {"steps", facts_.steps}};
  }

 private:
  RedistributionPlan plan_;
  ina_plan_facts facts_;
  std::vector<double> samples_us_;
  uint64_t wrong_ = 0;
  uint64_t violations_ = 0;
  uint64_t sent_bytes_ = 0;
};

/// One case by all methods.
json measure(Context& context, const Case& one, const ina_costs& costs, const Options& options,
             std::vector<std::byte>& memory) {
  const Problem& problem = one.problem;
  const auto tile = [&](const Layout& layout) {
    return index_tile(problem.mesh, layout, problem.shape, static_cast<uint32_t>(options.rank));
  };
  const Tile source = tile(problem.from), target = tile(problem.to);
  std::vector<Way> ways;
  std::map<std::string, size_t> way_of;
  for (const auto& [name, method] : kMethods) {
    Way way(plan_of(problem, method, costs));
    const auto same = std::ranges::find(ways, way.hash(), &Way::hash);
    way_of[name] = static_cast<size_t>(same - ways.begin());
    if (same == ways.end()) ways.push_back(std::move(way));
  }
  // The first round warms up. Each way has each place in turn: the first one costs more.
  for (int round = 0; round <= options.rounds; ++round)
    for (size_t i = 0; i < ways.size(); ++i)
      ways[(static_cast<size_t>(round) + i) % ways.size()].run(context, source, target, round != 0,
                                                               memory);
  json results = json::array();
  for (const Way& way : ways) results.push_back(way.result());
  return {{"name", one.name}, {"plans", results}, {"plan_of", way_of}};
}

int run(const Options& options) {
  Context context = join(options);
  const ina_costs costs = context.measure_costs();
  json rows = json::array();
  std::vector<std::byte> memory;
  for (const Case& one : cases_of(options))
    rows.push_back(measure(context, one, costs, options, memory));
  context.finalize();
  const json measured = {{"alpha_us", costs.alpha_us},
                         {"message_us", costs.message_us},
                         {"gbps", costs.gbps},
                         {"copy_gbps", costs.copy_gbps}};
  fmt::print("{}\n", json{{"costs", measured}, {"cases", rows}}.dump());
  return 0;
}

}  // namespace
}  // namespace ina::redistribution

int main(int argc, char** argv) {
  ina::redistribution::Options options;
  ina::command_line::App app("One rank that redistributes arrays by several methods");
  app.add_option("--url", options.url, "the switch")->required();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.ranks)->check(ina::command_line::one_of({4, 8}))->required();
  app.add_option("--cases", options.cases)->check(ina::command_line::between<uint64_t>(1, 100'000));
  app.add_option("--seed", options.seed, "of the cases");
  app.add_option("--most-elements", options.most_elements, "of the tiles of all ranks together");
  app.add_option("--least-elements", options.least_elements, "likewise; smaller arrays grow");
  app.add_option("--rounds", options.rounds, "timed")->check(ina::command_line::between(1, 10'000));
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  try {
    return ina::redistribution::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-redistribute: rank {}: {}\n", options.rank, error.what());
    return 1;
  }
}
