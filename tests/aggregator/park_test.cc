// Straggler help in the shard: a fragment left behind leaves its slot, and late contributions
// follow it.
#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

constexpr uint32_t kParkAfter = 2;

class ParkTest : public PolicyTest {
 protected:
  /// A job of three whose fragments are parked once the second after them begins.
  JobIndex add_parking_job(uint32_t park_room, Home home = Home::kWorkers,
                           uint32_t park_missing = kMaxWorkers) {
    jobs_.emplace_back();
    JobSpec spec;
    spec.id = JobId{100u + next_};
    spec.epoch = kEpoch;
    spec.workers = 3;
    spec.window = window_;
    jobs_.back().hold(window_);
    spec.rules.home = home;
    spec.instance = kInstance;
    spec.park_after = kParkAfter;
    spec.park_pressure = pressure_;
    spec.park_patience = patience_;
    spec.park_window = kParkAfter;
    spec.park_begin = park_begin_;
    spec.park_if_it_pays = park_if_it_pays_;
    spec.parked_at = jobs_.back().parked_at.data();
    spec.park_room = park_room;
    spec.park_missing = park_missing;
    spec.park_home = park_home_;
    spec.results = reinterpret_cast<std::byte*>(jobs_.back().results.data());
    spec.seen = jobs_.back().seen.data();
    spec.links_lose = links_lose_;
    if (lossy_) spec.given = given_.data();
    aggregator_->add_job(next_, spec);
    return next_++;
  }

  /// Ranks 0 and 1 send fragments 0 and 1, and rank 0 then fragment 2; rank 2 is slow. Returns what
  /// becomes of the last.
  Verdict leave_behind(JobIndex job) {
    for (uint64_t seq = 0; seq < kParkAfter; ++seq)
      for (uint32_t rank = 0; rank < 2; ++rank)
        expect_held(grad(job, rank, seq, static_cast<int32_t>(10 * seq + rank + 1)));
    return grad(job, 0, kParkAfter, 21);
  }

  uint64_t parked_now(JobIndex job) const { return aggregator_->job_counters(job).parked_now; }

  static void expect_parked(const Emission& parked, To to, uint64_t seq, WorkerSet holders = {}) {
    EXPECT_EQ(parked.to, to);
    EXPECT_EQ(parked.message.type, Type::kParked);
    EXPECT_EQ(parked.message.seq, static_cast<uint32_t>(seq));
    EXPECT_EQ(parked.message.epoch, kEpoch);
    EXPECT_EQ(parked.message.bitmap, holders);
    EXPECT_EQ(parked.payload_bytes, 0u);
  }

  Verdict part_of_parker(JobIndex job, uint32_t rank, WorkerSet bits, const Values& values) {
    return say({.type = Type::kPart,
                .job = job,
                .rank = rank,
                .values = values,
                .origin = wire::Origin::kParker,
                .bitmap = bits});
  }
  /// The switch's only message is one PART, with the contributions of `bits`, for rank 0 to keep.
  static void expect_part_to_parker(const Verdict& verdict, WorkerSet bits) {
    ASSERT_EQ(verdict.emissions, 1);
    EXPECT_EQ(verdict.emission[0].to, To::kWorker);
    EXPECT_EQ(verdict.emission[0].worker, Rank{0});
    EXPECT_EQ(verdict.emission[0].message.type, Type::kPart);
    EXPECT_EQ(verdict.emission[0].message.origin, wire::Origin::kParker);
    EXPECT_EQ(verdict.emission[0].message.bitmap, bits);
  }
  Verdict result_of_parker(JobIndex job, uint32_t rank, const Values& values) {
    return say({.type = Type::kResult,
                .job = job,
                .rank = rank,
                .values = values,
                .origin = wire::Origin::kParker});
  }
  void start_lossy() {
    lossy_ = true;
    given_.assign(JobSpec::seen_words(window_, 1), GivenResult{});
    start(16);
  }
  /// Where a question, which the switch may answer, goes.
  To asked_for(JobIndex job, uint64_t seq, uint32_t rank = 2, uint16_t flags = wire::kFlagQuick) {
    return say({.type = Type::kQuery, .job = job, .rank = rank, .seq = seq, .flags = flags})
        .emission[0]
        .to;
  }

