// redistribute_bench: plans seeded redistributions, carries every plan out in memory and checks
// each element on each rank, and compares their modelled times with those of three baselines.
// Nothing is sent over a network: times are the cost model's.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/redistribute/cases.h"
#include "common/command_line.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "plans/redistribution/interpreter.h"
#include "plans/redistribution/planner.h"

namespace ina::redistribution {
namespace {

using nlohmann::ordered_json;

/// Bound of the tiles of all ranks together, so that a case needs no more than some hundred MB.
constexpr uint64_t kMostElements = uint64_t{1} << 24;
/// Gather-all holds the whole array on every rank; beyond this it is counted, not carried out.
constexpr uint64_t kMostCarriedOut = uint64_t{1} << 27;
/// Limit of memory, as a multiple of the larger of source and target.
constexpr double kTightLimit = 1.25;

struct Options {
  uint64_t cases = 600;
  uint64_t seed = 1;
  std::string json = "-";
};

constexpr Method kBaselines[] = {Method::kXlaOrder, Method::kGatherSlice, Method::kDirect};

/// Ratios of times; a case in which the plan costs nothing has none.
class Ratios {
 public:
  void add(double baseline_us, double us) {
    if (us > 0) values_.push_back(baseline_us / us);
  }
  double geomean() const {
    double sum = 0;
    for (const double value : values_) sum += std::log(value);
    return values_.empty() ? 1 : std::exp(sum / static_cast<double>(values_.size()));
  }
  double most() const {
    return values_.empty() ? 1 : *std::max_element(values_.begin(), values_.end());
  }

 private:
  std::vector<double> values_;
};

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::min(values.size() - 1, at == 0 ? 0 : at - 1)];
}

/// Processor time of this thread: others that use the machine add nothing to it.
double thread_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

/// The plan, and the time that it took, in ms.
std::pair<Expected<Plan>, double> timed_plan(const Problem& problem) {
  const double start_ms = thread_ms();
  auto made = plan(problem);
  return {std::move(made), thread_ms() - start_ms};
}

/// The results of carrying plans out.
struct Proof {
  uint64_t carried_out = 0;
  uint64_t elements = 0;
  uint64_t failures = 0;
  uint64_t memory_violations = 0;

  /// `most_bytes`: that the buffers may hold.
  void check(const std::string& name, const Plan& plan, uint64_t most_bytes) {
    const uint64_t tile = plan.largest_tile_elements();
    if (tile > kMostCarriedOut / plan.problem().mesh.ranks()) return;
    const auto seen = verify(plan);
    ++carried_out;
    if (!seen || seen->wrong_elements != 0 || seen->most_sent_bytes() > plan.sent_bytes()) {
      ++failures;
      fmt::print(stderr, "wrong: {}, {}\n", name, name_of(plan.method()));
      return;
    }
    elements += seen->elements_checked;
    if (seen->peak_bytes > most_bytes) {
      ++memory_violations;
      fmt::print(stderr, "too much memory: {}, {}: {} bytes, not {}\n", name,
                 name_of(plan.method()), seen->peak_bytes, most_bytes);
    }
  }
};

uint64_t larger_end_bytes(const Problem& problem) {
  return std::max(problem.source_elements(), problem.target_elements()) * problem.element_bytes;
}

/// The cases under one set of costs.
class Comparison {
 public:
  /// `proof`: where plans are carried out; none where only times are wanted.
  void add(const Case& drawn, Proof* proof) {
    const auto [made, took_ms] = timed_plan(drawn.problem);
    if (!made) throw std::runtime_error(drawn.name + ": " + made.error());
    planning_ms_.push_back(took_ms);
    ++chosen_[name_of(made->method())];
    const double us = made->predicted_us();
    free_ += us == 0 ? 1 : 0;
    double best_us = INFINITY;
    for (const Method method : kBaselines) {
      const auto baseline = plan_by(drawn.problem, method);
      ratios_[method].add(baseline->predicted_us(), us);
      best_us = std::min(best_us, baseline->predicted_us());
      if (proof != nullptr) proof->check(drawn.name, *baseline, baseline->peak_bytes());
    }
    best_.add(best_us, us);
    synthesised_.add(plan_by(drawn.problem, Method::kXlaOrder)->predicted_us(),
                     plan_by(drawn.problem, Method::kSynthesised)->predicted_us());
    if (proof == nullptr) return;
    prove(drawn, *made, *proof);
  }

