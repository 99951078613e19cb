// ina-contention: one worker of a job that looks like training to a switch. It computes (sleeps)
// for a while, then sums the gradients of its layers, back layer first, and waits for all.
// scripts/bench_contention.py starts the workers of two jobs and compares policies.
//
// Says "ready" when its job is complete, waits for a line with the time of CLOCK_MONOTONIC, in ns,
// at which to start, and says in JSON how long it took. Every element of every sum is checked.
#include <errno.h>
#include <fmt/format.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/json/json.h"
#include "ina/ina.hpp"

namespace ina::contention {
namespace {

struct Options {
  std::string url;
  std::string job;
  int rank = 0;
  int ranks = 0;
  uint32_t layers = 1;
  size_t layer_bytes = 0;
  uint64_t iterations = 1;
  int64_t compute_us = 0;
  bool hints = true;
};

timespec monotonic(int64_t ns) {
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

void sleep_until(int64_t ns) {
  const timespec time = monotonic(ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

/// Sums of these are whole numbers below 2^24, so exact in float32 in any order. They tell layers,
/// the last iterations and the places within 256 KiB apart.
float base_of(uint64_t iteration, uint32_t layer) {
  return static_cast<float>(iteration % 61 * 16 + layer % 16);
}
constexpr size_t kPlaces = 1 << 16;

void fill(std::span<float> gradients, uint64_t iteration, uint32_t layer, int rank) {
  const float base = base_of(iteration, layer) + static_cast<float>(rank);
  for (size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = base + static_cast<float>(static_cast<int32_t>(i % kPlaces));
}

void check(std::span<const float> sums, uint64_t iteration, uint32_t layer, int ranks) {
  const auto n = static_cast<float>(ranks);
  const float base = n * base_of(iteration, layer) + n * (n - 1) / 2;
  const auto expected = [&](size_t i) {
    return base + n * static_cast<float>(static_cast<int32_t>(i % kPlaces));
  };
  uint32_t wrong = 0;  // without a branch, so that it costs little
  for (size_t i = 0; i < sums.size(); ++i) wrong |= sums[i] != expected(i) ? 1U : 0U;
  if (wrong == 0) return;
  size_t at = 0;
  while (sums[at] == expected(at)) ++at;
  throw std::runtime_error(
      fmt::format("wrong sum: iteration {}, layer {}, element {} is {}, not {}", iteration, layer,
                  at, sums[at], expected(at)));
}

struct Layer {
  std::vector<float> gradients;
  std::vector<float> sums;
};

/// Returns how long the iterations took.
int64_t train(Context& context, const Options& options, std::vector<Layer>& layers,
              int64_t start_ns) {
  std::vector<Request> requests;
  requests.reserve(layers.size());
  sleep_until(start_ns);
  for (uint64_t iteration = 0; iteration < options.iterations; ++iteration) {
    sleep_until(now_ns() + options.compute_us * 1000);
    for (uint32_t n = options.layers; n >= 1; --n) {
      Layer& layer = layers[n - 1];
      fill(layer.gradients, iteration, n, options.rank);
      if (options.hints)
        context.set_hints({.struct_size = sizeof(ina_hints),
                           .layer = n,
                           .layers = options.layers,
                           .remaining_iterations = options.iterations - iteration});
      requests.push_back(context.allreduce_async<float>(layer.gradients, layer.sums));
    }
    for (Request& request : requests) request.wait();
    requests.clear();
    for (uint32_t n = 1; n <= options.layers; ++n)
      check(layers[n - 1].sums, iteration, n, options.ranks);
  }
  return now_ns() - start_ns;
}

int run(const Options& options) {
  ina_config config;
  ina_config_init(&config);
  config.url = options.url.c_str();
  config.job = options.job.c_str();
  config.rank = options.rank;
  config.world_size = options.ranks;
  Context context(config);

  std::vector<Layer> layers(options.layers);
  const size_t elements = options.layer_bytes / sizeof(float);
  for (Layer& layer : layers) layer = {std::vector<float>(elements), std::vector<float>(elements)};
  context.barrier();
  fmt::print("ready\n");
  std::fflush(stdout);
  int64_t start_ns = 0;
  if (!(std::cin >> start_ns)) throw std::runtime_error("nobody said when to start");

  const int64_t took_ns = train(context, options, layers, start_ns);
  const ina_stats stats = context.stats();
  context.finalize();
  const nlohmann::json report = {{"seconds", static_cast<double>(took_ns) * 1e-9},
                                 {"operations", stats.operations},
                                 {"fragments_sent", stats.fragments_sent},
                                 {"fragments_resent", stats.fragments_resent},
                                 {"queries", stats.queries},
                                 {"sleeps", stats.sleeps}};
  fmt::print("{}\n", report.dump());
  return 0;
}

}  // namespace
}  // namespace ina::contention

int main(int argc, char** argv) {
  ina::contention::Options options;
  ina::command_line::App app("One worker of a simulated training job");
  app.add_option("--url", options.url, "the switch")->required();
  app.add_option("--job", options.job)->required();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.ranks, "workers of the job")->required();
  app.add_option("--layers", options.layers)->check(ina::command_line::between(1, 1000));
  app.add_option("--layer-bytes", options.layer_bytes)->required();
  app.add_option("--iterations", options.iterations);
  app.add_option("--compute-us", options.compute_us, "sleep before each iteration's sums");
  app.add_flag("!--no-hints", options.hints, "say nothing about the job's progress");
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  try {
    return ina::contention::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-contention: job {} rank {}: {}\n", options.job, options.rank,
               error.what());
    return 1;
  }
}