  uint32_t window_ = kWindow;
  uint32_t park_begin_ = 0;
  bool park_if_it_pays_ = false;
  uint32_t pressure_ = 0;
  Nanos patience_ = 0;
  bool park_home_ = false;
  bool links_lose_ = true;
  bool lossy_ = false;  ///< the switch answers questions
  std::vector<GivenResult> given_;
};

TEST_F(ParkTest, WhatIsLeftBehindGoesToTheFallbackAndItsWorkersAreTold) {
  start(16);
  const JobIndex job = add_parking_job(0);
  const Verdict verdict = leave_behind(job);
  EXPECT_EQ(verdict.fate, Fate::kAbsorbed);
  ASSERT_EQ(verdict.emissions, 2);
  expect_part(verdict.emission[0], job, 0, 0b011_workers, {1 + 2});
  expect_parked(verdict.emission[1], To::kHolders, 0, 0b011_workers);
  EXPECT_EQ(counters().parked, 1u);
  EXPECT_EQ(counters().slots_used, 2u);
}

TEST_F(ParkTest, WhatComesLaterFollows) {
  start(16);
  const JobIndex job = add_parking_job(0);
  leave_behind(job);
  const Verdict late = grad(job, 2, 0, 100);
  EXPECT_EQ(late.fate, Fate::kForwarded);
  ASSERT_EQ(late.emissions, 1) << "the last one waits for the result";
  EXPECT_EQ(late.emission[0].to, To::kFallback);
  EXPECT_EQ(late.emission[0].message.flags, wire::kFlagRaw | wire::kFlagParked);
  EXPECT_EQ(late.emission[0].message.bitmap, 0b100_workers);
  expect_drop(grad(job, 2, 0, 100), DropReason::kDuplicate);
}

TEST_F(ParkTest, WhoComesLaterIsToldAndWaitsForWhoIsNear) {
  start(16);
  const JobIndex job = add_parking_job(0);
  for (uint64_t seq = 0; seq <= kParkAfter; ++seq) grad(job, 0, seq, 1);
  const Verdict late = grad(job, 1, 0, 2);
  EXPECT_EQ(late.fate, Fate::kAbsorbed);
  ASSERT_EQ(late.emissions, 1);
  expect_parked(late.emission[0], To::kSender, 0);
  const Verdict last = grad(job, 2, 0, 40);
  ASSERT_EQ(last.emissions, 1) << "the last one waits for the result";
  expect_part(last.emission[0], job, 0, 0b110_workers, {42});
  EXPECT_EQ(last.emission[0].message.flags, wire::kFlagParked);
}

TEST_F(ParkTest, OnlyWhoIsNearIsWaitedFor) {
  window_ = 2 * kNearFragments;
  start(2 * kNearFragments);
  const JobIndex job = add_parking_job(0);
  for (uint64_t seq = 0; seq <= kNearFragments + kParkAfter; ++seq) grad(job, 0, seq, 1);
  EXPECT_EQ(counters().parked, kNearFragments + 1);
  // Rank 2 is at fragment 0.
  const Verdict near = grad(job, 1, kNearFragments - 1, 2);
  EXPECT_EQ(near.fate, Fate::kAbsorbed);
  const Verdict far = grad(job, 1, kNearFragments, 2);
  EXPECT_EQ(far.fate, Fate::kForwarded);
  ASSERT_EQ(far.emissions, 2);
  EXPECT_EQ(far.emission[0].to, To::kFallback);
  EXPECT_EQ(far.emission[0].message.bitmap, 0b010_workers);
}

