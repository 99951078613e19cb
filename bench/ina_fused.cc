// ina-fused: one rank of a job that sums many small tensors in several ways in turn: one blocking
// call each; all started, then waited for; in a group; coalesced. For comparison it also sums a
// single large tensor. scripts/bench_fused.py starts the ranks.
//
// Says in JSON how long each round of each way took on this rank. Every element of every sum is
// checked, outside of the time taken.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/json/json.h"
#include "ina/ina.hpp"

namespace ina::fused {
namespace {

struct Options {
  std::string url;
  int rank = 0;
  int ranks = 0;
  size_t tensors = 100;
  size_t least_bytes = 256;
  size_t most_bytes = 4096;
  int rounds = 100;
  int warmup_rounds = 10;
  uint64_t coalesce_bytes = 64 << 10;
  std::string idle = "auto";
};

ina_idle idle_of(const std::string& name) {
  if (name == "spin") return INA_IDLE_SPIN;
  if (name == "yield") return INA_IDLE_YIELD;
  return INA_IDLE_AUTO;
}

Context join(const Options& options, const char* job, uint64_t coalesce_bytes) {
  ina_config config;
  ina_config_init(&config);
  config.url = options.url.c_str();
  config.job = job;
  config.rank = options.rank;
  config.world_size = options.ranks;
  config.coalesce_bytes = coalesce_bytes;
  config.idle = idle_of(options.idle);
  return Context(config);
}

/// All tensors lie in one buffer, in order: `whole` is the single tensor made of them.
class Tensors {
 public:
  explicit Tensors(const Options& options) : ranks_(options.ranks), rank_(options.rank) {
    size_t elements = 0;
    for (size_t n = 0; n < options.tensors; ++n) {
      const size_t range = options.most_bytes - options.least_bytes;
      const size_t steps = options.tensors > 1 ? options.tensors - 1 : 1;
      // Sizes alternate between small and large rather than grow.
      const size_t step = n * 37 % (steps + 1);
      ends_.push_back(elements += (options.least_bytes + range * step / steps) / sizeof(float));
    }
    whole_.resize(elements);
  }
  size_t size() const { return ends_.size(); }
  std::span<float> whole() { return whole_; }
  std::span<float> tensor(size_t n) {
    const size_t begin = n == 0 ? 0 : ends_[n - 1];
    return std::span(whole_).subspan(begin, ends_[n] - begin);
  }
  void fill(int round) {
    for (size_t i = 0; i < whole_.size(); ++i) whole_[i] = value(rank_, round, i);
  }
  /// The number of wrong elements.
  uint64_t count_wrong(int round) const {
    uint64_t wrong = 0;
    for (size_t i = 0; i < whole_.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < ranks_; ++rank) sum += value(rank, round, i);
      wrong += whole_[i] != sum ? 1 : 0;
    }
    return wrong;
  }

 private:
  /// Whole numbers, so that their sums are exact.
  static float value(int rank, int round, size_t i) {
    return static_cast<float>((i + static_cast<size_t>(round) * 7) % 8191 +
                              static_cast<size_t>(rank) * 10'000);
  }
  int ranks_;
  int rank_;
  std::vector<size_t> ends_;
  std::vector<float> whole_;
};

void start_all(Context& context, Tensors& tensors, std::vector<Request>& requests) {
  for (size_t n = 0; n < tensors.size(); ++n)
    requests.push_back(context.allreduce_async(tensors.tensor(n)));
}
void wait_all(std::vector<Request>& requests) {
  for (Request& request : requests) request.wait();
  requests.clear();
}

/// A way to sum all tensors.
struct Way {
  const char* name;
  Context& context;
  std::function<void(Context&)> sum;
};

std::vector<Way> ways_of(Context& plain, Context& coalescing, Tensors& tensors,
                         std::vector<Request>& requests) {
  return {
      {"blocking", plain,
       [&tensors](Context& context) {
         for (size_t n = 0; n < tensors.size(); ++n) context.allreduce(tensors.tensor(n));
       }},
      {"asynchronous", plain,
       [&tensors, &requests](Context& context) {
         start_all(context, tensors, requests);
         wait_all(requests);
       }},
      {"group", plain,
       [&tensors, &requests](Context& context) {
         Group group(context);
         start_all(context, tensors, requests);
         group.end();
         wait_all(requests);
       }},
      {"coalesced", coalescing,
       [&tensors, &requests](Context& context) {
         start_all(context, tensors, requests);
         wait_all(requests);
       }},
      {"one_tensor", plain, [&tensors](Context& context) { context.allreduce(tensors.whole()); }},
  };
}

class Measurement {
 public:
  Measurement(const Options& options, Tensors& tensors) : options_(options), tensors_(tensors) {}

  void run(const Way& way, int round) {
    // Once untimed: the first way after the other job finds its memory out of the caches.
    for (const bool timed : {false, true}) {
      tensors_.fill(round);
      const uint64_t sent = way.context.stats().fragments_sent;
      way.context.barrier();
      const auto begin = Clock::now();
      way.sum(way.context);
      const auto took = std::chrono::duration<double, std::micro>(Clock::now() - begin);
      // The barrier is a fragment too.
      fragments_[way.name] = way.context.stats().fragments_sent - sent - 1;
      wrong_elements_[way.name] += tensors_.count_wrong(round);
      if (timed && round >= options_.warmup_rounds) samples_[way.name].push_back(took.count());
    }
  }
  nlohmann::json report() const {
    return {{"samples_us", samples_},
            {"fragments", fragments_},
            {"wrong_elements", wrong_elements_},
            {"bytes", tensors_.whole().size_bytes()},
            {"checked_rounds", 2 * (options_.warmup_rounds + options_.rounds)}};
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Options& options_;
  Tensors& tensors_;
  nlohmann::json samples_;
  std::map<std::string, uint64_t> fragments_, wrong_elements_;
};

int run(const Options& options) {
  Context plain = join(options, "plain", 0);
  Context coalescing = join(options, "coalescing", options.coalesce_bytes);
  Tensors tensors(options);
  std::vector<Request> requests;
  requests.reserve(tensors.size());
  const std::vector<Way> ways = ways_of(plain, coalescing, tensors, requests);
  Measurement measurement(options, tensors);
  for (int round = 0; round < options.warmup_rounds + options.rounds; ++round)
    for (const Way& way : ways) measurement.run(way, round);
  plain.finalize();
  coalescing.finalize();
  fmt::print("{}\n", measurement.report().dump());
  return 0;
}

}  // namespace
}  // namespace ina::fused

int main(int argc, char** argv) {
  ina::fused::Options options;
  ina::command_line::App app("One rank that sums many small tensors in several ways");
  app.add_option("--url", options.url, "the switch")->required();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.ranks)->required();
  app.add_option("--tensors", options.tensors)->check(ina::command_line::between(1, 100'000));
  app.add_option("--least-bytes", options.least_bytes, "of a tensor")
      ->check(ina::command_line::between(4, 1 << 30));
  app.add_option("--most-bytes", options.most_bytes)->check(ina::command_line::between(4, 1 << 30));
  app.add_option("--rounds", options.rounds, "timed")
      ->check(ina::command_line::between(1, 1'000'000));
  app.add_option("--coalesce-bytes", options.coalesce_bytes);
  app.add_option("--idle", options.idle)
      ->check(ina::command_line::one_of({"auto", "spin", "yield"}));
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  try {
    if (options.most_bytes < options.least_bytes)
      throw std::runtime_error("--most-bytes is less than --least-bytes");
    return ina::fused::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-fused: rank {}: {}\n", options.rank, error.what());
    return 1;
  }
}
