// A port's record of dropped frames: only those of jobs that it knows, and never more than it has
// room for.
#include "io/ethdev/drop_witness.h"

#include <gtest/gtest.h>

namespace ina::io {
namespace {

constexpr JobId kJob{7};
constexpr uint64_t kKey = 0x1234;

wire::Envelope from(uint32_t ip, JobId job = kJob, uint64_t key = kKey) {
  wire::Envelope envelope;
  envelope.source.ip = ip;
  envelope.destination.udp_port = 7584;
  envelope.job = job;
  envelope.job_key = key;
  return envelope;
}

size_t places(const DropWitness& witness, JobId job) {
  size_t used = 0;
  for (const DroppedFrames& dropped : witness.dropped(job)) used += dropped.count != 0;
  return used;
}

TEST(DropWitness, CountsByReasonAndRankAndKeepsTheLastAddresses) {
  DropWitness witness;
  witness.expect(kJob, kKey);
  witness.note(from(1), Rank{2}, DropReason::kUnknownSource);
  witness.note(from(9), Rank{2}, DropReason::kUnknownSource);
  witness.note(from(1), Rank{2}, DropReason::kBadTag);
  witness.note(from(1), Rank{3}, DropReason::kUnknownSource);
  ASSERT_EQ(places(witness, kJob), 3u);
  const DroppedFrames& first = witness.dropped(kJob)[0];
  EXPECT_EQ(first.reason, DropReason::kUnknownSource);
  EXPECT_EQ(first.rank, Rank{2});
  EXPECT_EQ(first.count, 2u);
  EXPECT_EQ(first.source.ip, 9u);
  EXPECT_EQ(first.destination.udp_port, 7584);
}

TEST(DropWitness, StrangersLeaveNoTrace) {
  DropWitness witness;
  witness.note(from(1), Rank{0}, DropReason::kUnknownSource);  // of a job that nobody knows
  witness.expect(kJob, kKey);
  for (uint32_t i = 0; i < 10'000; ++i) {
    witness.note(from(i, kJob, kKey + 1 + i), Rank{0}, DropReason::kUnknownSource);
    witness.note(from(i, JobId{value(kJob) + 256 * (1 + i)}, kKey), Rank{0}, DropReason::kCrc);
    witness.note(from(i, JobId{i % 7}, kKey), Rank{0}, DropReason::kBadJob);
  }
  EXPECT_EQ(places(witness, kJob), 0u);
  for (uint32_t id = 0; id < 7; ++id) EXPECT_TRUE(witness.dropped(JobId{id}).empty());
}

TEST(DropWitness, HoldsNoMoreThanItHasRoomFor) {
  DropWitness witness;
  witness.expect(kJob, kKey);
  for (uint8_t rank = 0; rank < 64; ++rank)
    for (int times = 0; times < 3; ++times)
      witness.note(from(rank), Rank{rank}, DropReason::kUnknownSource);
  EXPECT_EQ(places(witness, kJob), DropWitness::kPerJob);
  for (const DroppedFrames& dropped : witness.dropped(kJob)) EXPECT_EQ(dropped.count, 3u);
}

TEST(DropWitness, ForgetsWithTheJobAndKeepsWhatItHasWhenAnotherWorkerIsBound) {
  DropWitness witness;
  witness.expect(kJob, kKey);
  witness.note(from(1), Rank{0}, DropReason::kUnknownSource);
  witness.expect(kJob, kKey);
  EXPECT_EQ(places(witness, kJob), 1u);
  witness.forget(JobId{value(kJob) + 256});  // another's place
  EXPECT_EQ(places(witness, kJob), 1u);
  witness.forget(kJob);
  EXPECT_TRUE(witness.dropped(kJob).empty());
  witness.expect(kJob, kKey);
  EXPECT_EQ(places(witness, kJob), 0u);
}

}  // namespace
}  // namespace ina::io