  ordered_json json() const {
    const auto& xla = ratios_.at(Method::kXlaOrder);
    const auto& naive = ratios_.at(Method::kGatherSlice);
    const auto& direct = ratios_.at(Method::kDirect);
    return {{"cases", planning_ms_.size()},
            {"free_cases", free_},
            {"geomean_vs_xla", xla.geomean()},
            {"max_vs_xla", xla.most()},
            {"geomean_vs_naive", naive.geomean()},
            {"max_vs_naive", naive.most()},
            {"geomean_vs_direct", direct.geomean()},
            {"max_vs_direct", direct.most()},
            {"geomean_vs_best_baseline", best_.geomean()},
            {"synthesised_geomean_vs_xla", synthesised_.geomean()},
            {"synthesised_max_vs_xla", synthesised_.most()},
            {"chosen", chosen_},
            {"planning_ms_p99", percentile(planning_ms_, .99)}};
  }
  uint64_t limited() const { return limited_; }

 private:
  /// The chosen plan, the synthesised one, and one under a tight limit.
  void prove(const Case& drawn, const Plan& made, Proof& proof) {
    const Problem& problem = drawn.problem;
    proof.check(drawn.name, made, made.peak_bytes());
    const auto synthesised = plan_by(problem, Method::kSynthesised);
    proof.check(drawn.name, *synthesised, synthesised->peak_bytes());
    if (synthesised->largest_tile_elements() * problem.element_bytes > larger_end_bytes(problem))
      ++proof.memory_violations;
    Problem tight = problem;
    tight.limit_bytes =
        static_cast<uint64_t>(static_cast<double>(larger_end_bytes(problem)) * kTightLimit);
    const auto limited = plan(tight);
    if (!limited) return;  // no cut is fine enough
    ++limited_;
    proof.check(drawn.name + ", limited", *limited, tight.limit_bytes);
  }

  std::vector<double> planning_ms_;
  std::map<Method, Ratios> ratios_;
  Ratios best_;
  Ratios synthesised_;
  std::map<std::string, uint64_t> chosen_;
  uint64_t free_ = 0;
  uint64_t limited_ = 0;
};

std::vector<Case> drawn_cases(const Options& options) {
  Cases cases(options.seed);
  std::vector<Case> drawn = users_cases();
  for (uint64_t i = 0; i < options.cases; ++i) drawn.push_back(cases.small(kMostElements));
  return drawn;
}

ordered_json costs_json(const CostModel& costs) {
  return {{"operation_us", costs.operation_us},
          {"message_us", costs.message_us},
          {"bytes_per_us", costs.bytes_per_us}};
}

