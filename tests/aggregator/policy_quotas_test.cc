// Ceilings and floors of jobs in the shard under `esa`: receive this, expect that.
#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

uint32_t slot_of(uint32_t job, uint64_t seq, uint32_t slots) {
  return scheduler::hashed_slot(JobId{100 + job}, Seq{seq}, slots);
}

/// Sequence numbers of the window in slots of their own.
std::vector<uint64_t> apart(uint32_t job, uint32_t slots, size_t wanted) {
  std::vector<uint64_t> seqs;
  std::vector<bool> used(slots);
  for (uint64_t seq = 0; seq < kWindow && seqs.size() < wanted; ++seq) {
    const uint32_t slot = slot_of(job, seq, slots);
    if (used[slot]) continue;
    used[slot] = true;
    seqs.push_back(seq);
  }
  return seqs;
}

TEST_F(PolicyTest, NoJobExceedsItsCeiling) {
  start(64);
  const JobIndex job = add_job(2, {.floor = 0, .ceiling = 2});
  const std::vector<uint64_t> seqs = apart(job, 64, 3);
  ASSERT_EQ(seqs.size(), 3u);
  expect_held(grad(job, 0, seqs[0], 1));
  expect_held(grad(job, 0, seqs[1], 1));
  expect_bypass(grad(job, 0, seqs[2], 1, 255));
  EXPECT_EQ(aggregator_->job_counters(job).slots_held, 2u);
  expect_result(grad(job, 1, seqs[0], 10).emission[0], seqs[0], {11});
  expect_part(grad(job, 1, seqs[2], 10).emission[0], job, seqs[2], 0b10_workers, {10});
  EXPECT_EQ(aggregator_->job_counters(job).slots_held_peak, 2u);
}

TEST_F(PolicyTest, AtItsCeilingAJobPreemptsItselfOnly) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex other = add_job(2);
  const JobIndex none = add_job(2, {.floor = 0, .ceiling = 0});
  const JobIndex one = add_job(2, {.floor = 0, .ceiling = 1});
  grad(other, 0, 0, 1, 1);
  expect_bypass(grad(none, 0, 0, 1, 255));
  expect_part(grad(one, 0, 0, 2, 255).emission[0], other, 0, 0b1_workers, {1});
  expect_bypass(grad(one, 0, 1, 3, 255));
  EXPECT_EQ(aggregator_->job_counters(one).slots_held, 1u);
}

TEST_F(PolicyTest, AtOrBelowItsFloorAJobLosesToNobody) {
  start(1);
  const JobIndex guarded = add_job(2, {.floor = 1});
  const JobIndex other = add_job(2);
  grad(guarded, 0, 0, 1, 1);
  for (uint64_t seq = 0; seq < kWindow; ++seq) expect_bypass(grad(other, 0, seq, 5, 255));
  expect_part(grad(guarded, 0, 1, 2, 2).emission[0], guarded, 0, 0b1_workers,
              {1});  // but to itself
}

TEST_F(PolicyTest, BelowItsFloorAJobDoesNotPushItselfOut) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex job = add_job(2, {.floor = 2});
  grad(job, 0, 0, 1);
  expect_bypass(grad(job, 0, 1, 5));
}

TEST_F(PolicyTest, AboveItsFloorAJobIsLikeAnyOther) {
  start(64);
  const JobIndex job = add_job(2, {.floor = 1});
  const std::vector<uint64_t> seqs = apart(job, 64, 2);
  for (const uint64_t seq : seqs) grad(job, 0, seq, 1, 10);
  ASSERT_EQ(aggregator_->job_counters(job).slots_held, 2u);
  // A fragment of another job that meets one of these.
  uint64_t seq = 0;
  while (slot_of(1, seq, 64) != slot_of(job, seqs[0], 64)) ++seq;
  const JobIndex other = add_job(2, {}, 255, Home::kWorkers, Seq{seq});
  expect_part(grad(other, 0, seq, 5, 11).emission[0], job, seqs[0], 0b1_workers, {1});
  EXPECT_EQ(aggregator_->job_counters(job).slots_held, 1u);
}

TEST_F(PolicyTest, BelowItsFloorAJobPreemptsWhateverThePriority) {
  start(1, {.kind = PolicyKind::kEsa, .decay = Decay::kNone});
  const JobIndex other = add_job(2);
  grad(other, 0, 0, 1, 255);
  const JobIndex guarded = add_job(2, {.floor = 1});
  expect_part(grad(guarded, 0, 0, 5, 1).emission[0], other, 0, 0b1_workers, {1});
  // But nobody that is entitled itself.
  const JobIndex third = add_job(2, {.floor = 1});
  expect_bypass(grad(third, 0, 0, 5, 255));
}

TEST_F(PolicyTest, EmptySlotsAreKeptForJobsBelowTheirFloors) {
  start(2);
  const JobIndex guarded = add_job(2, {.floor = 1});
  const JobIndex other = add_job(2);
  const std::vector<uint64_t> seqs = apart(other, 2, 2);
  ASSERT_EQ(seqs.size(), 2u);
  expect_held(grad(other, 0, seqs[0], 1));
  expect_bypass(grad(other, 0, seqs[1], 1));  // the other slot is empty, but spoken for
  EXPECT_EQ(counters().slots_used, 1u);
  uint64_t seq = 0;
  while (slot_of(guarded, seq, 2) != slot_of(other, seqs[1], 2)) ++seq;
  ASSERT_LT(seq, kWindow) << "the hash has changed: another window";
  expect_held(grad(guarded, 0, seq, 1, 1));
  EXPECT_EQ(aggregator_->job_counters(guarded).slots_held, 1u);
  // Removed, it takes its claim with it.
  aggregator_->remove_job(guarded);
  EXPECT_EQ(counters().slots_used, 1u);
  expect_part(grad(other, 1, seqs[1], 10).emission[0], other, seqs[1], 0b10_workers, {10});
  EXPECT_EQ(aggregator_->job_counters(other).slots_held_peak, 2u);
}

}  // namespace
}  // namespace ina::aggregator
