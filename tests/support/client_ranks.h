// The ranks of a job, each in a thread of its own, through the public API.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ina/ina.hpp"
#include "tests/support/switch_fixture.h"

namespace ina::test {

/// Changes what a rank joins with: job "job", and 20 s.
using ChangeConfig = std::function<void(ina_config&)>;

inline Context join(const TestSwitch& sw, int rank, int world, const ChangeConfig& change = {}) {
  ina_config config;
  ina_config_init(&config);
  const std::string url = sw.url();
  config.url = url.c_str();
  config.job = "job";
  config.rank = rank;
  config.world_size = world;
  config.timeout_us = 20'000'000;
  if (change) change(config);
  return Context(config);
}

/// Runs `body(rank)` for each rank in a thread of its own, and waits for all. An exception from it
/// fails the test.
template <class F>
void in_threads(int world, F&& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

/// Runs `body(context, rank)` for each rank, and waits for all.
template <class F>
void on_ranks(const TestSwitch& sw, int world, F&& body, const ChangeConfig& change = {}) {
  in_threads(world, [&](int rank) {
    Context context = join(sw, rank, world, change);
    body(context, rank);
    context.finalize();
  });
}

/// As `on_ranks`, for jobs that an error ends: no body begins before all ranks have joined, because
/// one that still joins would hear of the error there; and each leaves without a goodbye.
template <class F>
void on_joined_ranks(const TestSwitch& sw, int world, F&& body, const ChangeConfig& change = {}) {
  std::vector<std::optional<Context>> contexts(static_cast<size_t>(world));
  in_threads(world, [&](int rank) {
    contexts[static_cast<size_t>(rank)] = join(sw, rank, world, change);
  });
  if (testing::Test::HasFailure()) return;
  in_threads(world, [&](int rank) {
    Context own = std::move(*contexts[static_cast<size_t>(rank)]);
    body(own, rank);
  });
}

}  // namespace ina::test
