// Planned collectives carried out on simulated networks, beside the planner's model.
#include "sim/plan_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "plans/themis/cost.h"
#include "plans/themis/text/topology_file.h"
#include "sim/plan_points.h"

namespace ina::sim {
namespace {

using themis::Collective;
using themis::Scheduler;

constexpr uint64_t kElementBytes = 4;
constexpr uint64_t kGbit = 1'000'000'000;
// How far the planner's model and the simulation may be apart.
constexpr double kAgreement = 0.05;

/// A topology of the Themis paper with fewer participants.
struct Scaled {
  const char* file;
  std::vector<uint32_t> sizes;
};

void PrintTo(const Scaled& scaled, std::ostream* out) {
  *out << scaled.file;
}

const Scaled kTopologies[] = {
    {"2d-sw-sw", {4, 4}},
    {"3d-sw-sw-sw-homo", {4, 2, 2}},
    {"3d-sw-sw-sw-hetero", {4, 2, 2}},
    {"3d-fc-ring-sw", {2, 4, 2}},
    {"4d-ring-sw-sw-sw", {2, 2, 2, 2}},
    {"4d-ring-fc-ring-sw", {2, 2, 2, 2}},
};

/// Rates are a tenth, so that frames take whole nanoseconds; there are no latencies. Planned for
/// the switches that carry it out.
themis::Topology scaled(const Scaled& own) {
  auto topology =
      themis::load_topology_file(std::string(INA_CONF_DIR "/topologies/") + own.file + ".yaml");
  if (!topology) throw std::runtime_error(topology.error().front().to_string());
  for (size_t d = 0; d < own.sizes.size(); ++d) {
    themis::Dimension& dimension = topology->dimensions[d];
    dimension.size = own.sizes[d];
    dimension.kind = themis::DimensionKind::kIna;
    dimension.bits_per_s /= 10;
    dimension.step_latency_ps = 0;
  }
  return *topology;
}

themis::Topology mesh(std::initializer_list<uint32_t> sizes, uint64_t gbps = 80) {
  themis::Topology topology;
  for (const uint32_t size : sizes)
    topology.dimensions.push_back({.name = "dimension",
                                   .kind = themis::DimensionKind::kDirect,
                                   .size = size,
                                   .bits_per_s = gbps * kGbit});
  return topology;
}

PlanSpec spec_of(themis::Topology topology, uint64_t bytes, uint32_t chunks,
                 Scheduler scheduler = Scheduler::kThemis) {
  PlanSpec spec;
  spec.topology = std::move(topology);
  spec.bytes = bytes;
  spec.options.chunks = chunks;
  spec.options.scheduler = scheduler;
  return spec;
}

std::string problem_with(const PlanSpec& spec) {
  try {
    run_plan(spec);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

class ScaledTopology : public testing::TestWithParam<Scaled> {};

TEST_P(ScaledTopology, TakesWhatTheModelSaysWhereLatencyIsNegligible) {
  for (const Scheduler scheduler : {Scheduler::kBaseline, Scheduler::kThemis}) {
    SCOPED_TRACE(themis::name(scheduler));
    PlanSpec spec = spec_of(scaled(GetParam()), 32 << 20, 32, scheduler);
    spec.rounds = 1;
    const PlanOutcome outcome = run_plan(spec);
    EXPECT_EQ(outcome.violations, std::vector<std::string>{});
    const uint64_t wire_factor = spec.fragment_bytes / spec.value_bytes;
    EXPECT_EQ(outcome.elements_checked,
              16 * outcome.plan.requests[0].bytes / kElementBytes / wire_factor);
    EXPECT_NEAR(outcome.beyond(outcome.predictions.by_switches_ps), 0, kAgreement);
    for (size_t d = 0; d < outcome.dimensions.size(); ++d)
      EXPECT_GE(outcome.rounds.back().took_ns * 1000,
                themis::transfer_ps(outcome.dimensions[d].model_tx_bytes,
                                    spec.topology.dimensions[d].bits_per_s))
          << "nothing arrives faster than links can carry it";
  }
}

INSTANTIATE_TEST_SUITE_P(Themis, ScaledTopology, testing::ValuesIn(kTopologies),
                         [](const auto& own) {
                           std::string name = own.param.file;
                           std::erase(name, '-');
                           return name;
                         });

/// 1 to 4 dimensions of 2 to 5 ranks, of any rates and latencies.
themis::Topology drawn_topology(std::mt19937& random) {
  const auto draw = [&](uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random);
  };
  themis::Topology topology;
  for (uint64_t left = draw(1, 4); left > 0; --left) {
    themis::Dimension dimension{.name = "dimension",
                                .kind = themis::DimensionKind::kRing,
                                .size = static_cast<uint32_t>(draw(2, 5))};
    if (topology.participants() * dimension.size > kMaxWorkers) break;
    dimension.bits_per_s = draw(10, 400) * kGbit;
    dimension.step_latency_ps = static_cast<themis::Picos>(draw(500, 50'000)) * 1000;
    topology.dimensions.push_back(dimension);
  }
  return themis::carried_by_switches(std::move(topology));
}

TEST(PlanRun, TheModelSaysHowLongCollectivesTakeOverAnyNetwork) {
  std::mt19937 random(20261127);
  for (int point = 0; point < 40; ++point) {
    const uint64_t bytes = std::uniform_int_distribution<uint64_t>(64 << 10, 4 << 20)(random);
    const auto collective = static_cast<Collective>(point % 4);
    // Operations of an all-to-all that overtake each other are not modelled.
    const uint32_t chunks = collective == Collective::kAllToAll ? 1 : 1u << random() % 5;
    PlanSpec spec = spec_of(drawn_topology(random), bytes, chunks);
    spec.collective = collective;
    spec.aggregator_window = spec.congestion_window = false;  // the model's have grown
    spec.window = 4096;
    SCOPED_TRACE(std::to_string(point) + ": " + std::string(themis::name(collective)) + " of " +
                 std::to_string(bytes) + " bytes in " + std::to_string(chunks) + " chunks, " +
                 std::to_string(spec.topology.participants()) + " ranks");
    const PlanOutcome outcome = run_plan(spec);
    EXPECT_EQ(outcome.violations, std::vector<std::string>{});
    EXPECT_NEAR(outcome.beyond(outcome.predictions.by_switches_ps), 0, kAgreement);
  }
}

/// Windows as they are by default: W is of all ranks of a group together.
TEST(PlanRun, TheModelHoldsTheWindowOfAGroup) {
  constexpr uint64_t kSeed = 20261129, kMostRanks = 20, kPoints = 150;  // more take too long
  std::vector<double> differences;
  for (uint64_t index = 0; differences.size() < kPoints; ++index) {
    const PlanSpec spec = drawn_point(kSeed, index, {.most_work = uint64_t{1} << 26});
    if (spec.topology.participants() > kMostRanks) continue;
    const PlanOutcome outcome = run_plan(spec);
    EXPECT_EQ(outcome.violations, std::vector<std::string>{}) << describe(spec);
    differences.push_back(std::abs(outcome.beyond(outcome.predictions.by_switches_ps)));
  }
  std::ranges::sort(differences);
  EXPECT_LT(differences[kPoints * 95 / 100 - 1], kAgreement);
}

/// A rank does not use its windows in short turns, so that they stay small. That costs nothing.
TEST(PlanRun, ShortTurnsInSmallWindowsTakeWhatTheModelSays) {
  for (const uint32_t ranks : {5u, 7u, 8u}) {
    PlanSpec spec = spec_of(themis::carried_by_switches(mesh({ranks}, 47)), 800'000, 4);
    spec.collective = Collective::kAllToAll;
    const PlanOutcome outcome = run_plan(spec);
    EXPECT_EQ(outcome.violations, std::vector<std::string>{});
    EXPECT_LT(outcome.beyond(outcome.predictions.by_switches_ps), kAgreement) << ranks;
  }
}

TEST(PlanRun, EveryCollectiveGivesEachRankItsElements) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllToAll}) {
    SCOPED_TRACE(themis::name(collective));
    PlanSpec spec = spec_of(mesh({2, 3}), 300'000, 5);
    spec.collective = collective;
    const PlanOutcome outcome = run_plan(spec);
    EXPECT_EQ(outcome.violations, std::vector<std::string>{});
    EXPECT_GT(outcome.elements_checked, 0u);
  }
}

TEST(PlanRun, SameSpecificationSameTimes) {
  PlanSpec spec = spec_of(mesh({2, 4}), 1 << 20, 8);
  spec.loss = 0.001;
  const PlanOutcome first = run_plan(spec), second = run_plan(spec);
  EXPECT_EQ(first.violations, std::vector<std::string>{});
  EXPECT_GT(first.losses, 0u);
  ASSERT_EQ(first.rounds.size(), spec.rounds);
  EXPECT_EQ(first.rounds.back().took_ns, second.rounds.back().took_ns);
  EXPECT_EQ(first.events, second.events);
}

TEST(PlanRun, ValuesThinnedOutOrNotTakeTheSameTime) {
  PlanSpec spec = spec_of(mesh({2, 4}), 1 << 20, 8);
  const PlanOutcome thin = run_plan(spec);
  spec.value_bytes = spec.fragment_bytes;
  const PlanOutcome full = run_plan(spec);
  EXPECT_EQ(full.violations, std::vector<std::string>{});
  EXPECT_EQ(full.elements_checked,
            thin.elements_checked * (thin.plan.requests[0].bytes / (1 << 20)) * 16);
  const auto took = [](const PlanOutcome& outcome) {
    return static_cast<double>(outcome.rounds.back().took_ns);
  };
  EXPECT_NEAR(took(thin), took(full), 0.01 * took(full));
}

TEST(PlanRun, ByASwitchEachHalfOfASumMovesItsOwnBytes) {
  PlanSpec spec = spec_of(mesh({4}), 1 << 20, 1);
  const PlanOutcome outcome = run_plan(spec);
  // Point to point, a reduce-scatter and an all-gather each move 3/4 of the bytes.
  EXPECT_EQ(outcome.plan.chunks[0].stages.size(), 2u);
  EXPECT_EQ(outcome.predictions.by_kind_ps, 2 * 3 * int64_t{1 << 20} / 4 * 100);
  // A switch takes all of it and gives a part, and then the other way round.
  EXPECT_EQ(outcome.dimensions[0].model_tx_bytes, (1u << 20) + (1u << 20) / 4);
  EXPECT_EQ(outcome.dimensions[0].model_rx_bytes, (1u << 20) + (1u << 20) / 4);
}

TEST(PlanRun, SaysWhatItCannotSimulate) {
  EXPECT_NE(problem_with(spec_of(mesh({8, 16}), 1 << 20, 4)).find("128 participants"),
            std::string::npos);
  PlanSpec spec = spec_of(mesh({2, 2}), 1 << 20, 4);
  spec.value_bytes = 256;
  EXPECT_NE(problem_with(spec).find("256 bytes of values"), std::string::npos);
  spec = spec_of(mesh({2, 2}), 1 << 20, 4);
  spec.topology.dimensions[1].kind = themis::DimensionKind::kIna;
  spec.topology.dimensions[1].aggregation_bits_per_s = kGbit;
  EXPECT_NE(problem_with(spec).find("aggregation_gbps"), std::string::npos);
  spec = spec_of(mesh({2, 2}), 0, 4);
  EXPECT_NE(problem_with(spec).find("at least one byte"), std::string::npos);
}

}  // namespace
}  // namespace ina::sim
