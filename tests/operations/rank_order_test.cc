// Plans of reductions in the order of the ranks: the bytes they move, and their memory. The fault
// simulator (tests/sim/faults_test.cc) runs them and compares the bits.
#include "operations/rank_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plans/collectives.h"

namespace ina::client {
namespace {

using scheduler::Block;
using scheduler::Operate;
using scheduler::Schedule;

constexpr uint32_t kSlotBytes = 8192;

OperationSpec spec_of(Collective collective, DType dtype, Op op, uint64_t elements,
                      std::span<const uint64_t> counts = {}) {
  OperationSpec spec;
  spec.collective = collective;
  spec.dtype = dtype;
  spec.op = op;
  spec.elements = elements;
  const uint32_t per_fragment = elements_per_fragment(collective, dtype, kSlotBytes);
  if (collective == Collective::kReduce)
    spec.blocks = std::make_shared<const scheduler::BlockTable>(
        scheduler::reduce_blocks(Rank{1}, elements, per_fragment));
  if (collective == Collective::kReduceScatter)
    spec.blocks = std::make_shared<const scheduler::BlockTable>(
        scheduler::reduce_scatter_blocks(counts, per_fragment));
  return spec;
}

std::shared_ptr<const Schedule> plan(const OperationSpec& spec, uint32_t workers, uint32_t rank) {
  Executor executor({}, 0);
  RankOrder ranks(
      executor,
      {.workers = workers, .rank = Rank{static_cast<uint16_t>(rank)}, .slot_bytes = kSlotBytes});
  return ranks.schedule_for(spec);
}

/// Elements of payload that a rank sends and receives, by the schedule's operations.
struct Moved {
  uint64_t up = 0, down = 0;
  uint32_t operations = 0;
};
Moved moved_by(const Schedule& schedule, uint32_t rank) {
  Moved moved;
  for (Schedule::Stage stage = 0; stage < schedule.size(); ++stage) {
    const auto* operate = std::get_if<Operate>(&schedule.work(stage));
    if (!operate) continue;
    ++moved.operations;
    EXPECT_TRUE(is_moved(operate->collective)) << "the switch would reduce, in order of arrival";
    EXPECT_EQ(operate->elements, operate->blocks->elements());
    for (const Block& block : operate->blocks->blocks()) {
      if (block.source == 1 + rank) moved.up += block.elements;
      if (block.receiver == 0 || block.receiver == 1 + rank) moved.down += block.elements;
    }
  }
  return moved;
}

TEST(RankOrder, HandlesWhatIntegersCannotCarry) {
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps) {
      if (!is_valid(dtype, op)) continue;
      const bool expected =
          is_float(dtype) &&
          (op == Op::kProduct || (dtype == DType::kFloat64 && (op == Op::kSum || op == Op::kAvg)));
      EXPECT_EQ(RankOrder::handles(spec_of(Collective::kAllReduce, dtype, op, 1), 3), expected);
      EXPECT_FALSE(RankOrder::handles(spec_of(Collective::kAllReduce, dtype, op, 1), 2))
          << "two contributions have one order";
    }
  EXPECT_FALSE(RankOrder::handles(spec_of(Collective::kBarrier, DType::kFloat64, Op::kSum, 0), 3));
  EXPECT_FALSE(
      RankOrder::handles(spec_of(Collective::kAllGather, DType::kFloat64, Op::kSum, 9), 3));
}

/// The costs that docs/reproducible.md states.
TEST(RankOrder, MovesWhatTheDocumentSays) {
  for (const uint32_t n : {3u, 8u, 64u, 200u}) {
    const uint64_t share = n > kMaxWorkers ? 3'000 : 100'000, whole = n * share;
    const std::vector<uint64_t> counts(n, share);
    for (uint32_t rank : {0u, 1u, n - 1}) {
      const auto moved = [&](Collective collective) {
        return moved_by(
            *plan(spec_of(collective, DType::kFloat64, Op::kSum, whole, counts), n, rank), rank);
      };
      const Moved all = moved(Collective::kAllReduce);
      EXPECT_EQ(all.up, whole);
      EXPECT_EQ(all.down, whole - share + whole);
      const Moved to_root = moved(Collective::kReduce);
      EXPECT_EQ(to_root.up, rank == 1 ? whole - share : whole);
      EXPECT_EQ(to_root.down, rank == 1 ? 2 * (whole - share) : whole - share);
      const Moved shares = moved(Collective::kReduceScatter);
      EXPECT_EQ(shares.up, whole - share);
      EXPECT_EQ(shares.down, whole - share);
    }
  }
}

/// One operation: all contributions, to all or to the root.
TEST(RankOrder, OneFragmentTakesOneRoundTrip) {
  const uint64_t fragment = elements_per_fragment(DType::kFloat64, kSlotBytes);
  for (const uint64_t elements : {uint64_t{1}, fragment}) {
    const auto schedule =
        plan(spec_of(Collective::kAllReduce, DType::kFloat64, Op::kProduct, elements), 8, 3);
    const Moved moved = moved_by(*schedule, 3);
    EXPECT_EQ(moved.operations, 1);
    EXPECT_EQ(moved.up, elements);
    EXPECT_EQ(moved.down, 8 * elements);
    EXPECT_LE(schedule->scratch_bytes(), RankOrder::kChunkBytes + 8 * 64);
    EXPECT_EQ(
        moved_by(*plan(spec_of(Collective::kReduce, DType::kFloat64, Op::kProduct, elements), 8, 3),
                 3)
            .down,
        0);
  }
  EXPECT_GT(
      moved_by(
          *plan(spec_of(Collective::kAllReduce, DType::kFloat64, Op::kProduct, fragment + 1), 8, 3),
          3)
          .operations,
      1);
}

/// Full fragments, of which there is one for each pair of ranks.
TEST(RankOrder, ManyRanksExchangeFullFragments) {
  constexpr uint64_t kRanks = 256, kFragment = 1024;
  const auto schedule = plan(
      spec_of(Collective::kAllReduce, DType::kFloat64, Op::kSum, kRanks * kFragment), kRanks, 255);
  const auto* exchange = std::get_if<Operate>(&schedule->work(0));
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->collective, Collective::kAllToAll);
  EXPECT_EQ(exchange->blocks->fragments(), kRanks * (kRanks - 1));
  EXPECT_EQ(exchange->blocks->elements(), exchange->blocks->fragments() * kFragment);
  EXPECT_LE(schedule->scratch_bytes(),
            RankOrder::kSlots * RankOrder::kManyRanksFactor * RankOrder::kChunkBytes);
}

