// Dimensions from measured times, and the YAML of a topology, which reads back as it was.
#include "plans/themis/calibration.h"

#include <gtest/gtest.h>

#include "plans/themis/text/topology_file.h"
#include "tests/plans/themis_fixture.h"

namespace ina::themis {
namespace {

// A link of 8 Gb/s: a byte a nanosecond.
DimensionTimes times(DimensionTimes::Pair all_reduce, DimensionTimes::Pair reduce_scatter,
                     DimensionTimes::Pair all_gather) {
  return {.least_ns = 21'500,
          .smaller_bytes = 1000,
          .larger_bytes = 5000,
          .all_reduce = all_reduce,
          .reduce_scatter = reduce_scatter,
          .all_gather = all_gather};
}

TEST(ThemisCalibration, RatesAreOfWhatTheLargerVectorTakesBeyondTheSmallerOne) {
  const auto measured = times({30'000, 34'000}, {0, 0}, {0, 0});
  EXPECT_EQ(measured_bits_per_s(measured, measured.all_reduce), 8 * kGbit);
  // Noise: the larger one was faster.
  EXPECT_EQ(measured_bits_per_s(measured, {20'000, 10'000}), 4 * kGbit);
  EXPECT_EQ(measured_bits_per_s(measured, {0, 0}), 5000 * 8 * kGbit);
}

TEST(ThemisCalibration, SumsThatAreSlowerThanGathersAreTheSwitchs) {
  const Dimension before = dimension(DimensionKind::kRing, 4, 1);
  const Dimension alike =
      calibrated(before, times({30'000, 34'000}, {25'000, 29'000}, {20'000, 24'000}));
  EXPECT_EQ(alike.kind, DimensionKind::kIna);
  EXPECT_EQ(alike.size, 4u);
  EXPECT_EQ(alike.bits_per_s, 8 * kGbit);
  EXPECT_EQ(alike.aggregation_bits_per_s, 0u);
  EXPECT_EQ(alike.step_latency_ps, 21'500'000);
  const Dimension slower =
      calibrated(before, times({30'000, 34'000}, {25'000, 33'000}, {20'000, 24'000}));
  EXPECT_EQ(slower.bits_per_s, 8 * kGbit);
  EXPECT_EQ(slower.aggregation_bits_per_s, 4 * 4 * kGbit);
  EXPECT_EQ(slower.in_network_bits_per_s(), 4 * kGbit);
}

TEST(ThemisCalibration, WhatIsMeasuredIsATopology) {
  for (const int64_t ns : {int64_t{0}, int64_t{1}, int64_t{1'000'000'000'000'000}}) {
    DimensionTimes slow = times({0, ns}, {0, ns}, {0, ns});
    slow.least_ns = ns;
    const Topology made{.dimensions = {calibrated(dimension(DimensionKind::kDirect, 4, 1), slow)}};
    const auto valid = validate(made);
    EXPECT_TRUE(valid) << valid.error().text;
  }
}

TEST(ThemisCalibration, YamlReadsBackAsItWas) {
  Cases cases(7);
  for (int round = 0; round < 100; ++round) {
    Topology topology = cases.topology(true);
    topology.name = "a \"name\", with: {all} \\ of # it";
    topology.dimensions.front().name = "- ? &x !y %z";
    const std::string yaml = to_yaml(topology);
    const auto read = themis::load_topology(yaml, "calibrated");
    ASSERT_TRUE(read) << yaml << read.error().front().to_string();
    EXPECT_EQ(*read, topology) << yaml;
  }
}

}  // namespace
}  // namespace ina::themis