TEST_F(ParkTest, WhatComesLateTogetherGoesToWhoKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  for (uint64_t seq = 0; seq <= kParkAfter; ++seq) grad(job, 0, seq, 1);
  grad(job, 1, 0, 2);
  const Verdict last = grad(job, 2, 0, 40);
  expect_part_to_parker(last, 0b110_workers);
}

TEST_F(ParkTest, WhoHasMadeAResultIsNotToldOfIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  grad(job, 2, 0, 100);
  const Verdict verdict = say({.type = Type::kResult,
                               .job = job,
                               .rank = 0,
                               .values = {103},
                               .flags = wire::kFlagKept,
                               .origin = wire::Origin::kParker});
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_EQ(verdict.emission[0].to, To::kHolders);
  EXPECT_EQ(verdict.emission[0].message.bitmap, 0b110_workers);
  EXPECT_EQ(verdict.emission[0].message.flags, 0u);
}

/// On a slow link the fallback's polls, and answers to them, would take the place of results.
TEST_F(ParkTest, WhoAsksForWhatIsKeptIsToldToWait) {
  for (const uint32_t park_room : {0u, 4u}) {
    SCOPED_TRACE(park_room);
    start_lossy();
    const JobIndex job = add_parking_job(park_room);
    const auto ask = [&](uint32_t rank, uint16_t flags = wire::kFlagQuick) {
      return say({.type = Type::kQuery, .job = job, .rank = rank, .flags = flags});
    };
    leave_behind(job);
    Verdict verdict = ask(0);
    ASSERT_EQ(verdict.emissions, 1);
    expect_parked(verdict.emission[0], To::kSender, 0);
    verdict = ask(2);
    ASSERT_EQ(verdict.emissions, 1) << "its own contribution was lost";
    EXPECT_EQ(verdict.emission[0].to, To::kHolders);
    EXPECT_EQ(verdict.emission[0].message.type, Type::kPoll);
    EXPECT_EQ(verdict.emission[0].message.phase, wire::Phase::kLost);
    EXPECT_EQ(verdict.emission[0].message.bitmap, 0b100_workers);
    grad(job, 2, 0, 100);
    verdict = ask(2);
    ASSERT_EQ(verdict.emissions, 1);
    expect_parked(verdict.emission[0], To::kSender, 0);
    verdict = ask(2, 0);
    ASSERT_EQ(verdict.emissions, 1) << "it may have been lost on its way there";
    EXPECT_EQ(verdict.emission[0].to, To::kFallback);
  }
}

/// The fallback would poll all workers, and hear from the slow one that it has not got that far.
TEST_F(ParkTest, TheFallbackIsNotAskedWhileTheSlowOneComes) {
  for (const uint32_t park_room : {0u, 4u}) {
    SCOPED_TRACE(park_room);
    window_ = 16;
    start_lossy();
    const JobIndex job = add_parking_job(park_room);
    leave_behind(job);
    EXPECT_EQ(asked_for(job, 0, 0, 0), To::kFallback) << "it has sent nothing";
    grad(job, 1, kParkAfter, 21);
    grad(job, 0, kParkAfter + 1, 31);
    grad(job, 2, 0, 100);
    EXPECT_EQ(asked_for(job, 1, 0, 0), To::kSender);
    EXPECT_EQ(asked_for(job, 0, 0, 0), To::kFallback) << "all have sent that";
    now_ += 1;
    EXPECT_EQ(asked_for(job, 1, 0, 0), To::kFallback) << "it may have stopped";
  }
}

