// The ranks of a job, each in a thread of its own, through the public API.
#pragma once

#include <gtest/gtest.h>

#include <functional>
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

/// Runs `body(context, rank)` for each rank, and waits for all.
template <class F>
void on_ranks(const TestSwitch& sw, int world, F&& body, const ChangeConfig& change = {}) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Context context = join(sw, rank, world, change);
        body(context, rank);
        context.finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace ina::test
