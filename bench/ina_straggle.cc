// ina-straggle: one rank of a job that trains without the mathematics. In each iteration it makes a
// gradient, bucket by bucket at a stated rate, has each bucket summed at once, and goes on when it
// has all sums. At times it is slow, as told by --straggle. Making a gradient is waiting, so that
// many workers fit a machine with few cores, and a slow one takes nothing from others. Finished
// buckets lie in staging memory until they are on their way to the switch; while the memory is full
// the worker makes no more.
//
// Says in JSON how long each iteration took on this rank. Every element of every sum is checked.
// scripts/bench_straggler.py starts the ranks.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <time.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/straggle/slowness.h"
#include "common/command_line.h"
#include "common/json/json.h"
#include "ina/ina.hpp"

namespace ina::straggle {
namespace {

struct Options {
  std::string url;
  std::string job = "straggle";
  int rank = 0;
  int ranks = 0;
  uint64_t bytes = 32 << 20;
  uint64_t bucket_bytes = 64 << 10;
  uint64_t staging_bytes = 256 << 10;
  double rate = 16;  ///< MiB/s
  int iterations = 4;
  std::string straggle = "none";
  uint64_t seed = 1;
};

Time now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * Time{1'000'000'000} + time.tv_nsec;
}

constexpr Time kStagingPauseNs = 500'000;

void sleep_until(Time when) {
  const timespec time{when / 1'000'000'000, when % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

Context join(const Options& options) {
  ina_config config;
  ina_config_init(&config);
  config.url = options.url.c_str();
  config.job = options.job.c_str();
  config.rank = options.rank;
  config.world_size = options.ranks;
  return Context(config);
}

/// A moment that has come for all ranks: times count from there.
Time common_start(Context& context) {
  int64_t latest = now_ns();
  context.allreduce<int64_t>(std::span(&latest, 1), INA_MAX);
  return latest;
}

int32_t value_of(size_t i, int iteration) {
  return static_cast<int32_t>(i % 8191) + iteration;
}

class Trainer {
 public:
  Trainer(const Options& options, const Pattern& pattern, Context& context)
      : options_(options),
        context_(context),
        slowness_(pattern, options.rank, options.ranks, options.seed),
        link_(pattern.kind == Pattern::Kind::kLink && options.rank == 0 ? pattern.severity : 0),
        per_bucket_(options.bucket_bytes / sizeof(int32_t)),
        gradient_(options.bytes / sizeof(int32_t)) {}

  nlohmann::json run() {
    std::vector<double> seconds;
    start_ = common_start(context_);
    bytes_before_ = context_.stats().bytes_sent;
    Time begin = start_;
    for (int i = 0; i < options_.iterations; ++i) {
      iterate(i, begin);
      const Time end = now_ns();
      seconds.push_back(static_cast<double>(end - begin) * 1e-9);
      begin = end;
    }
    const ina_stats stats = context_.stats();
    return {{"iterations_s", seconds},
            {"wrong_elements", wrong_},
            {"bytes", options_.bytes},
            {"questions", stats.queries},
            {"fragments_resent", stats.fragments_resent},
            {"packets_sent", stats.packets_sent},
            {"packets_received", stats.packets_received}};
  }

 private:
  void iterate(int iteration, Time begin) {
    requests_.clear();
    Time made = begin;
    Time left = begin;  // the worker, over its link
    const auto work = static_cast<Time>(static_cast<double>(options_.bucket_bytes) /
                                        (options_.rate * (1 << 20)) * 1e9);
    for (size_t first = 0; first < gradient_.size(); first += per_bucket_) {
      const auto bucket =
          std::span(gradient_).subspan(first, std::min(per_bucket_, gradient_.size() - first));
      made = start_ + slowness_.done(std::max(made, room_for(bucket.size_bytes())) - start_, work);
      left = std::max(made, left + static_cast<Time>(link_ * static_cast<double>(work)));
      sleep_until(left);
      for (size_t i = 0; i < bucket.size(); ++i)
        bucket[i] = value_of(first + i, iteration) * (options_.rank + 1);
      requests_.push_back(context_.allreduce_async(bucket));
      started_bytes_ += bucket.size_bytes();
    }
    for (Request& request : requests_) request.wait();
    const int32_t weight = options_.ranks * (options_.ranks + 1) / 2;
    for (size_t i = 0; i < gradient_.size(); ++i)
      wrong_ += gradient_[i] != value_of(i, iteration) * weight ? 1 : 0;
  }

  /// Waits until so much more fits the staging memory. When that was, or 0 if it was at once.
  Time room_for(uint64_t bytes) {
    Time when = 0;
    while (started_bytes_ + bytes >
           context_.stats().bytes_sent - bytes_before_ + options_.staging_bytes) {
      when = now_ns() + kStagingPauseNs;
      sleep_until(when);
    }
    return when;
  }

  const Options& options_;
  Context& context_;
  Slowness slowness_;
  double link_;  ///< how many times slower than the work its link is; 0: no limit
  size_t per_bucket_;
  std::vector<int32_t> gradient_;
  std::vector<Request> requests_;
  Time start_ = 0;
  uint64_t bytes_before_ = 0;   ///< that were sent to agree on the start
  uint64_t started_bytes_ = 0;  ///< given to be summed
  uint64_t wrong_ = 0;
};

int run(const Options& options) {
  const auto pattern = parse_pattern(options.straggle);
  if (!pattern) throw std::runtime_error("--straggle " + pattern.error());
  ::prctl(PR_SET_TIMERSLACK, 1);
  Context context = join(options);
  Trainer trainer(options, *pattern, context);
  const nlohmann::json report = trainer.run();
  context.finalize();
  fmt::print("{}\n", report.dump());
  return 0;
}

}  // namespace
}  // namespace ina::straggle

int main(int argc, char** argv) {
  ina::straggle::Options options;
  ina::command_line::App app("One rank that makes gradients at a rate, and is slow at times");
  app.add_option("--url", options.url, "the switch")->required();
  app.add_option("--job", options.job)->capture_default_str();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.ranks)->required();
  app.add_option("--bytes", options.bytes, "of a gradient")
      ->check(ina::command_line::between(4, 1 << 30))
      ->capture_default_str();
  app.add_option("--bucket-bytes", options.bucket_bytes, "summed together")
      ->check(ina::command_line::between(4, 1 << 30))
      ->capture_default_str();
  app.add_option("--staging-bytes", options.staging_bytes,
                 "made and not sent yet; at least two buckets, or the worker waits for itself")
      ->capture_default_str();
  app.add_option("--rate", options.rate, "at which a worker makes them, in MiB/s")
      ->check(ina::command_line::between(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations)
      ->check(ina::command_line::between(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--straggle", options.straggle,
                 "who is slow: none, permanent:SEVERITY or link:SEVERITY (rank 0),\n"
                 "rotating:SEVERITY:PERIOD or random:SEVERITY:PERIOD, e.g. rotating:4:250ms")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of random");
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  try {
    return ina::straggle::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-straggle: rank {}: {}\n", options.rank, error.what());
    return 1;
  }
}
