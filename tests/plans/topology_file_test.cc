// Topologies from YAML: valid texts, and the places of errors.
#include "plans/themis/text/topology_file.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace ina::themis {
namespace {

std::vector<std::string> errors_of(std::string_view text) {
  std::vector<std::string> lines;
  const auto topology = load_topology(text, "x.yaml");
  if (!topology)
    for (const yaml::Error& error : topology.error()) lines.push_back(error.to_string());
  return lines;
}

std::string dimensions(const std::string& list) {
  return "name: x\ndimensions:\n" + list;
}

TEST(Topology, ReadsAllKeys) {
  const auto topology = load_topology(
      "name: two\n"
      "dimensions:\n"
      "  - {kind: ring, size: 5, gbps: 2.5, step_latency_ns: 0.5}\n"
      "  - {name: rack, kind: ina, size: 6, gbps: 100, step_latency_ns: 1700, aggregation_gbps: "
      "300,\n"
      "     point_to_point: ring}\n",
      "x.yaml");
  ASSERT_TRUE(topology) << topology.error().front().to_string();
  EXPECT_EQ(topology->name, "two");
  EXPECT_EQ(topology->participants(), 30u);
  const Dimension& ring = topology->dimensions[0];
  EXPECT_EQ(ring.name, "ring 5");
  EXPECT_EQ(ring.bits_per_s, 2'500'000'000u);
  EXPECT_EQ(ring.step_latency_ps, 500);
  const Dimension& rack = topology->dimensions[1];
  EXPECT_EQ(rack.name, "rack");
  EXPECT_EQ(rack.kind, DimensionKind::kIna);
  EXPECT_EQ(rack.point_to_point, DimensionKind::kRing);
  EXPECT_EQ(rack.in_network_bits_per_s(), 50'000'000'000u);
}

TEST(Topology, ThoseOfTheProjectAreRight) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(INA_CONF_DIR "/topologies")) {
    const auto topology = load_topology_file(entry.path());
    EXPECT_TRUE(topology) << topology.error().front().to_string();
    if (topology) {
      EXPECT_TRUE(topology->participants() == 1024 || topology->participants() == 128);
    }
    ++files;
  }
  EXPECT_GE(files, 8);
}

struct BadCase {
  const char* name;
  std::string yaml;
  std::string line;
};

class BadTopology : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadTopology, IsNamedWithItsPlace) {
  const std::vector<std::string> errors = errors_of(GetParam().yaml);
  ASSERT_EQ(errors.size(), 1u) << (errors.empty() ? "" : errors[1]);
  EXPECT_EQ(errors[0], GetParam().line);
}

const BadCase kBad[] = {
    {"Nothing", "", "x.yaml:1:1: a topology: a map of keys is expected, not nothing"},
    {"NoDimensions", "name: x\n", "x.yaml:1:1: a topology: has no 'dimensions'"},
    {"NoList", "dimensions: 4\n",
     "x.yaml:1:13: dimensions: a list of dimensions is expected, not 4"},
    {"Empty", "dimensions: []\n",
     "x.yaml:1:13: dimensions: a topology has 1 to 6 dimensions, not 0"},
    {"UnknownKey",
     "sise: 4\n" + dimensions("  - {kind: ring, size: 4, gbps: 1, step_latency_ns: 0}\n"),
     "x.yaml:1:1: a topology: unknown key sise (known: name, dimensions)"},
    {"Kind", dimensions("  - {kind: torus, size: 4, gbps: 1, step_latency_ns: 0}\n"),
     "x.yaml:3:12: dimensions[0].kind: torus is unknown (known: ring, direct, halving-doubling, "
     "ina)"},
    {"Size", dimensions("  - {kind: ring, size: 1, gbps: 1, step_latency_ns: 0}\n"),
     "x.yaml:3:24: dimensions[0].size: 1 is not a whole number in 2..1048576"},
    {"Rate", dimensions("  - {kind: ring, size: 4, gbps: fast, step_latency_ns: 0}\n"),
     "x.yaml:3:33: dimensions[0].gbps: fast is not a number in 0.01..1000000"},
    {"RateNan", dimensions("  - {kind: ring, size: 4, gbps: nan, step_latency_ns: 0}\n"),
     "x.yaml:3:33: dimensions[0].gbps: nan is not a number in 0.01..1000000"},
    {"NoLatency", dimensions("  - {kind: ring, size: 4, gbps: 1}\n"),
     "x.yaml:3:5: dimensions[0]: has no 'step_latency_ns'"},
    {"NoPower", dimensions("  - {kind: halving-doubling, size: 6, gbps: 1, step_latency_ns: 0}\n"),
     "x.yaml:3:5: dimensions[0]: halving-doubling needs a power of two, not 6 participants; ring "
     "and direct "
     "take any number"},
    {"Capacity",
     dimensions("  - {kind: ring, size: 4, gbps: 1, step_latency_ns: 0, aggregation_gbps: 4}\n"),
     "x.yaml:3:5: dimensions[0]: only a dimension of kind ina has a capacity of aggregation"},
    {"PointToPoint",
     dimensions("  - {kind: ring, size: 4, gbps: 1, step_latency_ns: 0, point_to_point: ring}\n"),
     "x.yaml:3:72: dimensions[0].point_to_point: only a dimension of kind ina has it"},
    {"Participants",
     dimensions("  - {kind: ring, size: 1048576, gbps: 1, step_latency_ns: 0}\n"
                "  - {kind: ring, size: 2, gbps: 1, step_latency_ns: 0}\n"),
     "x.yaml:3:3: dimensions: a topology has at most 1048576 participants; dimensions 1 to 2 have "
     "more"},
    {"Twice", "name: y\n" + dimensions("  - {kind: ring, size: 4, gbps: 1, step_latency_ns: 0}\n"),
     "x.yaml:2:1: a topology: name is given twice, first in line 1"},
};

INSTANTIATE_TEST_SUITE_P(All, BadTopology, ::testing::ValuesIn(kBad),
                         [](const auto& test) { return test.param.name; });

TEST(Topology, AllErrorsComeAtOnceInTheirOrder) {
  const std::vector<std::string> errors =
      errors_of(dimensions("  - {kind: torus, size: 0, gbps: 1, step_latency_ns: 0}\n  - 7\n"));
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[2], "x.yaml:4:5: dimensions[1]: a map of keys is expected, not 7");
}

TEST(Topology, AFileThatIsNotThere) {
  const auto topology = load_topology_file("/no/such/file.yaml");
  ASSERT_FALSE(topology);
  EXPECT_EQ(topology.error().front().to_string(),
            "/no/such/file.yaml: cannot be read: No such file or directory");
}

}  // namespace
}  // namespace ina::themis
