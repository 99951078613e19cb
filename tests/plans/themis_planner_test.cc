// The paper's scheduler: orders, threshold, several collectives, bytes that no order changes, and
// refused input.
#include "plans/themis/planner.h"

#include <algorithm>
#include <numeric>

#include "plans/themis/cost.h"
#include "tests/plans/themis_fixture.h"

namespace ina::themis {
namespace {

constexpr uint64_t kFigure5Bytes = 256 << 20;

/// The dimensions of a chunk's first half, counted from 1: "12".
std::string order_of_chunk(const Chunk& chunk, size_t dimensions) {
  std::string order;
  for (size_t i = 0; i < dimensions; ++i) order += std::to_string(chunk.stages[i].dimension + 1);
  return order;
}

std::vector<std::string> orders_of(const Plan& plan) {
  std::vector<std::string> orders;
  for (const Chunk& chunk : plan.chunks)
    orders.push_back(order_of_chunk(chunk, plan.topology.dimensions.size()));
  return orders;
}

/// How long the plan takes, in units of a chunk's reduce-scatter in dimension 1.
double figure5_units(const PlanOptions& options) {
  const Planned planned = plan(figure5(), {{.bytes = kFigure5Bytes}}, options);
  const Stage unit = make_stage(figure5(), 0, Phase::kReduceScatter, false, kFigure5Bytes / 4);
  return static_cast<double>(planned.timeline.end_ps) / static_cast<double>(unit.tx_ps);
}

TEST(ThemisPlanner, Figure5) {
  const Planned planned = plan(figure5(), {{.bytes = kFigure5Bytes}}, {.chunks = 4});
  EXPECT_EQ(orders_of(planned.plan), (std::vector<std::string>{"12", "21", "12", "12"}));
  EXPECT_DOUBLE_EQ(figure5_units({.scheduler = Scheduler::kBaseline, .chunks = 4}), 8);
  EXPECT_DOUBLE_EQ(figure5_units({.discipline = Discipline::kFifo, .chunks = 4}), 8);
  EXPECT_DOUBLE_EQ(figure5_units({.discipline = Discipline::kSmallestFirst, .chunks = 4}), 7);
}

TEST(ThemisPlanner, TheAllGatherOfAnAllReduceIsTheWayBack) {
  Topology topology = figure5();
  topology.dimensions.push_back(dimension(DimensionKind::kRing, 3, 1));
  const Planned planned = plan(topology, {{.bytes = kFigure5Bytes}}, {.chunks = 8});
  for (const Chunk& chunk : planned.plan.chunks) {
    ASSERT_EQ(chunk.stages.size(), 6u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(chunk.stages[i].phase, Phase::kReduceScatter);
      EXPECT_EQ(chunk.stages[5 - i].phase, Phase::kAllGather);
      EXPECT_EQ(chunk.stages[i].dimension, chunk.stages[5 - i].dimension);
      EXPECT_EQ(chunk.stages[i].tx_bytes, chunk.stages[5 - i].tx_bytes);
    }
  }
}

/// An all-reduce over P participants of one dimension is s each way by the switch, and 2 s (P-1)/P
/// point to point.
TEST(ThemisPlanner, AChunkIsAggregatedWhereThatLoadsItsDimensionLess) {
  const auto is_aggregated = [](uint32_t size, uint64_t aggregation_gbps) {
    Topology topology{.dimensions = {dimension(DimensionKind::kIna, size, 100)}};
    topology.dimensions[0].aggregation_bits_per_s = aggregation_gbps * kGbit;
    Balancer balancer(topology, InNetwork::kByLoad);
    balancer.begin(Collective::kAllReduce, false);
    return balancer.next(1 << 20).in_network != 0;
  };
  EXPECT_FALSE(is_aggregated(2, 0));
  EXPECT_TRUE(is_aggregated(4, 0));
  EXPECT_TRUE(is_aggregated(4, 300));
  EXPECT_FALSE(is_aggregated(4, 200));
}

TEST(ThemisPlanner, AnAllGatherGoesToTheMostLoadedFirst) {
  // The first stage of an all-gather is small.
  const PlanOptions options{.chunks = 4};
  const Request all_gather{.collective = Collective::kAllGather, .bytes = kFigure5Bytes};
  const Planned planned = plan(figure5(), {all_gather}, options);
  // Even loads at first: the baseline's order, from the last dimension to the first.
  EXPECT_EQ(orders_of(planned.plan).front(), "21");
  const Request reduce_scatter{.collective = Collective::kReduceScatter, .bytes = kFigure5Bytes};
  const std::vector<std::string> scattered =
      orders_of(plan(figure5(), {reduce_scatter}, options).plan);
  std::vector<std::string> gathered = orders_of(planned.plan);
  for (std::string& order : gathered) std::ranges::reverse(order);
  EXPECT_EQ(gathered, scattered);
}

/// Dimension 1 is loaded by its latency alone, so the difference is known.
std::string first_order(Picos latency_ps) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kDirect, 4, 8, latency_ps),
                                         dimension(DimensionKind::kDirect, 4, 8)}};
  const Request request{.collective = Collective::kReduceScatter, .bytes = 1 << 20};
  return orders_of(plan(topology, {request}, {.chunks = 1, .or_baseline = false}).plan).front();
}

