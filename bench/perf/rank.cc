#include "bench/perf/rank.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bench/perf/core_ping.h"
#include "bench/perf/pattern.h"
#include "bench/perf/process_cpu.h"
#include "bench/perf/registered.h"
#include "bench/perf/report.h"

namespace ina::perf {
namespace {

constexpr int kMinIterations = 5;
/// A large operation needs no more to have its memory touched and its threads awake.
constexpr uint64_t kLargeBytes = 4 << 20;
constexpr int kWarmupOfLarge = 2;
constexpr std::string_view kRankInUrl = "{rank}";

int64_t now_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

/// Page-aligned memory, untouched until it is filled.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
      throw std::runtime_error(fmt::format("no memory for a buffer of {} bytes", bytes));
  }
  ~Buffer() { munmap(memory_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

/// Bytes of a message without payload on an Ethernet port: Ethernet, IPv4, UDP and INA headers.
constexpr int64_t kBareMessageBytes = 14 + 20 + 8 + 72;

/// The operation that a row measures.
struct Case {
  Collective collective{};
  uint64_t bytes = 0;  ///< of the whole vector
  uint64_t count = 0;
  ina_dtype dtype{};
  ina_op op{};
  bool in_place = false;
};

/// Adds the cases of one data type and operation.
void add_cases(const Options& options, Collective collective, ina_dtype dtype, ina_op op, int ranks,
               std::vector<Case>& cases) {
  const size_t width = ina_dtype_size(dtype);
  for (const bool in_place : {false, true}) {
    if (!(in_place ? options.in_place : options.out_of_place)) continue;
    for (const uint64_t bytes : options.sizes_bytes) {
      const uint64_t count = whole_elements(collective, bytes, width, ranks);
      // Empty operations only where size 0 is asked for.
      if (count > 0 || bytes == 0)
        cases.push_back({collective, count * width, count, dtype, op, in_place});
    }
  }
}

std::vector<Case> cases_of(const Options& options, int ranks) {
  std::vector<Case> cases;
  for (const Collective collective : options.collectives) {
    if (collective == Collective::kBarrier) {
      cases.push_back({collective, 0, 0, INA_INT32, INA_SUM, false});
      continue;
    }
    for (const ina_dtype dtype : options.dtypes)
      for (const ina_op op : options.ops) {
        if (!is_offered(dtype, op)) continue;
        add_cases(options, collective, dtype, op, ranks, cases);
        if (!is_sum(collective)) break;  // what adds nothing has no operation
      }
  }
  return cases;
}

/// One context, its buffers, and the steps that make a row.
class Worker {
 public:
  Worker(const Options& options, int rank, SharedArea* area, ina_context* context)
      : options_(options),
        context_(context),
        rank_(ina_rank(context)),
        ranks_(ina_world_size(context)),
        area_(area),
        gather_(area ? gather_by_mapping(*area, rank, ranks_) : gather_by_allreduce(context)) {
    if (options.registered) {
      registered_.emplace(context, std::max<uint64_t>(largest(options), 1));
      send_ = static_cast<std::byte*>(registered_->send());
    } else {
      send_ = plain_send_.emplace(largest(options)).data();
    }
    plain_recv_.emplace(largest(options));
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Measures one row on all ranks. Rank 0 alone gets the core's round trip and the switch's time.
  Row measure(const Case& c) {
    Row row{.collective = c.collective,
            .ranks = ranks_,
            .bytes = c.bytes,
            .count = c.count,
            .dtype = c.dtype,
            .op = c.op,
            .in_place = c.in_place,
            .registered = options_.registered};
    operations_ = 0;
    shape_ = shape_of(c.collective, c.count, rank_, ranks_);
    fill(send(c), input_block(c.dtype, c.op, rank_, ranks_, 0));
    if (!c.in_place) spoil(c, 1);  // touch it
    const int64_t estimate_ns = warm_up(c);
    bool correct = !options_.check || check(c, ++round_);
    const int iterations = iterations_for(estimate_ns);

    if (rank_ == 0) row.core_round_trip_ns = core_round_trip_ns();
    gather_->barrier();
    const ina_stats before = stats();
    const auto switch_before_ns = switch_cpu_ns();
    const int64_t cpu_before_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    row.samples_ns.reserve(static_cast<size_t>(iterations));
    for (int i = 0; i < iterations; ++i) {
      const int64_t start_ns = now_ns(CLOCK_MONOTONIC);
      operate(c);
      row.samples_ns.push_back(now_ns(CLOCK_MONOTONIC) - start_ns);
    }
    const int64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before_ns;
    const auto switch_after_ns = switch_cpu_ns();
    const ina_stats after = stats();

    if (options_.check) correct = check(c, ++round_) && correct;
    gather_->max_each(row.samples_ns);
    row.cpu_us_per_op = static_cast<double>(gather_->sum(cpu_ns)) / iterations / 1000;
    if (switch_before_ns && switch_after_ns)
      row.switch_cpu_us_per_op =
          static_cast<double>(*switch_after_ns - *switch_before_ns) / iterations / 1000;
    row.fragments_resent =
        gather_->sum(static_cast<int64_t>(after.fragments_resent - before.fragments_resent));
    count_bytes(before, after, iterations, row);
    row.operations = operations_;
    // A rank that saw a wrong result says so itself too: through a broken switch this may be lost.
    const int64_t wrong_ranks = gather_->sum(correct ? 0 : 1);
    if (options_.check) row.correct = correct && wrong_ranks == 0;
    return row;
  }

 private:
  static uint64_t largest(const Options& options) {
    return *std::ranges::max_element(options.sizes_bytes);
  }

  std::span<std::byte> send(const Case& c) const {
    return {send_, shape_.send * ina_dtype_size(c.dtype)};
  }
  std::span<const std::byte> recv(const Case& c) const {
    const size_t bytes = shape_.recv * ina_dtype_size(c.dtype);
    if (c.in_place) return {send_, bytes};
    if (direct(c)) return {static_cast<const std::byte*>(registered_->result()), bytes};
    return {plain_recv_->data(), bytes};
  }
  /// True if the switch writes the result: all ranks get it, in registered memory and in blocks
  /// that begin at its units.
  bool direct(const Case& c) const {
    const uint64_t block = c.bytes / static_cast<uint64_t>(ranks_);
    return options_.registered && shape_.to_all &&
           (c.collective != Collective::kAllGather || block % INA_RESULT_ALIGNMENT == 0);
  }

  /// The bytes of an operation, at the rank with most of them.
  void count_bytes(const ina_stats& before, const ina_stats& after, int iterations, Row& row) {
    const auto more = [&](uint64_t ina_stats::*counter) {
      return static_cast<int64_t>(after.*counter - before.*counter);
    };
    const int64_t bare = more(&ina_stats::packets_sent) + more(&ina_stats::packets_received) -
                         more(&ina_stats::payload_packets_sent) -
                         more(&ina_stats::payload_packets_received);
    const auto an_operation = [&](int64_t of_this_rank) {
      return static_cast<double>(gather_->max(of_this_rank)) / iterations;
    };
    row.payload_bytes_up = an_operation(more(&ina_stats::bytes_sent));
    row.payload_bytes_down = an_operation(more(&ina_stats::bytes_received));
    row.overhead_bytes = an_operation(bare * kBareMessageBytes);
  }

  /// Nothing unless this rank is the one that looks, and told where.
  std::optional<int64_t> switch_cpu_ns() const {
    if (rank_ != 0 || options_.switch_pid == 0) return std::nullopt;
    return process_cpu_ns(options_.switch_pid);
  }

  /// Puts something into the result buffer that is no result of the rounds that are checked.
  void spoil(const Case& c, uint32_t round) {
    // Results of the direct path are read-only here.
    if (direct(c)) return operate(c);
    fill({plain_recv_->data(), recv(c).size()}, input_block(c.dtype, c.op, rank_, ranks_, round));
  }

  void operate(const Case& c) {
    ++operations_;
    const int status = call(context_,
                            {.collective = c.collective,
                             .whole = c.count,
                             .dtype = c.dtype,
                             .op = c.op,
                             .direct = direct(c),
                             .timeout_us = options_.timeout_us},
                            send(c).data(), const_cast<std::byte*>(recv(c).data()));
    if (status != INA_OK)
      throw std::runtime_error(fmt::format("{}: {} at {} bytes of {}: {}", name(c.collective),
                                           ina_status_name(status), c.bytes, name(c.dtype),
                                           ina_last_error(context_)));
    if (area_) area_->ranks[rank_].progress.fetch_add(1, std::memory_order_relaxed);
  }

  /// Returns about how long one operation takes, on the slowest rank.
  int64_t warm_up(const Case& c) {
    int operations =
        c.bytes > kLargeBytes ? std::min(options_.warmup, kWarmupOfLarge) : options_.warmup;
    // Without --iterations their number is derived from a time, so there must be one.
    operations = std::max(operations, options_.iterations == 0 ? 1 : 0);
    int64_t fastest_ns = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < operations; ++i) {
      const int64_t start_ns = now_ns(CLOCK_MONOTONIC);
      operate(c);
      fastest_ns = std::min(fastest_ns, now_ns(CLOCK_MONOTONIC) - start_ns);
    }
    return gather_->max(operations > 0 ? fastest_ns : 1);
  }

  /// The number of iterations is equal on all ranks, because the estimate is.
  int iterations_for(int64_t estimate_ns) const {
    if (options_.iterations > 0) return options_.iterations;
    const double fit =
        options_.seconds_per_size * 1e9 / static_cast<double>(std::max<int64_t>(estimate_ns, 1));
    return static_cast<int>(
        std::clamp(fit, double{kMinIterations}, static_cast<double>(kMaxSamples)));
  }

  /// One operation on fresh inputs, every element of result and input compared.
  bool check(const Case& c, uint32_t round) {
    const auto input = input_block(c.dtype, c.op, rank_, ranks_, round);
    // The old contents must not look like this round's result.
    fill(send(c), input_block(c.dtype, c.op, rank_, ranks_, ~round));
    if (!c.in_place) spoil(c, ~round);
    fill(send(c), input);
    gather_->barrier();
    operate(c);
    bool correct = true;
    for (const Segment& segment : shape_.segments)
      correct = compare_segment(c, segment, round) && correct;
    if (!c.in_place)
      correct = compare(c, "input (which was written to)", send(c), input, 0) && correct;
    // Sums of sums would become Inf in time; timed operations start from inputs again.
    fill(send(c), input);
    return correct;
  }

  bool compare_segment(const Case& c, const Segment& segment, uint32_t round) const {
    const size_t width = ina_dtype_size(c.dtype);
    const auto expected = segment.source == Segment::kResult
                              ? expected_block(c.dtype, c.op, ranks_, round)
                              : input_block(c.dtype, c.op, segment.source, ranks_, round);
    return compare(c, "result", recv(c).subspan(segment.to * width, segment.count * width),
                   expected, segment.from);
  }

  bool compare(const Case& c, const char* what, std::span<const std::byte> buffer,
               std::span<const std::byte> block, uint64_t first) const {
    const size_t width = ina_dtype_size(c.dtype);
    const auto offset = find_difference(buffer, block, first * width);
    if (!offset) return true;
    const size_t element = *offset / width;
    fmt::print(stderr,
               "ina-perf: rank {}: wrong {} of {}: element {} of {} {} is {}, expected {} ({})\n",
               rank_, what, name(c.collective), element, buffer.size() / width, name(c.dtype),
               format_element(c.dtype, buffer.data() + element * width),
               format_element(c.dtype, block.data() + (first + element) % kPatternElements * width),
               name(c.op));
    return false;
  }

  ina_stats stats() const {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    ina_get_stats(context_, &stats);
    return stats;
  }

  const Options& options_;
  ina_context* context_;
  int rank_;
  int ranks_;
  SharedArea* area_;
  std::unique_ptr<Gather> gather_;
  std::optional<Buffer> plain_send_;
  std::optional<Buffer> plain_recv_;
  std::optional<RegisteredBuffers> registered_;
  std::byte* send_ = nullptr;
  Shape shape_;  ///< of the row
  uint32_t round_ = 1;
  int64_t operations_ = 0;  ///< of the row
};

/// Leaves the job however the measurement ended.
struct Context {
  ina_context* context = nullptr;
  ~Context() {
    if (context) ina_finalize(context, 0);
  }
};

}  // namespace

ExitCode run_rank(const Options& options, int rank, SharedArea* area) {
  ina_config config;
  ina_config_init(&config);
  std::string url = options.url;
  for (size_t at; (at = url.find(kRankInUrl)) != std::string::npos;) {
    if (!area) throw std::runtime_error("{rank} in the URL needs --ranks");
    url.replace(at, kRankInUrl.size(), std::to_string(rank));
  }
  if (!url.empty()) config.url = url.c_str();
  if (!options.job.empty()) config.job = options.job.c_str();
  if (area) {
    config.rank = rank;
    config.world_size = options.ranks;
  }
  config.timeout_us = options.timeout_us;
  config.numeric = options.numeric;
  Context joined;
  if (const int status = ina_init(&config, &joined.context); status != INA_OK)
    throw std::runtime_error(
        fmt::format("{}: {}", ina_status_name(status), ina_last_error(nullptr)));

  const std::vector<Case> cases = cases_of(options, ina_world_size(joined.context));
  if (cases.empty())
    throw std::runtime_error("nothing to measure: the sizes hold no element, or avg of integers");
  std::optional<Worker> worker(std::in_place, options, rank, area, joined.context);
  const bool reports = worker->rank() == 0;
  if (reports) print_head(options, worker->ranks());
  std::vector<Row> rows;
  bool correct = true;
  for (const Case& c : cases) {
    rows.push_back(worker->measure(c));
    correct = correct && rows.back().correct.value_or(true);
    if (reports) print_row(rows.back());
  }
  if (reports && !options.json_file.empty())
    if (const std::string wrong = write_json(options, rows); !wrong.empty())
      throw std::runtime_error(wrong);
  worker.reset();  // its buffers are the context's
  const int status = ina_finalize(std::exchange(joined.context, nullptr), 0);
  if (status != INA_OK)
    throw std::runtime_error(fmt::format("leaving the job: {}", ina_status_name(status)));
  return correct ? kExitOk : kExitIncorrect;
}

}  // namespace ina::perf
