// Clusters, and what becomes of them, for tests.
#pragma once

#include <gtest/gtest.h>

#include "sim/cluster.h"

namespace ina::sim {

inline constexpr Nanos kMs = 1'000'000;
// A few round trips: no host has time slices.
inline constexpr Nanos kShortPatience = 20'000;

inline ClusterSpec one_job(uint64_t bytes, uint32_t iterations = 1) {
  ClusterSpec spec;
  spec.seed = 1;
  spec.slots = 4096;
  spec.jitter = 0;
  spec.policy.kind = scheduler::PolicyKind::kEsa;
  spec.fabric.racks[0].link.ecn_bytes = 200'000;
  spec.jobs.push_back({make_plain(bytes), 8, iterations, 0});
  return spec;
}

inline ClusterSpec crowd() {
  ClusterSpec spec = one_job(1);
  spec.jobs.clear();
  for (int i = 0; i < 4; ++i)
    spec.jobs.push_back({make_model(i % 2 == 0 ? "vgg16" : "resnet50", 256), 4, 3, i * kMs / 10});
  spec.slots = 32;
  spec.jitter = 0.02;
  return spec;
}

/// Large models on few slots: what has no slot meets on the link of its job's server.
inline ClusterSpec scarce() {
  ClusterSpec spec = one_job(1);
  spec.jobs.clear();
  const char* const models[] = {"vgg16", "bert", "gnmt"};
  for (int i = 0; i < 6; ++i)
    spec.jobs.push_back({make_model(models[i % 3], 256), 8, 2, i * kMs / 4});
  spec.slots = 16;
  spec.home = Home::kDedicated;
  spec.jitter = 0.02;
  return spec;
}

inline double seconds(const ClusterSpec& spec) {
  const Outcome outcome = run_cluster(spec);
  EXPECT_EQ(outcome.violations, std::vector<std::string>{});
  return static_cast<double>(outcome.end) * 1e-9;
}

inline void expect_correct(const Outcome& outcome) {
  EXPECT_EQ(outcome.violations, std::vector<std::string>{});
  EXPECT_GT(outcome.sums_checked, 0u);
}

inline Outcome correct(const ClusterSpec& spec) {
  Outcome outcome = run_cluster(spec);
  expect_correct(outcome);
  return outcome;
}

/// From each job's arrival to its end.
inline double average_seconds(const Outcome& outcome) {
  double sum = 0;
  for (const JobResult& job : outcome.jobs)
    sum += static_cast<double>(job.finished - job.arrival) * 1e-9;
  return sum / static_cast<double>(outcome.jobs.size());
}

}  // namespace ina::sim