TEST(ThemisPlanner, LoadsThatDifferByLessThanASixteenthOfAChunkAreEven) {
  const Picos sixteenth_ps = transfer_ps((1 << 20) / 16 * 3 / 4, 8 * kGbit);
  EXPECT_EQ(first_order(sixteenth_ps - 1), "12");
  EXPECT_EQ(first_order(sixteenth_ps), "21");
}

TEST(ThemisPlanner, EqualLoadsKeepTheDimensionsInTheirOrder) {
  Topology topology{.dimensions = {dimension(DimensionKind::kDirect, 4, 8, 1'000'000'000),
                                   dimension(DimensionKind::kDirect, 4, 8),
                                   dimension(DimensionKind::kDirect, 4, 8)}};
  EXPECT_EQ(
      orders_of(plan(topology, {{.bytes = 1 << 20}}, {.chunks = 1, .or_baseline = false}).plan)
          .front(),
      "231");
}

TEST(ThemisPlanner, LoadsAreCarriedOverOnlyIfAsked) {
  const std::vector<Request> requests = {{.bytes = kFigure5Bytes}, {.bytes = kFigure5Bytes}};
  const std::vector<std::string> fresh = orders_of(
      plan(figure5(), requests, {.chunks = 1, .carry_loads = false, .or_baseline = false}).plan);
  EXPECT_EQ(fresh, (std::vector<std::string>{"12", "12"}));
  const std::vector<std::string> carried = orders_of(
      plan(figure5(), requests, {.chunks = 1, .carry_loads = true, .or_baseline = false}).plan);
  EXPECT_EQ(carried, (std::vector<std::string>{"12", "21"}));
}

/// Two dimensions of four alike. A collective of one chunk has a reduce-scatter of 1 unit in its
/// first dimension and of 1/4 in its second one. Two all-reduces that take the dimensions in
/// opposite orders never meet:
///   dimension 1:  A RS 1   | B RS 1/4, B AG 1/4 | A AG 1
///   dimension 2:  B RS 1   | A RS 1/4, A AG 1/4 | B AG 1
TEST(ThemisPlanner, TwoAllReducesTakeNoLongerThanOneOfThemAlone) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kDirect, 4, 1),
                                         dimension(DimensionKind::kDirect, 4, 1)}};
  constexpr uint64_t kBytes = 64 << 20;
  const PlanOptions options{.scheduler = Scheduler::kThemis, .chunks = 1};
  const Picos unit_ps = make_stage(topology, 0, Phase::kReduceScatter, false, kBytes).tx_ps;
  const std::vector<Request> requests = {{.bytes = kBytes}, {.bytes = kBytes}};
  const Planned planned = plan(topology, requests, options);
  EXPECT_EQ(orders_of(planned.plan), (std::vector<std::string>{"12", "21"}));
  EXPECT_EQ(planned.timeline.end_ps, 5 * unit_ps / 2);
  EXPECT_EQ(planned.timeline.request_end_ps, (std::vector<Picos>(2, 5 * unit_ps / 2)));
  EXPECT_EQ(plan(topology, {requests[0]}, options).timeline.end_ps, 5 * unit_ps / 2);
  EXPECT_EQ(one_after_another_ps(topology, requests, options).value(), 5 * unit_ps);
  // The second of two that each begin with loads of their own waits for the first.
  EXPECT_EQ(plan(topology, requests, {.chunks = 1, .carry_loads = false, .or_baseline = false})
                .timeline.end_ps,
            4 * unit_ps);
}

