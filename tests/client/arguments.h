// The arguments of functions of ina.h, ranks that pass them, and the tables of wrong ones.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ina/ina.h"
#include "tests/support/read_only_memory.h"
#include "tests/support/switch_fixture.h"

namespace ina::test {

inline constexpr int kRanks = 2;
inline constexpr size_t kCount = 6;
inline constexpr int64_t kTimeoutUs = 20'000'000;

/// The arguments of any collective.
struct Values {
  ina_context* context = nullptr;
  ina_hierarchy* hierarchy = nullptr;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = kCount;
  ina_dtype dtype = INA_FLOAT32;
  ina_op op = INA_SUM;
  int root = 0;
  const size_t* counts = nullptr;
  const size_t* displacements = nullptr;
  const size_t* recv_counts = nullptr;
  const size_t* recv_displacements = nullptr;
  const int* destinations = nullptr;
  int destination = 0, source = 0;
  const ina_hierarchical_options* options = nullptr;
  ina_hierarchical_collective collective = INA_HIERARCHICAL_ALLREDUCE;
  int64_t timeout_us = kTimeoutUs;
  ina_request** request = nullptr;
};

/// The arguments that a function has; all have send, recv and dtype.
enum Has : unsigned {
  kOp = 1,
  kRoot = 2,
  kOneCount = 4,
  kCounts = 8,
  kPlaces = 16,
  kCounted = 32,
  kDestinations = 64,
  kPair = 128,
  kHierarchy = 256,
  kCalls = 512,
};

struct Function {
  std::string name;
  unsigned has;
  std::function<int(const Values&)> waits;
  std::function<int(const Values&)> starts;
};
/// In collective_arguments_test.cc.
std::vector<Function> collectives();

/// A rank's context, its hierarchy, and memory for right arguments.
class Rank {
 public:
  Rank(const TestSwitch& sw, int rank, ina_config config) : rank_(rank), next_(1 - rank) {
    config.url = url_.assign(sw.url()).c_str();
    config.job = "job";
    config.rank = rank;
    config.world_size = kRanks;
    config.timeout_us = kTimeoutUs;
    EXPECT_EQ(ina_init(&config, &context), INA_OK) << ina_last_error(nullptr);
    const ina_hierarchy_config dimensions{sizeof dimensions,
                                          "dimensions: [{kind: ina, size: 2, gbps: 10, "
                                          "step_latency_ns: 100, point_to_point: direct}]",
                                          nullptr, nullptr, 0};
    EXPECT_EQ(ina_hierarchy_create(context, &dimensions, &hierarchy), INA_OK)
        << ina_last_error(context);
  }
  ~Rank() {
    EXPECT_EQ(ina_hierarchy_free(hierarchy, 0), INA_OK) << ina_last_error(nullptr);
    EXPECT_EQ(ina_finalize(context, 0), INA_OK) << ina_last_error(nullptr);
  }
  Values right() {
    Values v;
    v.context = context;
    v.hierarchy = hierarchy;
    v.send = send_.data();  // which must not be written to
    v.recv = recv_.data();
    v.counts = counts_.data();
    v.displacements = displacements_.data();
    v.recv_counts = counts_.data();
    v.recv_displacements = displacements_.data();
    v.destinations = destinations_.data();
    v.destination = v.source = next_;
    v.request = &request;
    return v;
  }
  int rank() const { return rank_; }

  ina_context* context = nullptr;
  ina_hierarchy* hierarchy = nullptr;
  ina_request* request = nullptr;

 private:
  std::string url_;
  int rank_, next_;
  ReadOnlyMemory send_{std::vector<std::byte>(2048)};
  std::array<double, 256> recv_{};
  std::array<size_t, kRanks> counts_{kCount, kCount}, displacements_{0, kCount};
  std::array<int, kRanks> destinations_{1, 0};
};

inline constexpr size_t kHuge = std::numeric_limits<size_t>::max();

template <class Enum>
Enum no_value(int number) {
  return static_cast<Enum>(number);
}

/// One call with wrong arguments, of a function that is no collective.
struct Other {
  std::string function;
  std::string named;
  std::function<int(Rank&)> call;
  bool no_context = false;  ///< the text is ina_last_error(NULL)'s
};
/// In arguments_test.cc.
std::vector<Other> others();

/// All tests share a switch.
class Arguments : public testing::Test {
 protected:
  static void SetUpTestSuite() { switch_ = std::make_unique<TestSwitch>(); }
  static void TearDownTestSuite() { switch_.reset(); }

  /// `body(rank)` on a thread for each rank.
  static void on_ranks(const std::function<void(Rank&)>& body) {
    ina_config config;
    ina_config_init(&config);
    on_ranks(config, body);
  }
  static void on_ranks(const ina_config& config, const std::function<void(Rank&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        Rank own(*switch_, rank, config);
        body(own);
      });
    for (auto& thread : threads) thread.join();
  }
  static uint64_t operations(const Rank& rank) {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(ina_get_stats(rank.context, &stats), INA_OK);
    return stats.operations;
  }
  /// `status` is that of a wrong call of `function`.
  static void expect_invalid(int status, const ina_context* context, const std::string& function,
                             const std::string& named) {
    const std::string text = ina_last_error(context);
    EXPECT_EQ(status, INA_ERR_INVALID) << text;
    EXPECT_THAT(text, testing::StartsWith(function));
    EXPECT_THAT(text, testing::HasSubstr(named));
  }

  inline static std::unique_ptr<TestSwitch> switch_;
};

}  // namespace ina::test
