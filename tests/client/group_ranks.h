// Workers of a job and of its groups, for tests of ina_split and ina_create_group.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <thread>

#include "ina/ina.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina::test {

inline constexpr int64_t kLongUs = 600'000'000;
/// That is to pass; joining takes less.
#ifdef INA_SLOW_BUILD
inline constexpr int64_t kShortUs = 10'000'000;
#else
inline constexpr int64_t kShortUs = 2'000'000;
#endif

struct Outcome {
  int status = INA_OK;
  std::string text;
};

/// A worker's context: of a job, or of one of its groups.
class Worker {
 public:
  Worker() = default;
  explicit Worker(ina_context* context) : context_(context) {}
  Worker(Worker&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  Worker& operator=(Worker&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~Worker() {
    if (context_) ina_finalize(context_, 100'000);
  }

  Outcome join(const std::string& url, int rank, int world, int64_t timeout_us = kLongUs) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "job";
    config.rank = rank;
    config.world_size = world;
    config.timeout_us = timeout_us;
    config.rejoin_timeout_us = kLongUs;
    const int status = ina_init(&config, &context_);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  /// `group`: empty if this worker is in none.
  Outcome split(int colour, int key, Worker& group) {
    ina_context* made = nullptr;
    const int status = ina_split(context_, colour, key, &made);
    group = Worker(made);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  Outcome create(const std::vector<int>& ranks, uint64_t tag, Worker& group) {
    ina_context* made = nullptr;
    const int status = ina_create_group(context_, ranks.data(), ranks.size(), tag, &made);
    group = Worker(made);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  /// All elements of the result are checked: rank r gives i + r * 1000.
  Outcome sum(size_t count) {
    const int n = world();
    std::vector<int32_t> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = static_cast<int32_t>(i) + rank() * 1000;
    const int status =
        ina_allreduce(context_, data.data(), data.data(), count, INA_INT32, INA_SUM, 0);
    if (status != INA_OK) return {status, ina_last_error(context_)};
    for (size_t i = 0; i < count; ++i)
      if (data[i] != n * static_cast<int32_t>(i) + 1000 * (n * (n - 1) / 2))
        return {INA_ERR_INTERNAL, "wrong element " + std::to_string(i)};
    return {};
  }
  Outcome barrier() {
    const int status = ina_barrier(context_, 0);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  Outcome leave(int64_t timeout_us = 0) {
    const int status = ina_finalize(std::exchange(context_, nullptr), timeout_us);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  ina_stats stats() const {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    ina_get_stats(context_, &stats);
    return stats;
  }
  int rank() const { return ina_rank(context_); }
  int world() const { return ina_world_size(context_); }
  explicit operator bool() const { return context_ != nullptr; }
  ina_context* context() const { return context_; }

 private:
  ina_context* context_ = nullptr;
};

#define RETURN_IF_FAILED(call)                                                               \
  if (const ::ina::test::Outcome outcome_of_call = (call); outcome_of_call.status != INA_OK) \
    return ::ina::test::Outcome {                                                            \
      outcome_of_call.status, std::string(#call ": ") + outcome_of_call.text                 \
    }

/// Runs `body(worker, rank)` in a thread per rank, after all have joined. `meanwhile` runs here.
inline void on_ranks(const std::string& url, int world,
                     const std::function<Outcome(Worker&, int)>& body,
                     const std::function<void()>& meanwhile = {}) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::latch joined(world);  // one that still joins would hear of others' errors there
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Worker worker;
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      outcome = worker.join(url, rank, world);
      joined.arrive_and_wait();
      if (outcome.status == INA_OK) outcome = body(worker, rank);
      if (outcome.status == INA_OK && worker) outcome = worker.leave();
    });
  if (meanwhile) meanwhile();
  for (auto& thread : threads) thread.join();
  for (int rank = 0; rank < world; ++rank)
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].status, INA_OK)
        << "rank " << rank << ": " << outcomes[static_cast<size_t>(rank)].text;
}

inline SwitchOptions shared_slots(uint32_t slots = 128, Home home = Home::kWorkers) {
  SwitchOptions options;
  options.slots = slots;
  options.conductor = [home](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.rules.home = home;
  };
  return options;
}

template <class Switch>
void expect_nothing_left(const Switch& sw) {
  const control::Json status = sw.status();
  EXPECT_EQ(status["jobs"].size(), 0u) << status["jobs"];
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0);
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], 0);
}

}  // namespace ina::test