/// Results of a keeper come in order: what it has kept for longer was lost. So the fallback is to
/// find out.
TEST_F(ParkTest, WhatAKeeperShouldHaveGivenOutIsAskedForAtTheFallback) {
  window_ = 16;
  start_lossy();
  const JobIndex job = add_parking_job(4);
  std::vector<Rank> keepers;
  for (uint64_t seq = 0; seq < 4 + kParkAfter; ++seq) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const Verdict verdict = grad(job, rank, seq, 1);
      if (verdict.emissions != 0) keepers.push_back(verdict.emission[0].worker);
    }
  }
  ASSERT_EQ(keepers.size(), 4u);
  ASSERT_EQ(keepers[1], keepers[3]) << "the least loaded one in turn";
  ASSERT_NE(keepers[2], keepers[3]);
  for (uint64_t seq = 0; seq < 4; ++seq) grad(job, 2, seq, 1);
  EXPECT_EQ(asked_for(job, 1), To::kSender);
  say({.type = Type::kResult,
       .job = job,
       .rank = value(keepers[3]),
       .seq = 3,
       .values = {3},
       .origin = wire::Origin::kParker});
  EXPECT_EQ(asked_for(job, 1), To::kFallback);
  EXPECT_EQ(asked_for(job, 2), To::kSender) << "another one keeps it";
}

TEST_F(ParkTest, WhatAHomeShouldHaveDecidedIsAskedForThere) {
  window_ = 16;
  start_lossy();
  const JobIndex job = add_parking_job(0);
  for (uint64_t seq = 0; seq < 4 + kParkAfter; ++seq)
    for (uint32_t rank = 0; rank < 2; ++rank) grad(job, rank, seq, 1);
  for (uint64_t seq = 0; seq < 4; ++seq) grad(job, 2, seq, 1);
  EXPECT_EQ(asked_for(job, 0), To::kSender);
  say({.type = Type::kResult,
       .job = job,
       .rank = value(home_of(Seq{3}, 3)),
       .seq = 3,
       .values = {3},
       .origin = wire::Origin::kFallback,
       .bitmap = 0b111_workers});
  EXPECT_EQ(asked_for(job, 0), To::kFallback) << "its home is that of fragment 3";
  EXPECT_EQ(asked_for(job, 1), To::kSender);
}

TEST_F(ParkTest, AKeptResultThatWasGivenOutIsGivenAgain) {
  start_lossy();
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  grad(job, 2, 0, 100);
  result_of_parker(job, 0, {103});
  const Verdict verdict =
      say({.type = Type::kQuery, .job = job, .rank = 1, .flags = wire::kFlagQuick});
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_EQ(verdict.emission[0].to, To::kSender);
  EXPECT_EQ(verdict.emission[0].message.type, Type::kResult);
  EXPECT_EQ(values_of(verdict.emission[0]), Values{103});
}

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

TEST_F(ParkTest, WhatIsParkedIsCounted) {
  start(16);
  const JobIndex job = add_parking_job(1, Home::kDedicated);
  for (uint64_t seq = 0; seq < 2; ++seq) grad(job, 0, seq, 1);
  grad(job, 0, 2, 1);  // kept by rank 0
  grad(job, 0, 3, 1);  // by the fallback: it has no more room
  EXPECT_EQ(parked_now(job), 2u);
  result_of_parker(job, 0, {1000});
  EXPECT_EQ(parked_now(job), 1u);
  say({.type = Type::kResult,
       .job = job,
       .rank = value(kFallbackRank),
       .seq = 1,
       .values = {1000},
       .origin = wire::Origin::kFallback});
  EXPECT_EQ(parked_now(job), 0u);
  EXPECT_EQ(aggregator_->job_counters(job).parked_now_peak, 2u);
  EXPECT_EQ(aggregator_->job_counters(job).parker_results, 1u);
}

TEST_F(ParkTest, OnlyWhoCanKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  aggregator_->set_parker(job, Rank{0}, false);
  EXPECT_EQ(leave_behind(job).emission[0].worker, Rank{1});
  aggregator_->set_parker(job, Rank{1}, false);
  EXPECT_EQ(grad(job, 0, kParkAfter + 1, 31).emission[0].to, To::kFallback);
}

