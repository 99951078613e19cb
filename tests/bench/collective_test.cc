// Shapes of the collectives, against MPI's definitions.
#include "bench/perf/collective.h"

#include <gtest/gtest.h>

#include "bench/perf/pattern.h"

namespace ina::perf {
namespace {

TEST(CollectiveShape, TheWholeVectorHasABlockForEachRankWhereThereAreBlocks) {
  EXPECT_EQ(whole_elements(Collective::kAllreduce, 1003, 4, 3), 250u);
  EXPECT_EQ(whole_elements(Collective::kAllGather, 1003, 4, 3), 249u);
  EXPECT_EQ(whole_elements(Collective::kAllToAll, 8, 4, 3), 0u);
  EXPECT_EQ(whole_elements(Collective::kBarrier, 1 << 20, 4, 3), 0u);
}

/// The result of rank `rank` of 3, element by element, of 6: {source, element of its input}.
std::vector<std::pair<int, uint64_t>> result(Collective collective, int rank) {
  const Shape shape = shape_of(collective, 6, rank, 3);
  std::vector<std::pair<int, uint64_t>> elements(shape.recv, {99, 99});
  for (const Segment& segment : shape.segments)
    for (uint64_t i = 0; i < segment.count; ++i)
      elements.at(segment.to + i) = {segment.source, segment.from + i};
  return elements;
}

using Elements = std::vector<std::pair<int, uint64_t>>;

TEST(CollectiveShape, EachElementComesFromWhereMpiSays) {
  constexpr int kSum = Segment::kResult;
  EXPECT_EQ(result(Collective::kReduceScatter, 1), (Elements{{kSum, 2}, {kSum, 3}}));
  EXPECT_EQ(result(Collective::kAllGather, 2),
            (Elements{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}));
  EXPECT_EQ(result(Collective::kGather, 0), result(Collective::kAllGather, 2));
  EXPECT_EQ(result(Collective::kGather, 1), Elements{});
  EXPECT_EQ(result(Collective::kScatter, 2), (Elements{{0, 4}, {0, 5}}));
  EXPECT_EQ(result(Collective::kAllToAll, 1),
            (Elements{{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 2}, {2, 3}}));
  EXPECT_EQ(result(Collective::kReduce, 2), Elements{});
  EXPECT_EQ(result(Collective::kPermute, 0).front(), std::pair(2, uint64_t{0}));
  EXPECT_EQ(result(Collective::kSendReceive, 1).back(), std::pair(0, uint64_t{5}));
  EXPECT_EQ(shape_of(Collective::kScatter, 6, 2, 3, 1).segments.front().source, 1);
  EXPECT_TRUE(shape_of(Collective::kBroadcast, 6, 0, 3).segments.empty());
  EXPECT_EQ(result(Collective::kBroadcast, 1).back(), std::pair(0, uint64_t{5}));
}

TEST(CollectiveShape, BusBandwidthIsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1);
}

TEST(Difference, IsFoundFromAnyPlaceInTheBlock) {
  const auto block = input_block(INA_INT32, INA_SUM, 0, 1, 0);
  std::vector<std::byte> whole(2 * block.size());
  fill(whole, block);
  const size_t first = block.size() - 8;
  const std::span part = std::span(whole).subspan(first, 100);
  EXPECT_EQ(find_difference(part, block, first), std::nullopt);
  EXPECT_EQ(find_difference(part, block, first + block.size()), std::nullopt);
  EXPECT_NE(find_difference(part, block, 0), std::nullopt);
  part[50] ^= std::byte{1};
  EXPECT_EQ(find_difference(part, block, first), 50u);
}

}  // namespace
}  // namespace ina::perf
