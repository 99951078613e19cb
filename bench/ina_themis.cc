// ina-themis: the figures of the Themis paper, recomputed by this project's planner, and the gains
// of the search and of aggregating switches. docs/themis.md has the results.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <stdexcept>

#include "bench/themis/sweep.h"
#include "bench/themis/training.h"
#include "common/command_line.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "plans/themis/text/topology_file.h"

namespace ina::bench {
namespace {

using nlohmann::json;
using themis::Picos;
using themis::Scheduler;

/// Where the golden figures give times.
constexpr uint64_t kGoldenBytes = 1'000'000'000;
/// The compute time that a published speed-up implies is looked for below this.
constexpr double kMostComputeS = 1;

struct Options {
  std::vector<std::string> topology_files;
  std::vector<std::string> planning_files;
  uint32_t evaluations = themis::PlanOptions{}.evaluations;
  std::string json_file;
};

double us(Picos ps) {
  return static_cast<double>(ps) * 1e-6;
}

double ratio(Picos a, Picos b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

template <class Value>
double mean_over(const std::vector<SweepPoint>& points, Value value) {
  double sum = 0;
  for (const SweepPoint& point : points) sum += value(point);
  return sum / static_cast<double>(points.size());
}

themis::Topology load(const std::string& file) {
  const auto topology = themis::load_topology_file(file);
  if (!topology) throw std::invalid_argument(topology.error().front().to_string());
  return *topology;
}

/// One point of the sweep. A gap is the time beyond the ideal, as a part of the ideal.
json point_json(const SweepPoint& point) {
  return {{"bytes", point.bytes},
          {"ideal_us", us(point.ideal_ps)},
          {"base_us", us(point.base_ps)},
          {"fifo_us", us(point.fifo_ps)},
          {"scf_us", us(point.scf_ps)},
          {"search_us", us(point.search_ps)},
          {"ina_scf_us", us(point.ina_scf_ps)},
          {"ina_search_us", us(point.ina_search_ps)}};
}

json topology_json(const themis::Topology& topology, const std::vector<SweepPoint>& points,
                   const SweepPoint& golden) {
  json sweep = json::array();
  for (const SweepPoint& point : points) sweep.push_back(point_json(point));
  const auto mean = [&](Picos SweepPoint::*over, Picos SweepPoint::*under) {
    return mean_over(points, [&](const SweepPoint& p) { return ratio(p.*over, p.*under); });
  };
  return {{"name", topology.name},
          {"base_us", us(golden.base_ps)},
          {"fifo_us", us(golden.fifo_ps)},
          {"scf_us", us(golden.scf_ps)},
          {"search_us", us(golden.search_ps)},
          {"ina_scf_us", us(golden.ina_scf_ps)},
          {"ina_search_us", us(golden.ina_search_ps)},
          {"ideal_us", us(golden.ideal_ps)},
          {"speedup", mean(&SweepPoint::base_ps, &SweepPoint::scf_ps)},
          {"speedup_fifo", mean(&SweepPoint::base_ps, &SweepPoint::fifo_ps)},
          {"speedup_search", mean(&SweepPoint::base_ps, &SweepPoint::search_ps)},
          {"speedup_ina", mean(&SweepPoint::base_ps, &SweepPoint::ina_scf_ps)},
          {"speedup_ina_search", mean(&SweepPoint::base_ps, &SweepPoint::ina_search_ps)},
          {"utilisation_base", mean(&SweepPoint::ideal_ps, &SweepPoint::base_ps)},
          {"utilisation_fifo", mean(&SweepPoint::ideal_ps, &SweepPoint::fifo_ps)},
          {"utilisation", mean(&SweepPoint::ideal_ps, &SweepPoint::scf_ps)},
          {"utilisation_search", mean(&SweepPoint::ideal_ps, &SweepPoint::search_ps)},
          {"gap", mean(&SweepPoint::scf_ps, &SweepPoint::ideal_ps) - 1},
          {"gap_search", mean(&SweepPoint::search_ps, &SweepPoint::ideal_ps) - 1},
          {"sweep", sweep}};
}

/// Means and extremes over all points.
void add_overall(json& report, const std::vector<SweepPoint>& points) {
  const auto speedups = [&](Picos SweepPoint::*own) {
    std::vector<double> all;
    for (const SweepPoint& p : points) all.push_back(ratio(p.base_ps, p.*own));
    return all;
  };
  double least = std::numeric_limits<double>::max();
  const auto add = [&](const std::string& suffix, Picos SweepPoint::*own) {
    const std::vector<double> all = speedups(own);
    report["mean_speedup" + suffix] =
        mean_over(points, [own](const SweepPoint& p) { return ratio(p.base_ps, p.*own); });
    report["max_speedup" + suffix] = *std::ranges::max_element(all);
    least = std::min(least, *std::ranges::min_element(all));
  };
  add("", &SweepPoint::scf_ps);
  add("_fifo", &SweepPoint::fifo_ps);
  add("_search", &SweepPoint::search_ps);
  add("_ina", &SweepPoint::ina_scf_ps);
  add("_ina_search", &SweepPoint::ina_search_ps);
  report["min_speedup"] = least;
  const auto count = [&](auto is_so) { return std::ranges::count_if(points, is_so); };
  report["points"] = points.size();
  report["search_worse"] = count(
      [](const SweepPoint& p) { return p.search_ps > p.scf_ps || p.ina_search_ps > p.ina_scf_ps; });
  report["search_better"] = count([](const SweepPoint& p) { return p.search_ps < p.scf_ps; });
}

/// The time of computation with which the mean speed-up would be `published`; 0: there is none.
double implied_compute_s(const std::vector<std::pair<double, double>>& times, double published) {
  const auto mean = [&](double compute_s) {
    double sum = 0;
    for (const auto& [base_s, own_s] : times) sum += (compute_s + base_s) / (compute_s + own_s);
    return sum / static_cast<double>(times.size());
  };
  double low = 0, high = kMostComputeS;
  if (mean(low) < published || mean(high) > published) return 0;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (mean(middle) > published ? low : high) = middle;
  }
  return low;
}

json training_json(const std::vector<themis::Topology>& topologies) {
  json list = json::array();
  for (const Workload& workload : workloads()) {
    const double compute_s = workload.flops / kFlopsPerS;
    std::vector<std::pair<double, double>> times;
    json rows = json::array();
    double speedup = 0, without_compute = 0;
    for (const themis::Topology& topology : topologies) {
      const double base_s =
          communication_s(workload, topology, {.scheduler = Scheduler::kBaseline});
      const double own_s = communication_s(workload, topology, {.scheduler = Scheduler::kThemis});
      times.emplace_back(base_s, own_s);
      speedup += (compute_s + base_s) / (compute_s + own_s);
      without_compute += base_s / own_s;
      rows.push_back({{"topology", topology.name},
                      {"base_ms", base_s * 1e3},
                      {"themis_ms", own_s * 1e3},
                      {"speedup", (compute_s + base_s) / (compute_s + own_s)}});
    }
    const auto count = static_cast<double>(topologies.size());
    list.push_back(
        {{"name", workload.name},
         {"assumptions", workload.assumptions},
         {"compute_ms", compute_s * 1e3},
         {"speedup", speedup / count},
         {"speedup_without_compute", without_compute / count},
         {"published", workload.published_speedup},
         {"published_first", workload.published_first_speedup},
         {"implied_compute_ms", implied_compute_s(times, workload.published_speedup) * 1e3},
         {"rows", rows}});
  }
  return list;
}

/// Processor time of the planner itself.
json planning_json(const std::vector<themis::Topology>& topologies, uint32_t evaluations) {
  json list = json::array();
  for (const themis::Topology& topology : topologies) {
    const auto run = [&](Scheduler scheduler) {
      const std::clock_t begin = std::clock();
      const themis::Planned planned =
          themis::make_plan(topology, {{.bytes = kGoldenBytes}},
                            {.scheduler = scheduler, .evaluations = evaluations})
              .value();
      const double took_ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      return std::pair(took_ms, us(planned.timeline.end_ps));
    };
    const auto [base_ms, base_us] = run(Scheduler::kBaseline);
    const auto [themis_ms, themis_us] = run(Scheduler::kThemis);
    const auto [search_ms, search_us] = run(Scheduler::kSearch);
    list.push_back({{"name", topology.name},
                    {"participants", topology.participants()},
                    {"base_us", base_us},
                    {"themis_us", themis_us},
                    {"search_us", search_us},
                    {"themis_planning_ms", themis_ms},
                    {"search_planning_ms", search_ms}});
  }
  return list;
}

json report_of(const Options& options) {
  std::vector<themis::Topology> topologies, planned;
  for (const std::string& file : options.topology_files) topologies.push_back(load(file));
  for (const std::string& file : options.planning_files) planned.push_back(load(file));
  const Figure5 figure = figure5();
  json report = {{"bytes", kGoldenBytes},
                 {"evaluations", options.evaluations},
                 {"fig5", {{"base", figure.base}, {"fifo", figure.fifo}, {"scf", figure.scf}}},
                 {"topologies", json::array()}};
  std::vector<SweepPoint> all;
  for (const themis::Topology& topology : topologies) {
    std::vector<SweepPoint> points;
    for (const uint64_t bytes : sweep_sizes())
      points.push_back(measure(topology, bytes, options.evaluations));
    report["topologies"].push_back(
        topology_json(topology, points, measure(topology, kGoldenBytes, options.evaluations)));
    all.insert(all.end(), points.begin(), points.end());
  }
  add_overall(report, all);
  report["training"] = training_json(topologies);
  report["planning"] = planning_json(planned, options.evaluations);
  return report;
}

int run(const Options& options) {
  auto output = OutputFile::open(options.json_file);
  if (!output) {
    fmt::print(stderr, "ina-themis: {}\n", output.error().text);
    return command_line::kExitUsage;
  }
  if (options.topology_files.empty()) {
    fmt::print(stderr,
               "ina-themis: --topology is needed; conf/topologies has those of the paper\n");
    return command_line::kExitUsage;
  }
  const json report = report_of(options);
  if (const auto written = output->write(report.dump(1) + "\n"); !written)
    throw std::runtime_error(written.error().text);
  return 0;
}

}  // namespace
}  // namespace ina::bench

int main(int argc, char** argv) {
  ina::bench::Options options;
  ina::command_line::App app(
      "Recomputes the figures of the Themis paper with this project's planner.");
  app.add_option("--topology", options.topology_files, "of the sweep; at least one");
  app.add_option("--planning", options.planning_files, "topologies to time the planner with");
  app.add_option("--evaluations", options.evaluations, "plans that the search simulates")
      ->check(ina::command_line::between(1u, 1'000'000u))
      ->capture_default_str();
  app.add_option("--json", options.json_file,
                 "write the result to this file (- is standard output)")
      ->required();
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  try {
    return ina::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-themis: {}\n", error.what());
    return 1;
  }
}