/// How much the gain depends on the costs.
ordered_json by_costs(const std::vector<Case>& cases) {
  const std::pair<const char*, CostModel> kModels[] = {
      {"10 Gb/s, software switch (assumed)", {}},
      {"100 Gb/s, software switch (assumed)", {20, 0.3, 12'500}},
      {"10 Gb/s, 10 us a message (assumed)", {20, 10, 1250}},
      {"bytes alone", {0, 0, 1250}},
  };
  ordered_json rows = ordered_json::array();
  for (const auto& [name, costs] : kModels) {
    Comparison comparison;
    for (Case drawn : cases) {
      drawn.problem.costs = costs;
      comparison.add(drawn, nullptr);
    }
    ordered_json row = {{"name", name}, {"costs", costs_json(costs)}};
    row.update(comparison.json());
    row.erase("planning_ms_p99");
    rows.push_back(row);
  }
  return rows;
}

/// The planner's time on large meshes.
ordered_json planning_times(const Options& options) {
  const std::vector<std::vector<uint32_t>> kMeshes = {{64},
                                                      {8, 8},
                                                      {4, 4, 4},
                                                      {2, 2, 2, 2, 2, 2},
                                                      {4096},
                                                      {64, 64},
                                                      {16, 16, 16},
                                                      {8, 8, 8, 8},
                                                      {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}};
  ordered_json rows = ordered_json::array();
  Cases cases(options.seed);
  const uint64_t problems = std::max<uint64_t>(options.cases / 6, 1);
  for (const auto& sizes : kMeshes) {
    std::vector<double> took;
    uint32_t ranks = 1;
    for (const uint32_t size : sizes) ranks *= size;
    std::string slowest;
    for (uint64_t i = 0; i < problems; ++i) {
      const Case drawn = cases.on_mesh(sizes, uint64_t{1} << 60);
      took.push_back(timed_plan(drawn.problem).second);
      if (took.back() == *std::max_element(took.begin(), took.end())) slowest = drawn.name;
    }
    rows.push_back({{"mesh", sizes},
                    {"ranks", ranks},
                    {"problems", problems},
                    {"p50_ms", percentile(took, .5)},
                    {"p99_ms", percentile(took, .99)},
                    {"max_ms", percentile(took, 1)},
                    {"slowest", slowest}});
  }
  return rows;
}

ordered_json users_rows() {
  ordered_json rows = ordered_json::array();
  for (const Case& user : users_cases()) {
    const auto elements = [&](Method method) {
      return plan_by(user.problem, method)->sent_bytes() / user.problem.element_bytes;
    };
    rows.push_back({{"name", user.name},
                    {"naive_elements", elements(Method::kGatherSlice)},
                    {"synthesised_elements", elements(Method::kSynthesised)},
                    {"direct_elements", elements(Method::kDirect)}});
  }
  return rows;
}

int run(const Options& options) {
  auto file = OutputFile::open(options.json);
  if (!file) {
    fmt::print(stderr, "redistribute_bench: {}\n", file.error().text);
    return command_line::kExitUsage;
  }
  const std::vector<Case> cases = drawn_cases(options);
  Proof proof;
  Comparison comparison;
  for (const Case& drawn : cases) comparison.add(drawn, &proof);
  ordered_json modelled = comparison.json();
  modelled["failures"] = proof.failures;
  modelled["memory_violations"] = proof.memory_violations;
  modelled["limited_cases"] = comparison.limited();
  modelled["plans_carried_out"] = proof.carried_out;
  modelled["elements_checked"] = proof.elements;
  const ordered_json result = {
      {"seed", options.seed},        {"costs", costs_json(CostModel{})},
      {"modelled", modelled},        {"users_cases", users_rows()},
      {"by_costs", by_costs(cases)}, {"planning", planning_times(options)}};
  if (auto written = file->write(result.dump(1) + "\n"); !written) {
    fmt::print(stderr, "redistribute_bench: {}\n", written.error().text);
    return command_line::kExitUsage;
  }
  return proof.failures + proof.memory_violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ina::redistribution

int main(int argc, char** argv) {
  try {
    ina::redistribution::Options options;
    ina::command_line::App app(
        "Plans seeded redistributions, checks them, and compares modelled times.");
    app.add_option("--cases", options.cases, "random problems on small meshes")
        ->check(ina::command_line::between<uint64_t>(1, 100'000))
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of the problems")->capture_default_str();
    app.add_option("--json", options.json, "write the result to this file; - is standard output")
        ->capture_default_str();
    if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
    return ina::redistribution::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "redistribute_bench: {}\n", error.what());
    return 1;
  }
}