TEST_F(ParkTest, WhatTooManyAreMissingOfGoesToTheFallback) {
  start(16);
  const JobIndex job = add_parking_job(2, Home::kWorkers, 1);
  grad(job, 0, 0, 1);
  grad(job, 0, 1, 1);
  grad(job, 1, 1, 1);
  const Verdict two = grad(job, 0, 2, 1);  // of fragment 0 ranks 1 and 2 are missing
  ASSERT_EQ(two.emissions, 2);
  expect_part(two.emission[0], job, 0, 0b001_workers, {1});
  const Verdict one = grad(job, 0, 3, 1);
  ASSERT_EQ(one.emissions, 2);
  EXPECT_EQ(one.emission[0].to, To::kWorker);
  EXPECT_EQ(one.emission[0].message.type, Type::kPark);
}

TEST_F(ParkTest, WhoIsWaitedForAloneDoesNotKeepIt) {
  park_home_ = true;
  start(16);
  const JobIndex job = add_parking_job(4);
  // Rank 1 is slow, and home to fragment 1.
  for (uint64_t seq = 0; seq < kParkAfter; ++seq)
    for (const uint32_t rank : {0, 2}) expect_held(grad(job, rank, seq, 1));
  const Verdict others = grad(job, 0, 2, 1);
  ASSERT_EQ(others.emissions, 2);
  expect_part(others.emission[0], job, 0, 0b101_workers, {2});
  const Verdict own = grad(job, 0, 3, 1);
  ASSERT_EQ(own.emissions, 2);
  EXPECT_EQ(own.emission[0].message.seq, 1u);
  EXPECT_EQ(own.emission[0].to, To::kWorker);
  EXPECT_EQ(own.emission[0].message.type, Type::kPark);
  EXPECT_EQ(grad(job, 1, 0, 100).emission[0].to, To::kFallback);
  EXPECT_EQ(grad(job, 1, 1, 100).emission[0].to, To::kWorker) << "it follows";
}

TEST_F(ParkTest, WhatMoreAreMissingOfTheirHomeKeeps) {
  park_home_ = true;
  start(16);
  const JobIndex job = add_parking_job(4);
  for (uint64_t seq = 0; seq <= kParkAfter; ++seq) grad(job, 0, seq, 1);
  const Verdict verdict = grad(job, 0, kParkAfter + 1, 1);  // fragment 1: of ranks 1 and 2
  ASSERT_EQ(verdict.emissions, 2);
  EXPECT_EQ(verdict.emission[0].message.seq, 1u);
  EXPECT_EQ(verdict.emission[0].to, To::kFallback);
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

TEST_F(ParkTest, WhoseSlotWasTakenIsNotParked) {
  start(1, scheduler::PolicyOptions{.kind = PolicyKind::kEsa});
  const JobIndex job = add_parking_job(0);
  grad(job, 0, 0, 1, 10);
  grad(job, 0, 1, 1, 20);  // takes the only slot
  grad(job, 0, 2, 1, 30);
  EXPECT_EQ(counters().preemptions, 2u);
  EXPECT_EQ(counters().parked, 0u);
  Verdict verdict;
  grad(job, 0, 3, 1, 5);  // finds no slot
  ASSERT_TRUE(aggregator_->park_overdue(job, 0, verdict));
  ASSERT_EQ(verdict.emissions, 1) << "the fallback has it; it takes no place in the switch";
  expect_parked(verdict.emission[0], To::kHolders, 0, 0b001_workers);
  EXPECT_EQ(counters().parked, 0u);
}

TEST_F(ParkTest, TheLeastLoadedLeaderKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  const Verdict first = leave_behind(job);
  ASSERT_EQ(first.emissions, 2);
  EXPECT_EQ(first.emission[0].to, To::kWorker);
  EXPECT_EQ(first.emission[0].worker, Rank{0});
  EXPECT_EQ(first.emission[0].message.type, Type::kPark);
  EXPECT_EQ(first.emission[0].message.bitmap, 0b011_workers);
  EXPECT_EQ(values_of(first.emission[0]), Values({1 + 2}));
  const Verdict second = grad(job, 0, kParkAfter + 1, 31);
  ASSERT_EQ(second.emissions, 2);
  EXPECT_EQ(second.emission[0].worker, Rank{1});
}

TEST_F(ParkTest, WhoHasNoRoomIsSpared) {
  start(16);
  const JobIndex job = add_parking_job(1, Home::kDedicated);
  grad(job, 0, 0, 1);
  grad(job, 0, 1, 11);
  EXPECT_EQ(grad(job, 0, 2, 21).emission[0].to, To::kWorker);
  EXPECT_EQ(grad(job, 0, 3, 31).emission[0].to, To::kFallback) << "nobody else has contributed";
  result_of_parker(job, 0, {1000});
  EXPECT_EQ(grad(job, 0, 4, 41).emission[0].to, To::kWorker) << "has given out what it kept";
}

TEST_F(ParkTest, WhatComesLaterGoesToWhoKeepsIt) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  const Verdict late = grad(job, 2, 0, 100);
  expect_part_to_parker(late, 0b100_workers);
}

