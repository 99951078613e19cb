// Tables of blocks: every element that a collective moves or sums is in one block, once, on all
// ranks alike.
#include "plans/collectives.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "tests/support/sanitizers.h"
#include "wire/fingerprint.h"
#include "wire/text.h"

namespace ina::scheduler {
namespace {

#ifdef INA_SLOW_BUILD
constexpr uint32_t kMostWorkers = 16;
#else
constexpr uint32_t kMostWorkers = 64;
#endif

using Numbers = std::vector<uint64_t>;

constexpr uint32_t kPerFragment = 32;

Numbers packed(const Numbers& counts) {
  Numbers displacements(counts.size());
  pack(counts, displacements);
  return displacements;
}

/// By sender and receiver (1 + rank, or 0): how often each element of a source's and a receiver's
/// block occurs, by its number within the block.
using Coverage = std::map<std::pair<int, int>, std::map<std::pair<uint64_t, uint64_t>, int>>;
Coverage coverage_of(const BlockTable& table) {
  Coverage coverage;
  uint64_t elements = 0;
  for (uint64_t fragment = 0; fragment < table.fragments(); ++fragment) {
    const BlockTable::Place place = table.place_of(fragment);
    EXPECT_GT(place.elements, 0);
    EXPECT_LE(place.elements, table.elements_per_fragment());
    for (uint64_t i = place.first; i < place.first + place.elements; ++i)
      ++coverage[{place.block->source, place.block->receiver}]
                [{place.block->send_offset + i, place.block->receive_offset + i}];
    elements += place.elements;
  }
  EXPECT_EQ(elements, table.elements());
  return coverage;
}

/// The flow has so many elements, from `send` and to `receive` on, each once.
void expect_flow(const Coverage& coverage, int source, int receiver, uint64_t count, uint64_t send,
                 uint64_t receive) {
  const auto flow = coverage.find({source, receiver});
  if (count == 0) {
    EXPECT_EQ(flow, coverage.end()) << source << " to " << receiver;
    return;
  }
  ASSERT_NE(flow, coverage.end()) << source << " to " << receiver;
  ASSERT_EQ(flow->second.size(), count) << source << " to " << receiver;
  for (uint64_t i = 0; i < count; ++i) {
    const auto element = flow->second.find({send + i, receive + i});
    ASSERT_NE(element, flow->second.end()) << source << " to " << receiver << " at " << i;
    ASSERT_EQ(element->second, 1);
  }
}

/// Counts for so many ranks: none, one, fragment borders, several turns.
std::vector<Numbers> some_counts(size_t workers) {
  const Numbers sizes = {0, 1, 31, 32, 33, 512, 513, 1500};
  std::vector<Numbers> all;
  for (size_t shift = 0; shift < sizes.size(); shift += 3) {
    Numbers counts(workers);
    for (size_t rank = 0; rank < workers; ++rank) counts[rank] = sizes[(rank + shift) % 8];
    all.push_back(counts);
  }
  all.push_back(Numbers(workers, 0));
  all.push_back(Numbers(workers, 777));
  return all;
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  const int workers = GetParam();
};

TEST_P(Collectives, SumsForOneRootOrAShareEach) {
  for (int root = 0; root < workers; ++root) {
    const auto table = reduce_blocks(Rank{static_cast<uint8_t>(root)}, 1000, kPerFragment);
    const Coverage coverage = coverage_of(table);
    EXPECT_EQ(coverage.size(), 1u);
    expect_flow(coverage, 0, 1 + root, 1000, 0, 0);
  }
  for (const Numbers& counts : some_counts(static_cast<size_t>(workers))) {
    const Coverage coverage = coverage_of(reduce_scatter_blocks(counts, kPerFragment));
    const Numbers first = packed(counts);
    for (int rank = 0; rank < workers; ++rank)
      expect_flow(coverage, 0, 1 + rank, counts[rank], first[rank], 0);
  }
}

TEST_P(Collectives, FromOneToAllFromAllToAllAndToAndFromARoot) {
  for (int root = 0; root < workers; root += 1 + workers / 4) {
    const Rank rank{static_cast<uint8_t>(root)};
    expect_flow(coverage_of(broadcast_blocks(rank, 99, kPerFragment)), 1 + root, 0, 99, 0, 0);
    for (const Numbers& counts : some_counts(static_cast<size_t>(workers))) {
      Numbers places = packed(counts);
      for (uint64_t& place : places) place = 2 * place + 3;
      const Coverage gather = coverage_of(gather_blocks(rank, counts, places, kPerFragment));
      const Coverage scatter = coverage_of(scatter_blocks(rank, counts, places, kPerFragment));
      const Coverage all = coverage_of(all_gather_blocks(counts, places, kPerFragment));
      for (int other = 0; other < workers; ++other) {
        expect_flow(all, 1 + other, 0, counts[other], 0, places[other]);
        const uint64_t count = other == root ? 0 : counts[other];
        expect_flow(gather, 1 + other, 1 + root, count, 0, places[other]);
        expect_flow(scatter, 1 + root, 1 + other, count, places[other], 0);
      }
    }
  }
}

TEST_P(Collectives, FromEachToEach) {
  const auto size = static_cast<size_t>(workers);
  for (const Numbers& some : some_counts(size * size)) {
    Numbers send_places(size), receive_places(size);
    std::iota(send_places.begin(), send_places.end(), 5000);
    std::iota(receive_places.begin(), receive_places.end(), 9000);
    const Coverage coverage =
        coverage_of(all_to_all_blocks(some, send_places, receive_places, kPerFragment));
    for (size_t s = 0; s < size; ++s)
      for (size_t d = 0; d < size; ++d)
        expect_flow(coverage, static_cast<int>(1 + s), static_cast<int>(1 + d),
                    s == d ? 0 : some[s * size + d], send_places[d], receive_places[s]);
  }
}

TEST_P(Collectives, ToOneOtherAtMost) {
  const auto size = static_cast<size_t>(workers);
  const Numbers counts = some_counts(size).front();
  std::vector<int32_t> destinations(size);
  for (size_t rank = 0; rank < size; ++rank)
    destinations[rank] = static_cast<int32_t>((rank + 1) % size);
  destinations[0] = kNobody;
  const Coverage coverage = coverage_of(permute_blocks(destinations, counts, kPerFragment));
  for (size_t rank = 1; rank < size; ++rank)
    expect_flow(coverage, static_cast<int>(1 + rank), 1 + destinations[rank], counts[rank], 0, 0);
  EXPECT_FALSE(coverage.contains({1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Workers, Collectives, testing::Values(1, 2, 3, 5, 8, kMostWorkers));

/// The last of 200 ranks and that whose number has the same lowest 6 bits.
TEST(CollectivesOfManyRanks, HaveEveryRanksRole) {
  constexpr uint16_t kRanks = 200, kRoot = 199, kOther = 7;
  const Numbers counts(kRanks, 40);
  const Numbers places = packed(counts);
  const auto elements = [](const BlockTable& table, int source, int receiver) {
    uint64_t found = 0;
    for (const Block& block : table.blocks())
      if (block.source == source && block.receiver == receiver) found += block.elements;
    return found;
  };
  EXPECT_EQ(elements(reduce_blocks(Rank{kRoot}, 40, 32), 0, 1 + kRoot), 40u);
  EXPECT_EQ(elements(broadcast_blocks(Rank{kRoot}, 40, 32), 1 + kRoot, 0), 40u);
  EXPECT_EQ(elements(reduce_scatter_blocks(counts, 32), 0, 1 + kRoot), 40u);
  EXPECT_EQ(elements(all_gather_blocks(counts, places, 32), 1 + kRoot, 0), 40u);
  const BlockTable gather = gather_blocks(Rank{kRoot}, counts, places, 32);
  EXPECT_EQ(elements(gather, 1 + kOther, 1 + kRoot), 40u);
  EXPECT_EQ(gather.elements(), 199u * 40);
  const BlockTable scatter = scatter_blocks(Rank{kRoot}, counts, places, 32);
  EXPECT_EQ(elements(scatter, 1 + kRoot, 1 + kOther), 40u);
  EXPECT_EQ(scatter.elements(), 199u * 40);
  const BlockTable all_to_all = all_to_all_blocks(Numbers(kRanks * kRanks, 40), places, places, 32);
  EXPECT_EQ(elements(all_to_all, 1 + kOther, 1 + kRoot), 40u);
  EXPECT_EQ(all_to_all.elements(), 200u * 199 * 40);
  std::vector<int32_t> destinations(kRanks, kNobody);
  destinations[kOther] = kRoot;
  EXPECT_EQ(elements(permute_blocks(destinations, counts, 32), 1 + kOther, 1 + kRoot), 40u);
}

TEST(CollectivesTurns, SourcesTakeTurnsOfSixteenFragments) {
  const Numbers counts = {2000, 100, 2000};
  const auto table = all_gather_blocks(counts, packed(counts), kPerFragment);
  std::vector<std::pair<int, uint64_t>> turns;
  for (const Block& block : table.blocks()) turns.emplace_back(block.source, block.elements);
  const uint64_t turn = kTurnFragments * kPerFragment;
  const std::vector<std::pair<int, uint64_t>> expected = {
      {1, turn},           {2, 100},  {3, turn}, {1, turn},
      {3, turn},           {1, turn}, {3, turn}, {1, 2000 - 3 * turn},
      {3, 2000 - 3 * turn}};
  EXPECT_EQ(turns, expected);
}

TEST(CollectivesTurns, InEachStepOfAnAllToAllEachSendsAndReceivesOnce) {
  constexpr size_t kWorkers = 5;
  const Numbers counts(kWorkers * kWorkers, 40), places(kWorkers);
  const auto table = all_to_all_blocks(counts, places, places, kPerFragment);
  ASSERT_EQ(table.blocks().size(), kWorkers * (kWorkers - 1));
  for (size_t step = 0; step < kWorkers - 1; ++step) {
    uint32_t sources = 0, receivers = 0;
    for (const Block& block : table.blocks().subspan(step * kWorkers, kWorkers)) {
      sources |= 1u << block.source;
      receivers |= 1u << block.receiver;
    }
    EXPECT_EQ(sources, 0b111110u);
    EXPECT_EQ(receivers, 0b111110u);
  }
}

TEST(CollectivesTurns, HugeOnesHaveFewPieces) {
  const Numbers counts(64, uint64_t{1} << 34);
  const auto table = all_gather_blocks(counts, packed(counts), 2048);
  EXPECT_LE(table.blocks().size(), kMostPieces + 64);
  EXPECT_EQ(table.elements(), uint64_t{1} << 40);
}

TEST(CollectivesFingerprint, TellsRootsCountsAndDestinationsApart) {
  const auto text = [](Collective collective, const BlockTable& table) {
    wire::Signature signature;
    signature.elements =
        table.elements() | wire::blocks_bits(table.elements(), table.fingerprint());
    signature.operation = 7;
    signature.dtype = DType::kFloat32;
    signature.op = Op::kSum;
    signature.collective = collective;
    return wire::text_of(signature);
  };
  for (const uint8_t root : {0, 5, 63}) {
    const std::string named = ", root " + std::to_string(root);
    EXPECT_EQ(text(Collective::kReduce, reduce_blocks(Rank{root}, 10, 32)),
              "operation 7: reduce of 10 float32 sum" + named);
    EXPECT_EQ(text(Collective::kBroadcast, broadcast_blocks(Rank{root}, 10, 32)),
              "operation 7: broadcast of 10 float32" + named);
    const Numbers counts(64, 1);
    EXPECT_EQ(text(Collective::kGather, gather_blocks(Rank{root}, counts, counts, 32))
                  .rfind("operation 7: gather of 63 float32" + named + ", counts ", 0),
              0u);
  }
  // As many as a job has ranks.
  std::set<uint16_t> fingerprints;
  for (uint16_t root = 0; root < kMaxRanks; ++root)
    fingerprints.insert(broadcast_blocks(Rank{root}, 10, 32).fingerprint());
  EXPECT_EQ(fingerprints.size(), kMaxRanks);
  const Numbers some = {1, 2, 3}, others = {1, 3, 2};
  EXPECT_NE(reduce_scatter_blocks(some, 32).fingerprint(),
            reduce_scatter_blocks(others, 32).fingerprint());
  EXPECT_NE(all_gather_blocks(some, some, 32).fingerprint(),
            all_gather_blocks(others, some, 32).fingerprint());
  EXPECT_EQ(all_gather_blocks(some, some, 32).fingerprint(),
            all_gather_blocks(some, others, 32).fingerprint())
      << "displacements are each rank's own";
  const std::vector<int32_t> up = {1, 2, 0}, down = {2, 0, 1};
  EXPECT_NE(permute_blocks(up, some, 32).fingerprint(),
            permute_blocks(down, some, 32).fingerprint());
  EXPECT_EQ(text(Collective::kAllGather, sizes_blocks(2, 4, wire::kSizesOfAllToAll, 32)),
            "operation 7: all-to-all with counts by rank");
  EXPECT_EQ(text(Collective::kAllGather, sizes_blocks(2, 4, wire::kSizesOfSendReceive, 32)),
            "operation 7: send and receive");
}

TEST(CollectivesCache, GivesTheSameTableForTheSameKey) {
  TableCache cache;
  int made = 0;
  const auto get = [&](uint64_t key) {
    return cache.find_or_make(std::vector{key, uint64_t{1}}, [&] {
      ++made;
      return reduce_blocks(Rank{0}, key + 1, 32);
    });
  };
  const auto first = get(0);
  EXPECT_EQ(get(0), first);
  EXPECT_EQ(made, 1);
  for (uint64_t key = 1; key < TableCache::kMostTables; ++key) {
    get(key);
    EXPECT_EQ(get(0), first) << "used again, so it stays";
  }
  get(1000);  // drops the one that was used longest ago
  EXPECT_EQ(cache.size(), TableCache::kMostTables);
  EXPECT_EQ(get(0), first);
  made = 0;
  EXPECT_EQ(get(1)->elements(), 2u);
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace ina::scheduler