/// Figure 5's network with a chunk each, in units of a chunk's reduce-scatter in dimension 1: the
/// order 12 takes 1 + 1/2 + 1/2 + 1. Carried loads would send the second one by 21, whose
/// reduce-scatter takes 2 units in the slower dimension. Of both by 12 the second goes on in
/// dimension 1 while the first is in dimension 2, and ends at 4.
TEST(ThemisPlanner, LoadsAreCarriedOverWhereThatIsFaster) {
  const std::vector<Request> requests = {{.bytes = kFigure5Bytes}, {.bytes = kFigure5Bytes}};
  const Picos unit_ps = make_stage(figure5(), 0, Phase::kReduceScatter, false, kFigure5Bytes).tx_ps;
  const Planned planned = plan(figure5(), requests, {.chunks = 1});
  EXPECT_EQ(orders_of(planned.plan), (std::vector<std::string>{"12", "12"}));
  EXPECT_EQ(planned.timeline.end_ps, 4 * unit_ps);
  EXPECT_EQ(one_after_another_ps(figure5(), requests, {.chunks = 1}).value(), 6 * unit_ps);
}

/// A second collective that begins when half of the first one is over shares what is left.
TEST(ThemisPlanner, LoadsComeInTheOrderOfTheirStart) {
  const Request early{.bytes = kFigure5Bytes};
  const Request late{
      .collective = Collective::kAllGather, .bytes = kFigure5Bytes / 2, .issue_ps = 1'000'000'000};
  const PlanOptions options{.chunks = 4, .carry_loads = true, .or_baseline = false};
  const Planned one = plan(figure5(), {early, late}, options);
  const Planned other = plan(figure5(), {late, early}, options);
  std::vector<std::string> orders = orders_of(other.plan);
  std::rotate(orders.begin(), orders.begin() + 4, orders.end());
  EXPECT_EQ(orders_of(one.plan), orders);
  EXPECT_NE(hash_of(one.plan), hash_of(other.plan));
}

std::vector<Request> several(Cases& cases) {
  std::vector<Request> requests(2 + cases.below(3));
  for (Request& request : requests) {
    request.collective = static_cast<Collective>(cases.below(kCollectiveNames.size()));
    request.bytes = (1 << 16) + cases.below(1 << 28);
    if (cases.below(2) == 0) request.issue_ps = static_cast<Picos>(cases.below(2'000'000'000));
  }
  return requests;
}

TEST(ThemisPlanner, TogetherIsNeverSlowerThanOneAfterTheOther) {
  uint32_t faster = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(true);
    const std::vector<Request> requests = several(cases);
    for (const Scheduler scheduler : {Scheduler::kThemis, Scheduler::kSearch}) {
      const PlanOptions options{.scheduler = scheduler,
                                .chunks = static_cast<uint32_t>(1 + cases.below(16)),
                                .evaluations = 30};
      const Planned planned = plan(topology, requests, options);
      const Picos apart_ps = one_after_another_ps(topology, requests, options).value();
      EXPECT_LE(planned.timeline.end_ps, apart_ps) << seed;
      EXPECT_EQ(replay(planned.plan).value(), planned.timeline) << seed;
      faster += planned.timeline.end_ps < apart_ps;
    }
  }
  EXPECT_GT(faster, 300u);
}

TEST(ThemisPlanner, ThePlanOfSeveralIsTheSameForAllAndItsHashCoversEach) {
  Cases cases(7);
  const Topology topology = cases.topology(true);
  const std::vector<Request> requests = several(cases);
  const Planned planned = plan(topology, requests);
  EXPECT_EQ(planned.plan, plan(topology, requests).plan);
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<Request> others = requests;
    others[i].bytes += 4 * topology.participants();
    EXPECT_NE(hash_of(plan(topology, others).plan), hash_of(planned.plan)) << i;
    others = requests;
    others[i].issue_ps += 1;
    EXPECT_NE(hash_of(plan(topology, others).plan), hash_of(planned.plan)) << i;
    others = requests;
    others[i].collective = others[i].collective == Collective::kAllReduce ? Collective::kAllGather
                                                                          : Collective::kAllReduce;
    EXPECT_NE(hash_of(plan(topology, others).plan), hash_of(planned.plan)) << i;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_NE(hash_of(plan(topology, others).plan), hash_of(planned.plan)) << i;
  }
}

TEST(ThemisPlanner, BytesDoNotDependOnTheOrder) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(false);
    const uint64_t participants = topology.participants();
    const uint64_t bytes = participants * 4 * (1 + cases.below(1000));
    for (const Scheduler scheduler :
         {Scheduler::kBaseline, Scheduler::kThemis, Scheduler::kSearch}) {
      const Planned planned = plan(topology, {{.bytes = bytes}},
                                   {.scheduler = scheduler, .chunks = 8, .evaluations = 30});
      EXPECT_EQ(tx_bytes_of(planned.plan), 2 * (bytes - bytes / participants)) << seed;
    }
  }
}

