// Calls of jobs of more ranks than a switch has members, and the search for memory that is both
// sent and received.
#include "client/collective_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace ina::client {
namespace {

using testing::HasSubstr;

constexpr uint32_t kRanks = 200;

CollectiveCall call_of(Collective collective, const void* send, void* recv) {
  CollectiveCall call;
  call.function = "ina_collective";
  call.collective = collective;
  call.send = send;
  call.recv = recv;
  call.dtype_number = INA_INT32;
  call.op_number = INA_SUM;
  return call;
}

std::string complaint(CollectiveCall& call, uint32_t workers, uint32_t rank) {
  const auto fine = check(call, workers, rank);
  return fine ? "" : fine.error().text;
}

TEST(CollectiveCall, OfManyRanksHasABlockForEach) {
  std::vector<int32_t> send(3), recv(kRanks * 3);
  CollectiveCall call = call_of(Collective::kAllGather, send.data(), recv.data());
  call.set_even(kRanks, 3);
  ASSERT_EQ(complaint(call, kRanks, 199), "");
  const CallRegions regions(call, kRanks, 199);
  ASSERT_EQ(regions.recv.size(), kRanks);
  EXPECT_EQ(regions.recv[199].offset, 597u);
  EXPECT_EQ(regions.own_receive, 199u);
  ASSERT_EQ(regions.send.size(), 1u);
  EXPECT_EQ(regions.send[0].count, 3u);
  CallTables tables;
  const auto table = tables.table_for(call, kRanks, 256);
  EXPECT_EQ(table->elements(), kRanks * 3u);
  EXPECT_EQ(table->blocks().back().source, 200);
  EXPECT_EQ(tables.table_for(call, kRanks, 256), table);
}

TEST(CollectiveCall, OfManyRanksMayBeInPlace) {
  std::vector<int32_t> memory(kRanks);
  const auto gathered_by = [&](uint32_t rank, uint32_t sent) {
    CollectiveCall call = call_of(Collective::kAllGather, &memory[sent], memory.data());
    call.set_even(kRanks, 1);
    return complaint(call, kRanks, rank);
  };
  EXPECT_EQ(gathered_by(199, 199), "");
  EXPECT_THAT(gathered_by(199, 198), HasSubstr("send overlaps with recv"));
  // Of these, a byte could not tell one from the other.
  EXPECT_THAT(gathered_by(190, 190 - 128), HasSubstr("send overlaps with recv"));
}

TEST(CollectiveCall, BlocksOfManyRanksMustNotOverlap) {
  std::vector<int32_t> send(1), recv(2 * kRanks);
  CollectiveCall call = call_of(Collective::kAllGather, send.data(), recv.data());
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    call.counts.push_back(1);
    call.displacements.push_back(2 * (kRanks - 1 - rank));
  }
  EXPECT_EQ(complaint(call, kRanks, 0), "");
  call.displacements[150] = call.displacements[22];
  EXPECT_THAT(complaint(call, kRanks, 0), HasSubstr("of ranks 22 and 150 overlap in recv"));
}

TEST(CollectiveCall, EachOfManyRanksReceivesFromOneAtMost) {
  std::vector<int32_t> send(1), recv(1);
  CollectiveCall call = call_of(Collective::kPermute, send.data(), recv.data());
  call.set_even(kRanks, 1);
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    call.destinations.push_back(static_cast<int32_t>((rank + 150) % kRanks));
  ASSERT_EQ(complaint(call, kRanks, 199), "");
  EXPECT_EQ(call.destination, 149);
  EXPECT_EQ(call.source, 49);
  call.destinations[199] = call.destinations[130];
  EXPECT_THAT(complaint(call, kRanks, 0),
              HasSubstr("destinations[199] is 80, and so is destinations[130]"));
}

/// Every element of a rank's vectors, one after the other, as sets of addresses.
std::string slow_complaint(const CollectiveCall& call, uint32_t workers, uint32_t rank) {
  const auto addresses = [](const void* buffer, uint64_t offset, uint64_t count) {
    std::set<const int32_t*> all;
    for (uint64_t i = 0; i < count; ++i)
      all.insert(static_cast<const int32_t*>(buffer) + offset + i);
    return all;
  };
  std::set<const int32_t*> received;
  for (uint32_t other = 0; other < workers; ++other)
    for (const int32_t* one :
         addresses(call.recv, call.receive_displacements[other], call.receive_counts[other]))
      if (!received.insert(one).second) return "overlap in recv";
  for (uint32_t other = 0; other < workers; ++other) {
    const auto sent = addresses(call.send, call.displacements[other], call.counts[other]);
    auto forbidden = received;
    // A rank's own block may be where it is, as a whole.
    const auto own =
        addresses(call.recv, call.receive_displacements[rank], call.receive_counts[rank]);
    if (other == rank && !sent.empty() && !own.empty() && *sent.begin() == *own.begin())
      for (const int32_t* one : own) forbidden.erase(one);
    for (const int32_t* one : sent)
      if (forbidden.contains(one)) return "send and recv overlap";
  }
  return "";
}

TEST(CollectiveCall, OverlapsAreFoundAsByLookingAtEachElement) {
  std::mt19937 random(20261209);
  std::vector<int32_t> memory(64);
  int found = 0, fine = 0;
  for (int round = 0; round < 20'000; ++round) {
    const uint32_t workers = 1 + random() % 4, rank = random() % workers;
    CollectiveCall call = call_of(Collective::kAllToAll, memory.data(), &memory[random() % 16]);
    call.counted = true;
    for (uint32_t other = 0; other < workers; ++other) {
      call.counts.push_back(random() % 4);
      call.displacements.push_back(random() % 40);
      call.receive_counts.push_back(other == rank ? call.counts[other] : random() % 4);
      call.receive_displacements.push_back(random() % 40);
    }
    if (random() % 2 == 0) {  // in place
      call.recv = memory.data();
      call.receive_displacements[rank] = call.displacements[rank];
    }
    const std::string expected = slow_complaint(call, workers, rank);
    const std::string text = complaint(call, workers, rank);
    if (expected.empty())
      ASSERT_EQ(text, "") << "round " << round;
    else
      ASSERT_THAT(text, HasSubstr(expected)) << "round " << round;
    ++(expected.empty() ? fine : found);
  }
  EXPECT_GT(found, 1'000);
  EXPECT_GT(fine, 1'000);
}

TEST(CollectiveCall, AnAllToAllOfManyRanksIsComparedWithItself) {
  std::vector<int32_t> memory(2 * kRanks);
  const auto moved = [&](size_t to) {
    CollectiveCall call = call_of(Collective::kAllToAll, memory.data(), &memory[to]);
    call.set_even(kRanks, 1);
    return complaint(call, kRanks, 17);
  };
  EXPECT_EQ(moved(kRanks), "");
  EXPECT_THAT(moved(kRanks - 1), HasSubstr("send and recv overlap"));
}

}  // namespace
}  // namespace ina::client
