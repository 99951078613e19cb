// Sets of workers, and the worker bitmap that they are on the wire.
#include "wire/worker_set.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/worker_literal.h"

namespace ina {
namespace {

constexpr Rank kLast{kMaxWorkers - 1};

std::vector<Rank> ranks_of(WorkerSet set) {
  std::vector<Rank> ranks;
  for (const Rank rank : set) ranks.push_back(rank);
  return ranks;
}

TEST(WorkerSetTest, RankRIsBitR) {
  EXPECT_EQ(WorkerSet().bits(), 0u);
  EXPECT_EQ(WorkerSet::of(Rank{0}).bits(), 1u);
  EXPECT_EQ(WorkerSet::of(Rank{5}).bits(), 0x20u);
  EXPECT_EQ(WorkerSet::of(kLast).bits(), uint64_t{1} << 63);
  EXPECT_EQ(WorkerSet::from_bits(0x4142434445464748).bits(), 0x4142434445464748u);
}

TEST(WorkerSetTest, FirstHasExactlyTheWorkers) {
  for (uint32_t workers = 1; workers <= kMaxWorkers; ++workers) {
    WorkerSet all;
    for (uint32_t rank = 0; rank < workers; ++rank) all.insert(Rank{static_cast<uint8_t>(rank)});
    EXPECT_EQ(WorkerSet::first(workers), all) << workers;
    EXPECT_EQ(all.size(), workers);
  }
  EXPECT_EQ(WorkerSet::first(kMaxWorkers).bits(), ~uint64_t{0});
}

TEST(WorkerSetTest, KnowsItsWorkers) {
  constexpr WorkerSet kSet = 0b101_workers;
  EXPECT_TRUE(kSet.contains(Rank{0}));
  EXPECT_FALSE(kSet.contains(Rank{1}));
  EXPECT_TRUE(kSet.contains(Rank{2}));
  EXPECT_FALSE(kSet.contains(kLast));
  EXPECT_TRUE(WorkerSet::of(kLast).contains(kLast));
  EXPECT_EQ(kSet.size(), 2u);
  EXPECT_FALSE(kSet.empty());
  EXPECT_TRUE(WorkerSet().empty());
  EXPECT_EQ(WorkerSet().size(), 0u);
  EXPECT_TRUE(WorkerSet::of(kLast).is_single());
  EXPECT_FALSE(kSet.is_single());
  EXPECT_FALSE(WorkerSet().is_single());
}

TEST(WorkerSetTest, WorkersComeAndGo) {
  WorkerSet set;
  set.insert(Rank{2});
  set.insert(kLast);
  set.insert(Rank{2});
  EXPECT_EQ(set, WorkerSet::of(Rank{2}) | WorkerSet::of(kLast));
  set.erase(kLast);
  set.erase(kLast);
  EXPECT_EQ(set, 0b100_workers);
  set.set(Rank{0}, true);
  set.set(Rank{1}, false);
  EXPECT_EQ(set, 0b101_workers);
  set.set(Rank{2}, false);
  set.set(Rank{0}, true);
  EXPECT_EQ(set, 0b001_workers);
}

TEST(WorkerSetTest, UnionIntersectionDifference) {
  constexpr WorkerSet kA = 0b0110_workers, kB = 0b1100_workers;
  EXPECT_EQ(kA | kB, 0b1110_workers);
  EXPECT_EQ(kA & kB, 0b0100_workers);
  EXPECT_EQ(kA - kB, 0b0010_workers);
  EXPECT_EQ(kB - kA, 0b1000_workers);
  WorkerSet set = kA;
  set |= kB;
  EXPECT_EQ(set, 0b1110_workers);
  set &= kB;
  EXPECT_EQ(set, 0b1100_workers);
  set -= kA;
  EXPECT_EQ(set, 0b1000_workers);
}

TEST(WorkerSetTest, CoversAndIntersects) {
  constexpr WorkerSet kSet = 0b0110_workers;
  EXPECT_TRUE(kSet.covers({}));
  EXPECT_TRUE(kSet.covers(0b0100_workers));
  EXPECT_TRUE(kSet.covers(kSet));
  EXPECT_FALSE(kSet.covers(0b1100_workers));
  EXPECT_FALSE(kSet.covers(0b1000_workers));
  EXPECT_FALSE(WorkerSet().covers(kSet));
  EXPECT_TRUE(kSet.intersects(0b1100_workers));
  EXPECT_FALSE(kSet.intersects(0b1001_workers));
  EXPECT_FALSE(kSet.intersects({}));
}

TEST(WorkerSetTest, RanksComeInOrder) {
  EXPECT_EQ(ranks_of({}), std::vector<Rank>());
  EXPECT_EQ(ranks_of(0b1011_workers), (std::vector{Rank{0}, Rank{1}, Rank{3}}));
  EXPECT_EQ(ranks_of(WorkerSet::of(kLast)), std::vector{kLast});
  EXPECT_EQ(ranks_of(WorkerSet::first(kMaxWorkers)).size(), kMaxWorkers);
}

TEST(WorkerSetTest, MayChangeWhileItsRanksAreVisited) {
  WorkerSet set = 0b1011_workers;
  std::vector<Rank> ranks;
  for (const Rank rank : set) {
    ranks.push_back(rank);
    set = {};
  }
  EXPECT_EQ(ranks, (std::vector{Rank{0}, Rank{1}, Rank{3}}));
}

}  // namespace
}  // namespace ina