TEST(ThemisPlanner, EveryParticipantEndsWithWhatTheCollectivePromises) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(true);
    for (size_t c = 0; c < kCollectiveNames.size(); ++c) {
      const auto collective = static_cast<Collective>(c);
      const Planned planned =
          plan(topology, {{.collective = collective, .bytes = 1 + cases.below(1 << 24)}});
      for (const Chunk& chunk : planned.plan.chunks) {
        uint64_t held_bytes = chunk.stages.front().held_bytes;
        for (const Stage& stage : chunk.stages) {
          EXPECT_EQ(stage.held_bytes, held_bytes) << seed;
          held_bytes = held_after(stage, topology.dimensions[stage.dimension]);
        }
        const bool is_scattered = collective == Collective::kReduceScatter;
        EXPECT_EQ(held_bytes, is_scattered ? chunk.bytes / topology.participants() : chunk.bytes)
            << seed << " " << name(collective);
      }
    }
  }
}

/// Themis helps only where a dimension is less than P times as fast as the next one. Elsewhere the
/// paper's scheduler alone would lose at many of these.
TEST(ThemisPlanner, NothingIsLostWhereNothingCanBeGained) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Cases cases(seed);
    Topology topology = cases.topology(false);
    for (size_t d = topology.dimensions.size() - 1; d > 0; --d) {
      Dimension& before = topology.dimensions[d - 1];
      before.bits_per_s =
          std::max(before.bits_per_s, topology.dimensions[d].bits_per_s * before.size);
    }
    if (!validate(topology)) continue;
    const std::vector<Request> requests = {{.bytes = (1 << 20) + cases.below(1 << 30)}};
    EXPECT_LE(plan(topology, requests).timeline.end_ps,
              plan(topology, requests, {.scheduler = Scheduler::kBaseline}).timeline.end_ps)
        << seed;
  }
}

TEST(ThemisPlanner, TheSameArgumentsGiveTheSamePlan) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(true);
    const PlanOptions options{.scheduler = Scheduler::kSearch, .evaluations = 100, .seed = seed};
    const Planned a = plan(topology, {{.bytes = 1 << 26}}, options);
    const Planned b = plan(topology, {{.bytes = 1 << 26}}, options);
    EXPECT_EQ(a.plan, b.plan);
    EXPECT_EQ(a.timeline, b.timeline);
    EXPECT_EQ(hash_of(a.plan), hash_of(b.plan));
  }
}

/// Fails when the hash of an unchanged plan changes, and so do participants of two versions: then
/// raise the version in plan.h.
TEST(ThemisPlanner, TheHashIsTheOneThatIsDocumented) {
  const Planned planned = plan(figure5(), {{.bytes = kFigure5Bytes}}, {.chunks = 4});
  EXPECT_EQ(hash_of(planned.plan), 0xd1ff63bcec428916u);
}

TEST(ThemisPlanner, TheHashTellsPlansApart) {
  const Plan own = plan(figure5(), {{.bytes = kFigure5Bytes}}, {.chunks = 4}).plan;
  Plan other = own;
  other.topology.name = "by another name";
  other.topology.dimensions[0].name = "too";
  EXPECT_EQ(hash_of(other), hash_of(own));
  other.topology.dimensions[1].bits_per_s += 1;
  EXPECT_NE(hash_of(other), hash_of(own));
  other = own;
  std::swap(other.order[0][0], other.order[0][1]);
  EXPECT_NE(hash_of(other), hash_of(own));
  other = own;
  other.chunks[2].stages[1].in_network = true;
  EXPECT_NE(hash_of(other), hash_of(own));
  other = own;
  other.requests[0].collective = Collective::kAllGather;
  EXPECT_NE(hash_of(other), hash_of(own));
}

