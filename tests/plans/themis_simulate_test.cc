// The simulation: operations that overlap or wait, and that a given order gives the same times.
#include "plans/themis/simulate.h"

#include "plans/themis/chunks.h"
#include "plans/themis/cost.h"
#include "tests/plans/themis_fixture.h"

namespace ina::themis {
namespace {

constexpr uint64_t kBytes = 1 << 20;

Chunk chunk(const Topology& topology, uint64_t bytes, std::vector<uint8_t> order,
            uint32_t in_network = 0, Collective collective = Collective::kReduceScatter) {
  return make_chunk(topology, 0, collective, bytes,
                    {.order = std::move(order), .in_network = in_network});
}

TEST(ThemisSimulate, LatencyHoldsTheChunkUpAndNotTheLink) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kDirect, 2, 8, 1'000'000)}};
  const std::vector<Request> requests = {{.bytes = 2 * kBytes}};
  const std::vector<Chunk> chunks = {chunk(topology, kBytes, {0}), chunk(topology, kBytes, {0})};
  const Picos each_ps = transfer_ps(kBytes / 2, 8 * kGbit);
  Simulator simulator(topology, requests);
  EXPECT_EQ(simulator.end_ps(chunks, Discipline::kFifo), 2 * each_ps + 1'000'000);
}

TEST(ThemisSimulate, NothingBeginsBeforeItIsIssued) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kDirect, 2, 8)}};
  const std::vector<Request> requests = {{.bytes = kBytes, .issue_ps = 5'000'000}};
  Simulator simulator(topology, requests);
  const Timeline timeline = simulator.run({chunk(topology, kBytes, {0})}, Discipline::kFifo);
  EXPECT_EQ(timeline.dimensions[0][0].tx_start_ps, 5'000'000);
  EXPECT_EQ(timeline.request_end_ps[0], 5'000'000 + transfer_ps(kBytes / 2, 8 * kGbit));
}

TEST(ThemisSimulate, DisciplinesDiffer) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kDirect, 2, 8)}};
  const std::vector<Request> requests = {{.bytes = 3 * kBytes}};
  const std::vector<Chunk> chunks = {chunk(topology, 2 * kBytes, {0}),
                                     chunk(topology, kBytes, {0})};
  Simulator simulator(topology, requests);
  const auto first = [&](Discipline discipline) {
    return simulator.run(chunks, discipline).dimensions[0][0].id.chunk;
  };
  EXPECT_EQ(first(Discipline::kFifo), 0u);
  EXPECT_EQ(first(Discipline::kSmallestFirst), 1u);
  EXPECT_EQ(first(Discipline::kLongestRemaining), 0u);
}

/// All ranks send at the same time the bytes that an all-gather by a switch receives. So it waits
/// until earlier operations are sent, though there is nothing to receive.
TEST(ThemisSimulate, NothingIsReceivedBeforeItIsSent) {
  const Topology topology{.dimensions = {dimension(DimensionKind::kIna, 4, 8)}};
  const std::vector<Request> requests = {
      {.collective = Collective::kReduceScatter, .bytes = kBytes},
      {.collective = Collective::kAllGather, .bytes = kBytes, .issue_ps = 1}};
  const std::vector<Chunk> chunks = {
      make_chunk(topology, 0, Collective::kReduceScatter, kBytes, {.order = {0}, .in_network = 1}),
      make_chunk(topology, 1, Collective::kAllGather, kBytes, {.order = {0}, .in_network = 1})};
  const Timeline timeline = Simulator(topology, requests).run(chunks, Discipline::kFifo);
  const Picos each_ps = transfer_ps(kBytes, 8 * kGbit);
  const Operation& gather = timeline.dimensions[0][1];
  EXPECT_EQ(gather.id.chunk, 1u);
  EXPECT_EQ(gather.tx_start_ps, each_ps);
  EXPECT_EQ(gather.rx_start_ps, each_ps);
  EXPECT_EQ(timeline.end_ps, 2 * each_ps);
}

