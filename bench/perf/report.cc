#include "bench/perf/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "bench/perf/pattern.h"
#include "common/json/json.h"
#include "common/output_file.h"
#include "perf_commit.h"  // generated: INA_PERF_COMMIT

namespace ina::perf {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

nlohmann::ordered_json machine() {
  utsname system{};
  uname(&system);
  const auto pages = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES));
  return {{"cpu", cpu_model()},
          {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_bytes", pages * sysconf(_SC_PAGESIZE)},
          {"kernel", system.release}};
}

nlohmann::ordered_json to_json(const Row& row) {
  nlohmann::ordered_json json = {{"collective", name(row.collective)},
                                 {"ranks", row.ranks},
                                 {"bytes", row.bytes},
                                 {"count", row.count},
                                 {"dtype", name(row.dtype)},
                                 {"op", name(row.op)},
                                 {"inplace", row.in_place},
                                 {"buffers", row.registered ? "registered" : "plain"},
                                 {"algbw_GBps", row.algbw()},
                                 {"busbw_GBps", row.busbw()},
                                 {"p50_us", row.percentile_us(50)},
                                 {"p99_us", row.percentile_us(99)},
                                 {"min_us", row.percentile_us(0)},
                                 {"samples", row.samples_ns.size()},
                                 {"operations", row.operations},
                                 {"cpu_us_per_op", row.cpu_us_per_op},
                                 {"payload_bytes_up", row.payload_bytes_up},
                                 {"payload_bytes_down", row.payload_bytes_down},
                                 {"overhead_bytes", row.overhead_bytes},
                                 {"fragments_resent", row.fragments_resent},
                                 {"core_round_trip_ns", row.core_round_trip_ns}};
  json["switch_cpu_us_per_op"] = row.switch_cpu_us_per_op
                                     ? nlohmann::ordered_json(*row.switch_cpu_us_per_op)
                                     : nlohmann::ordered_json();
  json["correct"] = row.correct ? nlohmann::ordered_json(*row.correct) : nlohmann::ordered_json();
  return json;
}

}  // namespace

double Row::percentile_us(double percent) const {
  if (samples_ns.empty()) return 0;
  std::vector<int64_t> sorted = samples_ns;
  // Nearest rank: a percentile is a sample that occurred.
  const auto at = static_cast<std::ptrdiff_t>(
      std::max(0.0, std::ceil(percent / 100 * static_cast<double>(sorted.size())) - 1));
  std::ranges::nth_element(sorted, sorted.begin() + at);
  return static_cast<double>(sorted[static_cast<size_t>(at)]) / 1000;
}

double Row::algbw() const {
  const double us = percentile_us(50);
  return us > 0 ? static_cast<double>(bytes) / us / 1000 : 0;
}

double Row::busbw() const {
  return algbw() * bus_factor(collective, ranks);
}

void print_head(const Options& options, int ranks) {
  fmt::print(
      "# ina-perf {}, libina {}, {} ranks, {}\n"
      "{:>14} {:>12} {:>12} {:>8} {:>4} {:>5} {:>5} {:>10} {:>10} {:>10} {:>9} {:>9} {:>10} {:>10} "
      "{:>6} "
      "{:>7} {:>7}\n",
      INA_PERF_COMMIT, ina_version(), ranks, options.url.empty() ? "INA_URL" : options.url,
      "collective", "bytes", "count", "dtype", "op", "ranks", "place", "p50 us", "p99 us", "min us",
      "alg GB/s", "bus GB/s", "cpu us/op", "switch us", "ops", "c2c ns", "correct");
  std::fflush(stdout);
}

void print_row(const Row& row) {
  fmt::print(
      "{:>14} {:>12} {:>12} {:>8} {:>4} {:>5} {:>5} {:>10.1f} {:>10.1f} {:>10.1f} {:>9.3f} "
      "{:>9.3f} "
      "{:>10.1f} {:>10} {:>6} {:>7} {:>7}\n",
      name(row.collective), row.bytes, row.count, name(row.dtype),
      is_sum(row.collective) ? name(row.op) : "-", row.ranks,
      row.in_place     ? "in"
      : row.registered ? "reg"
                       : "out",
      row.percentile_us(50), row.percentile_us(99), row.percentile_us(0), row.algbw(), row.busbw(),
      row.cpu_us_per_op,
      row.switch_cpu_us_per_op ? fmt::format("{:.1f}", *row.switch_cpu_us_per_op) : "-",
      row.samples_ns.size(), row.core_round_trip_ns,
      !row.correct   ? "-"
      : *row.correct ? "yes"
                     : "NO");
  std::fflush(stdout);
}

std::string write_json(const Options& options, const std::vector<Row>& rows) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  nlohmann::ordered_json json;
  json["meta"] = {{"program", "ina-perf"},
                  {"commit", INA_PERF_COMMIT},
                  {"library", ina_version()},
                  {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
                  {"command", options.command},
                  {"machine", machine()}};
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) json["rows"].push_back(to_json(row));
  auto file = OutputFile::open(options.json_file);
  const auto written = file ? file->write(json.dump(2) + "\n") : tl::unexpected(file.error());
  return written ? "" : written.error().text;
}

}  // namespace ina::perf
