// Sets of ranks of jobs that have more than a switch has members, and their texts.
#include "wire/rank_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "wire/text.h"

namespace ina {
namespace {

using testing::ElementsAre;

RankSet set_of(std::initializer_list<uint16_t> ranks) {
  RankSet set;
  for (const uint16_t rank : ranks) set.insert(Rank{rank});
  return set;
}

TEST(RankSet, HasRanksOfAnyWord) {
  const RankSet set = set_of({0, 63, 64, 4095});
  EXPECT_EQ(set.size(), 4u);
  EXPECT_TRUE(set.contains(Rank{64}));
  EXPECT_FALSE(set.contains(Rank{65}));
  std::vector<uint32_t> ranks;
  for (const Rank rank : set) ranks.push_back(value(rank));
  EXPECT_THAT(ranks, ElementsAre(0, 63, 64, 4095));
  EXPECT_TRUE(RankSet().empty());
  EXPECT_TRUE(set_of({4095}).is_single());
  EXPECT_EQ(RankSet::first(4096).size(), 4096u);
}

TEST(RankSet, IsJoinedAndCut) {
  const RankSet a = set_of({1, 70}), b = set_of({70, 200});
  EXPECT_EQ(a | b, set_of({1, 70, 200}));
  EXPECT_EQ(a & b, set_of({70}));
  EXPECT_EQ(a - b, set_of({1}));
  EXPECT_EQ(RankSet::of(Rank{70}), a & b);
}

TEST(RankSet, ALargeOneIsARunOfRanksToAReader) {
  EXPECT_EQ(wire::ranks_text(set_of({7})), "rank 7");
  EXPECT_EQ(wire::ranks_text(set_of({1, 2, 3, 70})), "ranks 1, 2, 3, 70");
  EXPECT_EQ(wire::ranks_text(RankSet::first(70) - set_of({64})), "ranks 0-63, 65-69");
  EXPECT_EQ(wire::ranks_text(WorkerSet::first(17)), "ranks 0-16");
}

}  // namespace
}  // namespace ina