TEST_F(ParkTest, ItsResultIsGivenToAllOnce) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  grad(job, 2, 0, 100);
  const Verdict verdict = result_of_parker(job, 0, {103});
  EXPECT_EQ(verdict.fate, Fate::kForwarded);
  ASSERT_EQ(verdict.emissions, 1);
  expect_result(verdict.emission[0], 0, {103}, wire::Origin::kParker);
  EXPECT_EQ(counters().parker_results, 1u);
  expect_drop(result_of_parker(job, 0, {103}), DropReason::kNotHome);
}

TEST_F(ParkTest, NobodyElseMayGiveItOut) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  expect_drop(result_of_parker(job, 1, {103}), DropReason::kNotHome);
  expect_drop(part_of_parker(job, 1, 0b011_workers, {3}), DropReason::kNotHome);
  expect_drop(say({.type = Type::kResult,
                   .job = job,
                   .rank = 0,
                   .values = {103},
                   .epoch = kEpoch - 1,
                   .origin = wire::Origin::kParker}),
              DropReason::kStaleEpoch);
}

TEST_F(ParkTest, WhatItPassesOnGoesToTheFallbackAndSoDoesAllElse) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  const Verdict verdict = part_of_parker(job, 0, 0b011_workers, {3});
  EXPECT_EQ(verdict.fate, Fate::kForwarded);
  ASSERT_EQ(verdict.emissions, 1);
  expect_part(verdict.emission[0], job, 0, 0b011_workers, {3});
  EXPECT_EQ(verdict.emission[0].message.origin, wire::Origin::kNone);
  EXPECT_EQ(grad(job, 2, 0, 100).emission[0].to, To::kFallback);
  expect_drop(part_of_parker(job, 0, 0b011_workers, {3}), DropReason::kNotHome);
  expect_drop(result_of_parker(job, 0, {103}), DropReason::kNotHome);
}

TEST_F(ParkTest, WhatHasPartlyLeftIsNotKeptByAWorker) {
  start(16);
  const JobIndex job = add_parking_job(4);
  grad(job, 0, 0, 1);
  say({.type = Type::kRemind, .job = job, .rank = 0});  // rank 0 is its home
  grad(job, 1, 0, 2);
  grad(job, 0, 1, 11);
  const Verdict verdict = grad(job, 0, 2, 21);
  ASSERT_EQ(verdict.emissions, 2);
  expect_part(verdict.emission[0], job, 0, 0b010_workers, {2});
}

TEST_F(ParkTest, ANewEpochForgetsWhoKeepsWhat) {
  start(16);
  const JobIndex job = add_parking_job(4);
  leave_behind(job);
  aggregator_->new_epoch(job, kEpoch + 1, kInstance + 1, nullptr);
  expect_drop(say({.type = Type::kResult,
                   .job = job,
                   .rank = 0,
                   .values = {103},
                   .epoch = kEpoch + 1,
                   .origin = wire::Origin::kParker}),
              DropReason::kNotHome);
}

}  // namespace
}  // namespace ina::aggregator
