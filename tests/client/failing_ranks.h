// Ranks whose calls fail, for tests of errors.
#pragma once

#include <functional>
#include <latch>
#include <thread>

#include "ina/ina.h"
#include "tests/support/switch_fixture.h"

namespace ina::test {

struct Outcome {
  int status = INA_OK;
  std::string text;
};

class Worker {
 public:
  Outcome join(const std::string& url, int rank, int world, const char* job = "job",
               int64_t timeout_us = 10'000'000, int64_t rejoin_timeout_us = 300'000) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = job;
    config.rank = rank;
    config.world_size = world;
    config.timeout_us = timeout_us;
    config.rejoin_timeout_us = rejoin_timeout_us;
    const int status = ina_init(&config, &context_);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  Outcome sum(size_t count, ina_dtype dtype = INA_FLOAT32, ina_op op = INA_SUM,
              int64_t timeout_us = 0) {
    std::vector<std::byte> data(count * ina_dtype_size(dtype));
    const int status =
        ina_allreduce(context_, data.data(), data.data(), count, dtype, op, timeout_us);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  Outcome leave(int64_t timeout_us = 0) {
    const int status = ina_finalize(context_, timeout_us);
    context_ = nullptr;
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  ~Worker() {
    if (context_) ina_finalize(context_, 1'000'000);
  }
  ina_context* context_ = nullptr;
};

/// `body(worker, rank)` in a thread per rank, after all have joined.
inline std::vector<Outcome> on_ranks(const TestSwitch& sw, int world,
                                     const std::function<Outcome(Worker&, int)>& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::latch joined(world);  // one that still joins would hear of others' errors there
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Worker worker;
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      outcome = worker.join(sw.url(), rank, world);
      joined.arrive_and_wait();
      if (outcome.status == INA_OK) outcome = body(worker, rank);
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

}  // namespace ina::test