/// The last ranks are those that fewer bits would confuse with the first.
TEST(RankOrder, AllRanksOfManyHaveTheirRoles) {
  constexpr uint32_t kRanks = 300;
  const std::vector<uint64_t> counts(kRanks, 2000);
  OperationSpec to_last = spec_of(Collective::kReduce, DType::kFloat64, Op::kSum, 600'000);
  to_last.blocks = std::make_shared<const scheduler::BlockTable>(
      scheduler::reduce_blocks(Rank{299}, 600'000, 1024));
  for (const uint32_t rank : {0u, 43u, 299u}) {
    const Moved to_root = moved_by(*plan(to_last, kRanks, rank), rank);
    EXPECT_EQ(to_root.down, rank == 299 ? 2 * (600'000 - 2000) : 600'000 - 2000) << rank;
    const Moved shares = moved_by(
        *plan(spec_of(Collective::kReduceScatter, DType::kFloat64, Op::kSum, 600'000, counts),
              kRanks, rank),
        rank);
    EXPECT_EQ(shares.up, 600'000 - 2000) << rank;
    EXPECT_EQ(shares.down, 600'000 - 2000) << rank;
  }
}

/// With any shares of the ranks: also all at one rank.
TEST(RankOrder, ScratchMemoryIsBounded) {
  for (const uint32_t n : {3u, 8u, 64u}) {
    std::vector<uint64_t> counts(n, 0);
    for (const uint64_t elements : {uint64_t{5000}, uint64_t{3'000'017}}) {
      counts[2] = elements;
      for (const DType dtype : {DType::kFloat16, DType::kFloat64})
        for (const Collective collective :
             {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
          const auto schedule =
              plan(spec_of(collective, dtype, Op::kProduct, elements, counts), n, 2);
          // A row of each rank is rounded up to a line.
          EXPECT_LE(schedule->scratch_bytes(),
                    RankOrder::kSlots * (RankOrder::kChunkBytes + n * 64));
        }
    }
  }
}

/// All ranks must have the same operations in the same order, or they never meet.
TEST(RankOrder, AllRanksHaveTheSameOperations) {
  const std::vector<uint64_t> counts = {70'001, 0, 13, 500'000, 1};
  const uint64_t whole = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    const OperationSpec spec = spec_of(collective, DType::kFloat32, Op::kProduct, whole, counts);
    const auto first = plan(spec, 5, 0);
    for (uint32_t rank = 1; rank < 5; ++rank) {
      const auto other = plan(spec, 5, rank);
      ASSERT_EQ(other->size(), first->size());
      for (Schedule::Stage stage = 0; stage < first->size(); ++stage) {
        const auto* one = std::get_if<Operate>(&first->work(stage));
        const auto* same = std::get_if<Operate>(&other->work(stage));
        ASSERT_EQ(one == nullptr, same == nullptr);
        if (!one) continue;
        EXPECT_EQ(one->collective, same->collective);
        EXPECT_EQ(one->blocks->fingerprint(), same->blocks->fingerprint());
        EXPECT_TRUE(std::ranges::equal(
            one->blocks->blocks(), same->blocks->blocks(), [](const Block& a, const Block& b) {
              return a.elements == b.elements && a.source == b.source && a.receiver == b.receiver;
            }));
      }
    }
  }
}

}  // namespace
}  // namespace ina::client