/// Reduce-scatters and all-gathers by an aggregating switch together take n (1 + 1/P) each way.
TEST(ThemisSimulate, AnAggregatingSwitchSendsAndGetsAtTheSameTime) {
  constexpr uint32_t kChunks = 16;
  const Topology topology{.dimensions = {dimension(DimensionKind::kIna, 4, 8)}};
  std::vector<Request> requests = {
      {.collective = Collective::kReduceScatter, .bytes = kChunks * kBytes},
      {.collective = Collective::kAllGather, .bytes = kChunks * kBytes}};
  std::vector<Chunk> chunks;
  for (uint32_t r = 0; r < 2; ++r)
    for (uint32_t i = 0; i < kChunks; ++i)
      chunks.push_back(
          make_chunk(topology, r, requests[r].collective, kBytes, {.order = {0}, .in_network = 1}));
  Simulator simulator(topology, requests);
  const Picos each_ps = transfer_ps(kBytes + kBytes / 4, 8 * kGbit);
  const auto end_ps = static_cast<double>(simulator.end_ps(chunks, Discipline::kFifo));
  EXPECT_GE(end_ps, static_cast<double>(kChunks * each_ps));
  EXPECT_LE(end_ps, 1.1 * static_cast<double>(kChunks * each_ps));
}

TEST(ThemisSimulate, LinksCarryOneOperationAtATimeAndStagesComeInOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(true);
    const Planned planned = plan(topology,
                                 {{.collective = static_cast<Collective>(cases.below(4)),
                                   .bytes = 1 + cases.below(1 << 30)}},
                                 {.chunks = static_cast<uint32_t>(1 + cases.below(32))});
    std::vector<std::vector<Picos>> begun(planned.plan.chunks.size());
    std::vector<std::vector<Picos>> ended(planned.plan.chunks.size());
    for (size_t c = 0; c < begun.size(); ++c) {
      begun[c].resize(planned.plan.chunks[c].stages.size(), -1);
      ended[c] = begun[c];
    }
    for (const auto& operations : planned.timeline.dimensions)
      for (size_t i = 0; i < operations.size(); ++i) {
        const Operation& o = operations[i];
        begun[o.id.chunk][o.id.stage] = std::min(o.tx_start_ps, o.rx_start_ps);
        ended[o.id.chunk][o.id.stage] = o.end_ps;
        EXPECT_LE(o.ready_ps, o.tx_start_ps) << seed;
        EXPECT_LE(o.tx_start_ps, o.rx_start_ps) << seed;
        EXPECT_LE(std::max(o.tx_end_ps, o.rx_end_ps), o.end_ps) << seed;
        if (i == 0) continue;
        EXPECT_LE(operations[i - 1].tx_end_ps, o.tx_start_ps) << seed;
        EXPECT_LE(operations[i - 1].rx_end_ps, o.rx_start_ps) << seed;
      }
    for (size_t c = 0; c < begun.size(); ++c)
      for (size_t s = 0; s < begun[c].size(); ++s) {
        EXPECT_GE(begun[c][s], 0) << seed;
        if (s > 0) {
          EXPECT_GE(begun[c][s], ended[c][s - 1]) << seed;
        }
      }
  }
}

TEST(ThemisSimulate, AnOrderThatIsKeptGivesTheSameTimes) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Cases cases(seed);
    const Topology topology = cases.topology(true);
    std::vector<Request> requests;
    const uint64_t count = 1 + cases.below(3);
    for (uint64_t i = 0; i < count; ++i)
      requests.push_back({.collective = static_cast<Collective>(cases.below(4)),
                          .bytes = 1 + cases.below(1 << 28),
                          .issue_ps = static_cast<Picos>(cases.below(1'000'000'000))});
    const Planned planned =
        plan(topology, requests,
             {.discipline = static_cast<Discipline>(cases.below(kDisciplineNames.size())),
              .chunks = static_cast<uint32_t>(1 + cases.below(32))});
    const auto again = replay(planned.plan);
    ASSERT_TRUE(again) << seed << ": " << again.error().text;
    EXPECT_EQ(*again, planned.timeline) << seed;
  }
}

TEST(ThemisSimulate, AnOrderThatCannotBeKeptIsRefused) {
  Planned planned = plan(figure5(), {{.bytes = 256 << 20}}, {.chunks = 4});
  Plan circle = planned.plan;
  for (auto& order : circle.order) std::reverse(order.begin(), order.end());
  const auto refused = replay(circle);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("never comes"), std::string::npos) << refused.error().text;

  Plan short_one = planned.plan;
  short_one.order[1].pop_back();
  EXPECT_FALSE(replay(short_one));
  Plan narrow = planned.plan;
  narrow.order.pop_back();
  EXPECT_FALSE(replay(narrow));
}

}  // namespace
}  // namespace ina::themis
