#include "bench/perf/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "bench/perf/gather.h"
#include "bench/perf/pattern.h"
#include "common/command_line.h"
#include "common/output_file.h"

namespace ina::perf {
namespace {

constexpr uint64_t kMaxBytes = 1ull << 40;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view suffix(next, static_cast<size_t>(end - next));
  const int shift = suffix.empty()                     ? 0
                    : suffix == "KiB" || suffix == "K" ? 10
                    : suffix == "MiB" || suffix == "M" ? 20
                    : suffix == "GiB" || suffix == "G" ? 30
                                                       : -1;
  if (shift < 0 || value > kMaxBytes >> shift) return std::nullopt;
  return value << shift;
}

/// The values of a comma-separated list of names, without repetitions.
template <class T, size_t kCount>
std::vector<T> parse_names(const std::string& text, const T (&all)[kCount]) {
  std::vector<T> values;
  for (const std::string_view part : split(text, ',')) {
    const auto found = std::ranges::find_if(all, [&](T v) { return name(v) == part; });
    if (found == std::end(all)) {
      std::vector<std::string_view> known;
      for (const T v : all) known.push_back(name(v));
      throw command_line::UsageError(
          fmt::format("{} is not one of {}", part, fmt::join(known, ", ")));
    }
    if (std::ranges::find(values, *found) == values.end()) values.push_back(*found);
  }
  return values;
}

int64_t parse_time_us(const std::string& text) {
  double value = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(next);
  const double factor = suffix == "us"                    ? 1
                        : suffix == "ms"                  ? 1e3
                        : suffix == "s" || suffix.empty() ? 1e6
                                                          : 0;
  if (error != std::errc() || factor == 0 || !(value > 0) || value * factor > 1e12)
    throw command_line::UsageError(fmt::format("{} is not a time, e.g. 500ms or 30s", text));
  return static_cast<int64_t>(value * factor);
}

/// The options whose values are looked at once all of them are known.
struct Given {
  std::string collectives = "allreduce";
  std::string sizes = "4:256MiB:4";
  std::string dtypes = "float32";
  std::string ops = "sum";
  std::string timeout = "30s";
  std::string numeric;
  bool in_place = false;
  bool both = false;
  bool quick = false;
  command_line::Option* sizes_option = nullptr;
  command_line::Option* seconds_option = nullptr;
};

void add_load_options(command_line::App& app, Options& options, Given& given) {
  app.add_option("--ranks", options.ranks,
                 "fork this many ranks; without it, rank and world size come from the launcher")
      ->check(command_line::between(1, kMaxRanks));
  app.add_option("--url", options.url,
                 "the switch, e.g. shm:/run/ina/switch.sock; {rank} stands for\n"
                 "the rank's number, as memif ports need; default: INA_URL");
  app.add_option("--job", options.job, "name of the job");
  app.add_option(
         "--collective", given.collectives,
         "list of allreduce, reduce, reduce-scatter, broadcast, all-gather, gather, scatter,\n"
         "all-to-all, permute, send-receive (both to the next rank), barrier; or all.\n"
         "The root is rank 0")
      ->capture_default_str();
  given.sizes_option =
      app.add_option("--sizes", given.sizes,
                     "bytes of the whole vector, all ranks' blocks together:\n"
                     "smallest:largest:factor or a list; rounded down to whole elements")
          ->capture_default_str();
  app.add_option("--dtype", given.dtypes,
                 "list of int8, int32, int64, float32, float64, bfloat16, float16, uint8, bool")
      ->capture_default_str();
  app.add_option(
         "--op", given.ops,
         "list of sum, min, max, avg (of floats only), prod, band, bor, bxor (not of floats)")
      ->capture_default_str();
}

void add_measurement_options(command_line::App& app, Options& options, Given& given) {
  auto* in_place_option =
      app.add_flag("--inplace", given.in_place, "result over the input; allreduce only");
  auto* both_option =
      app.add_flag("--both", given.both, "out of place, and in place; allreduce only");
  app.add_flag("--registered", options.registered,
               "inputs in memory that the switch reads, results that all ranks get in memory that\n"
               "it writes")
      ->excludes(in_place_option)
      ->excludes(both_option);
  app.add_option("--switch-pid", options.switch_pid,
                 "the switch's process on this machine: measure its CPU time too");
  app.add_option("--warmup", options.warmup, "operations before the clock runs, for each row")
      ->check(command_line::between(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations, "operations timed; default: by time")
      ->check(command_line::between(1, static_cast<int>(kMaxSamples)));
  given.seconds_option = app.add_option("--seconds-per-size", options.seconds_per_size,
                                        "time for each row without --iterations")
                             ->check(command_line::between(0.001, 3600.0))
                             ->capture_default_str();
  app.add_flag("!--no-check", options.check, "do not verify every element of the results");
  app.add_option("--numeric", given.numeric, "how sums of floats are made; default: INA_NUMERIC")
      ->check(command_line::one_of({"native", "reproducible"}));
  app.add_option("--timeout", given.timeout, "of each operation")->capture_default_str();
  app.add_option("--json", options.json_file, "write the rows to this file too");
  app.add_flag("--quick", given.quick, "4:1MiB:8 and 0.1 seconds a row, unless given");
}

/// Throws command_line::UsageError for values that are none.
void apply(Given given, Options& options) {
  if (given.quick && given.sizes_option->empty()) given.sizes = "4:1MiB:8";
  if (given.quick && given.seconds_option->empty()) options.seconds_per_size = 0.1;
  auto parsed = parse_sizes(given.sizes);
  if (!parsed) throw command_line::UsageError(parsed.error());
  options.sizes_bytes = std::move(*parsed);
  options.collectives =
      given.collectives == "all"
          ? std::vector<Collective>(std::begin(kAllCollectives), std::end(kAllCollectives))
          : parse_names(given.collectives, kAllCollectives);
  if ((given.in_place || given.both) && options.collectives != std::vector{Collective::kAllreduce})
    throw command_line::UsageError("--inplace and --both are for --collective allreduce alone");
  options.dtypes = parse_names(given.dtypes, kAllDtypes);
  options.ops = parse_names(given.ops, kAllOps);
  options.timeout_us = parse_time_us(given.timeout);
  if (!given.numeric.empty())
    options.numeric = given.numeric == "native" ? INA_NUMERIC_NATIVE : INA_NUMERIC_REPRODUCIBLE;
  // Better now than after an hour of measuring.
  if (const auto file = OutputFile::open(options.json_file); !file)
    throw command_line::UsageError(file.error().text);
  options.in_place = given.in_place || given.both;
  options.out_of_place = !given.in_place || given.both;
}

}  // namespace

tl::expected<std::vector<uint64_t>, std::string> parse_sizes(std::string_view text) {
  const auto bad = [](std::string_view part) {
    return tl::unexpected(fmt::format("{} is not a size, e.g. 4, 64KiB or 1GiB", part));
  };
  const auto range = split(text, ':');
  std::vector<uint64_t> sizes;
  if (range.size() == 1) {
    for (const std::string_view part : split(text, ',')) {
      const auto size = parse_size(part);
      if (!size) return bad(part);
      sizes.push_back(*size);
    }
    return sizes;
  }
  if (range.size() > 3) return tl::unexpected(std::string("sizes are smallest:largest:factor"));
  const auto smallest = parse_size(range[0]);
  const auto largest = parse_size(range[1]);
  const auto factor = range.size() == 3 ? parse_size(range[2]) : 4;
  if (!smallest) return bad(range[0]);
  if (!largest) return bad(range[1]);
  if (!factor || *factor < 2 || *smallest == 0 || *smallest > *largest)
    return tl::unexpected(std::string(
        "sizes are smallest:largest:factor with 0 < smallest <= largest and factor >= 2"));
  for (uint64_t size = *smallest; size <= *largest; size *= *factor) {
    sizes.push_back(size);
    if (size > *largest / *factor) break;
  }
  return sizes;
}

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  command_line::App app{
      "Time and check collectives over the INA switch, in the manner of nccl-tests.\n"
      "algbw = bytes / time of the slowest rank; busbw = algbw * what a rank's link needs, as\n"
      "nccl-tests have it: 2(n-1)/n of an all-reduce; CPU time is the ranks' own; the switch's is "
      "apart."};
  Given given;
  add_load_options(app, options, given);
  add_measurement_options(app, options, given);
  try {
    if (const auto status = app.parse(argc, argv)) return status;
    apply(given, options);
  } catch (const command_line::UsageError& error) {
    return command_line::refuse(error, argc > 0 ? argv[0] : "");
  }
  for (int i = 0; i < argc; ++i) options.command += fmt::format("{}{}", i ? " " : "", argv[i]);
  return std::nullopt;
}

}  // namespace ina::perf