TEST(ThemisPlanner, AggregatingSwitchesAreUsedOnlyWhereTheyHelp) {
  int used = 0, unused = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(true);
    const std::vector<Request> requests = {{.bytes = 1 << 26}};
    const auto end_ps = [&](InNetwork in_network) {
      return plan(topology, requests, {.in_network = in_network}).timeline.end_ps;
    };
    const Planned chosen = plan(topology, requests);
    EXPECT_LE(chosen.timeline.end_ps, end_ps(InNetwork::kNever)) << seed;
    EXPECT_LE(chosen.timeline.end_ps, end_ps(InNetwork::kAlways)) << seed;
    if (std::ranges::none_of(topology.dimensions, &Dimension::aggregates)) continue;
    const bool uses = std::ranges::any_of(chosen.plan.chunks, [](const Chunk& chunk) {
      return std::ranges::any_of(chunk.stages, &Stage::in_network);
    });
    ++(uses ? used : unused);
  }
  EXPECT_GT(used, 10);
  EXPECT_GT(unused, 3);
}

TEST(ThemisPlanner, AnAllToAllIsNeverAggregated) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kIna, 4, 100)}};
  const Planned planned = plan(topology, {{.collective = Collective::kAllToAll, .bytes = 1 << 20}},
                               {.in_network = InNetwork::kAlways});
  for (const Chunk& chunk : planned.plan.chunks)
    for (const Stage& stage : chunk.stages) EXPECT_FALSE(stage.in_network);
}

TEST(ThemisPlanner, TheLastAggregatingDimensionDoesBothHalvesAtOnce) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kIna, 4, 100),
                                         dimension(DimensionKind::kIna, 4, 100)}};
  const Planned planned =
      plan(topology, {{.bytes = 1 << 20}},
           {.scheduler = Scheduler::kBaseline, .in_network = InNetwork::kAlways});
  for (const Chunk& chunk : planned.plan.chunks) {
    ASSERT_EQ(chunk.stages.size(), 3u);
    EXPECT_EQ(chunk.stages[1].phase, Phase::kAllReduce);
    EXPECT_EQ(chunk.stages[1].tx_bytes, chunk.bytes / 4);
  }
}

TEST(ThemisPlanner, BadInputIsRefusedByName) {
  const std::vector<Request> good = {{.bytes = 1 << 20}};
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(error_of({}, good), "1 to 6 dimensions, not 0");
  Topology topology = figure5();
  topology.dimensions[1].size = 1;
  expect(error_of(topology, good), "dimension 2 (direct): a dimension has 2 to");
  topology = figure5();
  topology.dimensions[0] = dimension(DimensionKind::kHalvingDoubling, 6, 100);
  expect(error_of(topology, good),
         "dimension 1 (halving-doubling): halving-doubling needs a power of two");
  topology = figure5();
  topology.dimensions[0].bits_per_s = 0;
  expect(error_of(topology, good), "the rate is not in 0.01..1000000 Gb/s");
  topology = figure5();
  topology.dimensions[0].step_latency_ps = -1;
  expect(error_of(topology, good), "the step latency");
  topology = figure5();
  topology.dimensions[0].aggregation_bits_per_s = kGbit;
  expect(error_of(topology, good), "only a dimension of kind ina");
  topology = figure5();
  topology.dimensions[0] = dimension(DimensionKind::kIna, 4, 100);
  topology.dimensions[0].aggregation_bits_per_s = 1;
  expect(error_of(topology, good), "less than 0.01 Gb/s");
  topology = figure5();
  topology.dimensions.assign(3, dimension(DimensionKind::kRing, 1024, 100));
  expect(error_of(topology, good), "at most 1048576 participants; dimensions 1 to 3 have more");
  expect(error_of(figure5(), {}), "1 to 256 collectives");
  expect(error_of(figure5(), {{.bytes = 1}, {.bytes = 0}}), "collective 2 has 0 bytes");
  expect(error_of(figure5(), {{.bytes = kMostBytes}, {.bytes = 1}}), "collectives 1 to 2");
  expect(error_of(figure5(), {{.bytes = 1, .issue_ps = -1}}), "collective 1 begins before");
  expect(error_of(figure5(), good, {.chunks = 0}), "1 to 4096 chunks, not 0");
  expect(error_of(figure5(), good, {.element_bytes = 0}), "an element has 1 to 64 bytes");
}

}  // namespace
}  // namespace ina::themis
