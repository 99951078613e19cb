// Hierarchies of ranks, and what their collectives must give, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ina/ina.hpp"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina::test {

inline SwitchOptions shared_slots() {
  SwitchOptions options;
  options.slots = 512;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  };
  return options;
}

/// Dimensions of unlike rates, so that chunks take different orders.
inline std::string topology(const std::vector<int>& sizes) {
  std::string yaml = "dimensions:\n";
  int gbps = 8;
  for (const int size : sizes) {
    yaml += "  - {kind: ina, size: " + std::to_string(size) + ", gbps: " + std::to_string(gbps) +
            ", step_latency_ns: 100, point_to_point: direct}\n";
    gbps = gbps * 3 / 4;
  }
  return yaml;
}

inline int32_t value_of(int rank, size_t index) {
  return static_cast<int32_t>(static_cast<uint32_t>(rank) * 1'000'003u +
                              static_cast<uint32_t>(index) * 7919u);
}
inline std::vector<int32_t> values_of(int rank, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value_of(rank, i);
  return values;
}
inline int32_t sum_of(int world, size_t index) {
  uint32_t sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += static_cast<uint32_t>(value_of(rank, index));
  return static_cast<int32_t>(sum);
}

/// For many ranks that share few processors, under sanitizers.
inline void be_patient(ina_config& config) {
  config.timeout_us = 120'000'000;
}

#ifdef INA_SLOW_BUILD
inline const std::vector<size_t> kCounts = {0, 1, 5003};
inline const std::vector<const char*> kGroupSchedulers = {"themis"};
#else
inline const std::vector<size_t> kCounts = {0, 1, 13, 5003};
inline const std::vector<const char*> kGroupSchedulers = {"themis", "baseline", "search"};
#endif

inline void expect_allreduce(Hierarchy& hierarchy, int rank, int world, size_t count,
                             const Hierarchy::Options& options) {
  const auto send = values_of(rank, count);
  std::vector<int32_t> recv(count, -1), in_place = send;
  hierarchy.allreduce<int32_t>(send, recv, INA_SUM, options);
  hierarchy.allreduce<int32_t>(in_place, in_place, INA_SUM, options);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(recv[i], sum_of(world, i)) << i;
  EXPECT_EQ(recv, in_place);
}

inline void expect_reduce_scatter(Hierarchy& hierarchy, int rank, int world, size_t count,
                                  const Hierarchy::Options& options) {
  const auto whole = count * static_cast<size_t>(world), own = count * static_cast<size_t>(rank);
  auto send = values_of(rank, whole);
  std::vector<int32_t> recv(count, -1);
  hierarchy.reduce_scatter<int32_t>(send, recv, INA_SUM, options);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(recv[i], sum_of(world, own + i)) << i;
  EXPECT_EQ(send, values_of(rank, whole));
  hierarchy.reduce_scatter<int32_t>(send, std::span(send).subspan(own, count), INA_SUM, options);
  EXPECT_TRUE(std::equal(recv.begin(), recv.end(), send.begin() + static_cast<long>(own)));
}

inline void expect_all_gather(Hierarchy& hierarchy, int rank, int world, size_t count,
                              const Hierarchy::Options& options) {
  const auto send = values_of(rank, count);
  std::vector<int32_t> recv(count * static_cast<size_t>(world), -1);
  hierarchy.all_gather<int32_t>(send, recv, options);
  for (int from = 0; from < world; ++from)
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(recv[static_cast<size_t>(from) * count + i], value_of(from, i)) << from << " " << i;
}

inline void expect_all_to_all(Hierarchy& hierarchy, int rank, int world, size_t count,
                              const Hierarchy::Options& options) {
  const auto send = values_of(rank, count * static_cast<size_t>(world));
  std::vector<int32_t> recv(send.size(), -1);
  hierarchy.all_to_all<int32_t>(send, recv, options);
  for (int from = 0; from < world; ++from)
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(recv[static_cast<size_t>(from) * count + i],
                value_of(from, static_cast<size_t>(rank) * count + i))
          << from << " " << i;
}

inline void expect_collectives(Hierarchy& hierarchy, int rank, int world,
                               const Hierarchy::Options& options,
                               const std::vector<size_t>& counts) {
  for (const size_t count : counts) {
    SCOPED_TRACE(std::to_string(count) + " elements");
    expect_allreduce(hierarchy, rank, world, count, options);
    expect_reduce_scatter(hierarchy, rank, world, count, options);
    expect_all_gather(hierarchy, rank, world, count, options);
    expect_all_to_all(hierarchy, rank, world, count, options);
  }
}

}  // namespace ina::test
