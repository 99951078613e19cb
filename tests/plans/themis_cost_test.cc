// The cost of an operation: the paper's formulas, and those of an aggregating switch.
#include "plans/themis/cost.h"

#include "plans/themis/chunks.h"
#include "tests/plans/themis_fixture.h"

namespace ina::themis {
namespace {

constexpr uint64_t kBytes = 4096;

Stage stage_of(const Dimension& own, Phase phase, bool in_network = false) {
  return make_stage({.dimensions = {own}}, 0, phase, in_network, kBytes);
}

TEST(ThemisCost, TransferTimesAreRoundedUp) {
  EXPECT_EQ(transfer_ps(1, 8 * kGbit), 1000);
  EXPECT_EQ(transfer_ps(1, 3 * kGbit), 2667);
  EXPECT_EQ(transfer_ps(0, kGbit), 0);
  EXPECT_EQ(transfer_ps(kMostBytes, kLeastBitsPerS), 879'609'302'220'800'000);
}

TEST(ThemisCost, PointToPointKindsSendTheSame) {
  for (const DimensionKind kind :
       {DimensionKind::kRing, DimensionKind::kDirect, DimensionKind::kHalvingDoubling}) {
    const Dimension own = dimension(kind, 8, 100);
    const Stage scattered = stage_of(own, Phase::kReduceScatter);
    EXPECT_EQ(scattered.tx_bytes, kBytes * 7 / 8);
    EXPECT_EQ(scattered.rx_bytes, scattered.tx_bytes);
    const Stage gathered = stage_of(own, Phase::kAllGather);
    EXPECT_EQ(gathered.tx_bytes, kBytes * 7);
    EXPECT_EQ(gathered.rx_bytes, gathered.tx_bytes);
    EXPECT_EQ(held_after(scattered, own), kBytes / 8);
    EXPECT_EQ(held_after(gathered, own), kBytes * 8);
  }
}

TEST(ThemisCost, StepsAreThoseOfTheAlgorithm) {
  const auto steps = [](DimensionKind kind, Phase phase, bool in_network = false) {
    return latency_ps(dimension(kind, 16, 100, 1), phase, in_network);
  };
  EXPECT_EQ(steps(DimensionKind::kRing, Phase::kReduceScatter), 15);
  EXPECT_EQ(steps(DimensionKind::kDirect, Phase::kReduceScatter), 1);
  EXPECT_EQ(steps(DimensionKind::kHalvingDoubling, Phase::kAllGather), 4);
  EXPECT_EQ(steps(DimensionKind::kIna, Phase::kAllGather, true), 1);
  EXPECT_EQ(steps(DimensionKind::kIna, Phase::kAllGather, false), 4);
  EXPECT_EQ(steps(DimensionKind::kHalvingDoubling, Phase::kAllToAll), 1);
}

TEST(ThemisCost, AnAggregatingSwitchTakesAllAndGivesAShare) {
  const Dimension own = dimension(DimensionKind::kIna, 8, 100);
  const Stage scattered = stage_of(own, Phase::kReduceScatter, true);
  EXPECT_EQ(scattered.tx_bytes, kBytes);
  EXPECT_EQ(scattered.rx_bytes, kBytes / 8);
  const Stage gathered = stage_of(own, Phase::kAllGather, true);
  EXPECT_EQ(gathered.tx_bytes, kBytes);
  EXPECT_EQ(gathered.rx_bytes, kBytes * 8);
  const Stage reduced = stage_of(own, Phase::kAllReduce, true);
  EXPECT_EQ(reduced.tx_bytes, kBytes);
  EXPECT_EQ(reduced.rx_bytes, kBytes);
  EXPECT_EQ(held_after(reduced, own), kBytes);
}

TEST(ThemisCost, AggregationIsAsFastAsTheSlowerOfPortAndCapacity) {
  Dimension own = dimension(DimensionKind::kIna, 8, 100);
  EXPECT_EQ(own.in_network_bits_per_s(), 100 * kGbit);
  own.aggregation_bits_per_s = 400 * kGbit;
  EXPECT_EQ(own.in_network_bits_per_s(), 50 * kGbit);
  own.aggregation_bits_per_s = 4000 * kGbit;
  EXPECT_EQ(own.in_network_bits_per_s(), 100 * kGbit);
}

TEST(ThemisCost, ARingPassesOnRowsOfOthers) {
  EXPECT_EQ(stage_of(dimension(DimensionKind::kDirect, 4, 100), Phase::kAllToAll).tx_bytes,
            kBytes * 3 / 4);
  // Rows of a quarter go 1, 2 and 3 hops.
  EXPECT_EQ(stage_of(dimension(DimensionKind::kRing, 4, 100), Phase::kAllToAll).tx_bytes,
            kBytes / 4 * 6);
}

TEST(ThemisCost, ChunksAreWholeShares) {
  EXPECT_EQ(cut(1, 64, 1024, 4), std::vector<uint64_t>{4096});
  EXPECT_EQ(cut(4096 * 3, 2, 1024, 4), (std::vector<uint64_t>{8192, 4096}));
  const std::vector<uint64_t> sizes = cut(1'000'000'000, 64, 1024, 4);
  EXPECT_EQ(sizes.size(), 64u);
  uint64_t sum = 0;
  for (const uint64_t bytes : sizes) {
    EXPECT_EQ(bytes % 4096, 0u);
    sum += bytes;
  }
  EXPECT_GE(sum, 1'000'000'000u);
  EXPECT_LT(sum, 1'000'000'000u + 4096);
}

}  // namespace
}  // namespace ina::themis
