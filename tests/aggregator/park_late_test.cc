// Straggler help in the shard: who is late, and when help begins and rests.
#include "tests/aggregator/park_fixture.h"

namespace ina::aggregator {
namespace {

TEST_F(ParkTest, AWorkerIsLateOnceItWasWaitedForUntilItHasCaughtUp) {
  patience_ = 1000;
  start(16);
  const JobIndex job = add_parking_job(0);
  now_ = 500;
  expect_held(leave_behind(job));
  EXPECT_EQ(counters().parked, 0u) << "who waits for its turn is not late yet";
  now_ = 1500;
  EXPECT_EQ(grad(job, 1, kParkAfter, 22).emissions, 2);
  now_ = 1501;
  EXPECT_EQ(grad(job, 0, kParkAfter + 1, 31).emissions, 2) << "it is known to be late";
  EXPECT_EQ(counters().parked, 2u);
  grad(job, 2, 0, 100);
  grad(job, 2, 1, 100);
  EXPECT_EQ(grad(job, 2, 2, 100).fate, Fate::kAbsorbed) << "it has caught up";
  for (uint64_t seq = 3; seq < 6; ++seq)
    for (uint32_t rank = 0; rank < 2; ++rank) grad(job, rank, seq, 1);
  EXPECT_EQ(counters().parked, 2u) << "patience begins anew";
}

TEST_F(ParkTest, HelpThatDoesNotPayRestsAndIsTriedAgain) {
  patience_ = 1000;
  park_if_it_pays_ = true;
  window_ = 512;
  start(2048);
  const JobIndex job = add_parking_job(0);
  leave_behind(job);
  uint64_t seq = kParkAfter;
  // Rank 2 is behind for good, but as fast as the others.
  const auto go = [&](uint64_t fragments) {
    const uint64_t before = counters().parked;
    for (const uint64_t end = seq + fragments; seq < end; ++seq, now_ += patience_) {
      grad(job, 0, seq, 1);
      grad(job, 1, seq, 1);
      grad(job, 2, seq - kParkAfter, 1);
    }
    return counters().parked - before;
  };
  const Nanos horizon = JobSpec::kHorizonPatiences * patience_;
  EXPECT_GT(go(100), 0u) << "it is tried";
  const auto rest = static_cast<uint64_t>(JobSpec::kRestHorizons * horizon / patience_);
  EXPECT_EQ(go(rest - 200), 0u);
  EXPECT_GT(go(300), 0u) << "and once more";
  EXPECT_EQ(go(rest), 0u) << "with a longer rest";
}

TEST_F(ParkTest, HelpThatPaysGoesOn) {
  patience_ = 1000;
  park_if_it_pays_ = true;
  window_ = 512;
  start(2048);
  const JobIndex job = add_parking_job(0);
  // One after the other is slow for 100 patiences.
  std::array<uint64_t, 3> next{};
  for (int step = 0; step < 4000; ++step, now_ += patience_)
    for (uint32_t rank = 0; rank < 3; ++rank)
      if (static_cast<uint32_t>(step / 100) % 3 != rank || step % 4 == 0)
        grad(job, rank, next[rank]++, 1);
  EXPECT_GT(counters().parked, 1000u);
}

// Help that overruns links costs time-outs, which no rate shows. Over shm nothing gets lost.
TEST_F(ParkTest, QuestionsAboutCompleteFragmentsSpeakAgainstHelpWhereLinksLose) {
  std::array<uint64_t, 2> parked{};
  lossy_ = true;  // a switch with Ethernet ports
  for (const bool on_frames : {false, true}) {
    patience_ = 1000;
    park_if_it_pays_ = true;
    window_ = 512;
    given_.assign(JobSpec::seen_words(window_, 1), GivenResult{});
    start(2048);
    links_lose_ = false;
    const JobIndex job = add_parking_job(0);
    if (on_frames) aggregator_->set_links_lose(job);
    std::array<uint64_t, 3> next{};
    for (int step = 0; step < 4000; ++step, now_ += patience_) {
      for (uint32_t rank = 0; rank < 3; ++rank)
        if (static_cast<uint32_t>(step / 100) % 3 != rank || step % 4 == 0)
          grad(job, rank, next[rank]++, 1);
      if (const uint64_t complete = std::ranges::min(next); complete != 0)
        asked_for(job, complete - 1, 0, 0);
    }
    parked[on_frames ? 1 : 0] = counters().parked;
  }
  EXPECT_GT(parked[0], 1000u);
  EXPECT_LT(parked[1], parked[0] / 2);
}

TEST_F(ParkTest, TheFirstToBeLateIsFarBehind) {
  patience_ = 1000;
  park_begin_ = 4;
  window_ = 64;
  start(256);
  const JobIndex job = add_parking_job(0);
  leave_behind(job);
  now_ += 2 * patience_;
  EXPECT_EQ(grad(job, 1, 2, 1).emissions, 0) << "3 fragments";
  grad(job, 0, 3, 1);
  grad(job, 0, 4, 1);
  now_ += patience_;
  EXPECT_EQ(grad(job, 1, 3, 1).emissions, 2) << "5 fragments";
}

TEST_F(ParkTest, WhoHoldsNobodyUpIsNotLateHoweverLongItTakes) {
  pressure_ = 3;
  patience_ = 1000;
  start(16);
  const JobIndex job = add_parking_job(0);
  leave_behind(job);
  for (now_ = 0; now_ < 10'000; now_ += 500)
    expect_drop(grad(job, 0, 2, 21), DropReason::kDuplicate);
  expect_held(grad(job, 0, 3, 31));  // now it does
  now_ += 1000;
  EXPECT_EQ(grad(job, 1, 3, 32).emissions, 2);
}

TEST_F(ParkTest, WhoseWindowIsFullIsHeldUpHoweverSmallItIs) {
  pressure_ = kWindow;
  patience_ = 1000;
  start(16);
  const JobIndex job = add_parking_job(0);
  const auto send_full = [&](uint32_t rank, uint64_t seq) {
    return say({.job = job, .rank = rank, .seq = seq, .values = {1}, .flags = wire::kFlagFull});
  };
  expect_held(leave_behind(job));
  expect_held(send_full(1, 2));  // since now
  now_ += 500;
  expect_held(send_full(2, 3));                             // not a waiting one: others wait for it
  expect_drop(grad(job, 1, 2, 1), DropReason::kDuplicate);  // nor is that one full any more
  now_ += 500;
  expect_drop(send_full(1, 2), DropReason::kDuplicate);
  EXPECT_EQ(counters().parked, 0u) << "patience has begun anew";
  now_ += 1000;
  EXPECT_EQ(send_full(0, 3).emissions, 2);
  EXPECT_EQ(counters().parked, 1u);
}

TEST_F(ParkTest, WhenNobodySendsItIsParkedAllTheSame) {
  patience_ = 1000;
  start(16);
  const JobIndex job = add_parking_job(0);
  EXPECT_TRUE(aggregator_->parking());
  leave_behind(job);
  Verdict verdict;
  EXPECT_FALSE(aggregator_->park_overdue(job, 999, verdict));
  ASSERT_TRUE(aggregator_->park_overdue(job, 1000, verdict));
  ASSERT_EQ(verdict.emissions, 2);
  expect_part(verdict.emission[0], job, 0, 0b011_workers, {1 + 2});
  expect_parked(verdict.emission[1], To::kHolders, 0, 0b011_workers);
  EXPECT_FALSE(aggregator_->park_overdue(job, 1000, verdict)) << "fragment 1 is not behind yet";
  aggregator_->remove_job(job);
  EXPECT_FALSE(aggregator_->parking());
  EXPECT_FALSE(aggregator_->park_overdue(job, 1000, verdict));
}

TEST_F(ParkTest, NothingIsParkedWithoutAStraggler) {
  start(16);
  const JobIndex job = add_parking_job(2);
  for (uint64_t seq = 0; seq < 4 * kWindow; ++seq)
    for (uint32_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(grad(job, rank, seq, 1).fate, Fate::kAbsorbed);
  EXPECT_EQ(counters().parked, 0u);
  EXPECT_EQ(counters().results, 4 * kWindow);
}

}  // namespace
}  // namespace ina::aggregator
