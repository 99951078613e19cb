// The windows and the round trips by themselves. Their use by the engine: engine_test.cc.
#include "fragments/windows.h"

#include <gtest/gtest.h>

namespace ina::client {
namespace {

constexpr Nanos kUs = 1'000;

RoundTrip round_trips(Nanos shortest, Nanos usual) {
  RoundTrip rtt;
  rtt.sample(shortest, 0);
  for (int i = 0; i < 100; ++i) rtt.sample(usual, 0);
  return rtt;
}

/// A result without a mark, each a round trip after the one before.
void unmarked(Windows& windows, uint32_t in_flight) {
  windows.unmarked(Seq{1'000'000}, Seq{}, in_flight);
}

TEST(RoundTrip, FollowsWhatIsMeasured) {
  RoundTrip rtt;
  EXPECT_FALSE(rtt.known());
  rtt.sample(100 * kUs, 5);
  EXPECT_EQ(rtt.smoothed(), 100 * kUs);
  EXPECT_EQ(rtt.late(), 300 * kUs);  // RFC 6298: R + 4 * R / 2
  EXPECT_EQ(rtt.sampled_at(), 5);
  for (int i = 0; i < 100; ++i) rtt.sample(400 * kUs, 6);
  EXPECT_NEAR(rtt.smoothed(), 400 * kUs, 2 * kUs);
  EXPECT_EQ(rtt.late(), 600 * kUs) << "the same for all: half as long again is late";
  EXPECT_EQ(rtt.shortest(), 100 * kUs);
  EXPECT_TRUE(rtt.in_queues());
  rtt.forget();
  EXPECT_FALSE(rtt.known());
  EXPECT_EQ(rtt.late(), 0);
  EXPECT_EQ(rtt.shortest(), 100 * kUs);
}

TEST(RoundTrip, OthersLossesAreNoQueue) {
  RoundTrip rtt;
  // Every fourth fragment waits for a lost packet.
  for (int i = 0; i < 200; ++i) rtt.sample(i % 4 == 0 ? 5'000 * kUs : 100 * kUs, i);
  EXPECT_GT(rtt.smoothed(), 500 * kUs);
  EXPECT_EQ(rtt.standing(), 100 * kUs);
  EXPECT_FALSE(rtt.in_queues());
  for (int i = 0; i < 32; ++i) rtt.sample(i % 4 == 0 ? 5'000 * kUs : 300 * kUs, i);
  EXPECT_TRUE(rtt.in_queues());
}

TEST(Windows, BeginWithEverythingWhereNothingIsLost) {
  EXPECT_EQ(Windows({.most = 500}).fragments(), 500u);
  EXPECT_EQ(Windows({.most = 500, .first = 32, .paced = true}).fragments(), 32u);
  EXPECT_EQ(Windows({.most = 5, .first = 32, .paced = true}).fragments(), 5u);
}

TEST(Windows, MarksHalveOnceAWindow) {
  Windows windows({.most = 100});
  windows.marked(Seq{10}, Seq{100});
  EXPECT_EQ(windows.fragments(), 50u);
  windows.marked(Seq{99}, Seq{120});  // sent before the window became smaller
  EXPECT_EQ(windows.fragments(), 50u);
  windows.marked(Seq{100}, Seq{130});
  EXPECT_EQ(windows.fragments(), 25u);
  for (uint64_t seq = 130; seq < 1000; seq += 10) windows.marked(Seq{seq}, Seq{seq + 10});
  EXPECT_EQ(windows.fragments(), 4u);
}

TEST(Windows, GrowByOneARoundTripAfterAMark) {
  Windows windows({.most = 100});
  windows.marked(Seq{10}, Seq{100});
  for (int i = 0; i < 50; ++i) unmarked(windows, windows.fragments());
  EXPECT_NEAR(windows.fragments(), 51, 1);
  for (int i = 0; i < 10'000; ++i) unmarked(windows, windows.fragments());
  EXPECT_EQ(windows.fragments(), 100u);
}

TEST(Windows, GrowHoweverLargeTheyAre) {
  Windows windows({.most = 8000, .aggregators = true});
  windows.marked(Seq{10}, Seq{8000});
  windows.split(Seq{10}, Seq{8000}, 100, {});
  EXPECT_EQ(windows.fragments(), 4000u);
  for (int i = 0; i < 40'000; ++i) {
    unmarked(windows, windows.fragments());
    windows.whole(Seq{9000}, 8000, {});
  }
  EXPECT_NEAR(windows.fragments(), 4010, 2);
  for (int i = 0; i < 100'000'000; ++i) {
    unmarked(windows, windows.fragments());
    windows.whole(Seq{9000}, 8000, {});
  }
  EXPECT_EQ(windows.fragments(), 8000u);
}

TEST(Windows, GrowOnlyIfTheyAreUsed) {
  // Sixteen wait in the queue of this worker's own link: what the network holds is not known.
  Windows windows({.most = 1000, .first = 16});
  for (int i = 0; i < 1000; ++i) unmarked(windows, 17);
  EXPECT_EQ(windows.fragments(), 22u) << "of 22, 17 are too few";
  windows.marked(Seq{50}, Seq{68});
  EXPECT_EQ(windows.fragments(), 11u);
  for (int i = 0; i < 1000; ++i) unmarked(windows, 8);
  EXPECT_EQ(windows.fragments(), 11u);
}

TEST(Windows, WhatWaitsOnlyForItsTimeUsesThem) {
  for (const bool waits : {false, true}) {
    Windows windows({.most = 1000, .first = 16, .paced = true});
    if (waits) windows.all_used();
    windows.unmarked(Seq{0}, Seq{16}, 4);
    EXPECT_EQ(windows.fragments(), waits ? 17u : 16u);
    windows.unmarked(Seq{16}, Seq{32}, 4);
    EXPECT_EQ(windows.fragments(), waits ? 17u : 16u) << "in the next round trip nothing waits";
  }
}

TEST(Windows, DoubleInSlowStart) {
  Windows windows({.most = 1000, .first = 32, .paced = true});
  for (int i = 0; i < 32; ++i) unmarked(windows, windows.fragments());
  EXPECT_EQ(windows.fragments(), 64u);
  windows.lost(Seq{50}, Seq{96}, round_trips(100 * kUs, 100 * kUs));
  EXPECT_EQ(windows.fragments(), 32u);
  for (int i = 0; i < 32; ++i) unmarked(windows, windows.fragments());
  EXPECT_NEAR(windows.fragments(), 33, 1);
}

TEST(Windows, GrowByAnEighthWhereTheyWereToldToGoSlower) {
  Windows windows({.most = 1000, .first = 32});
  windows.go_slower();
  for (int i = 0; i < 32; ++i) unmarked(windows, windows.fragments());
  EXPECT_EQ(windows.fragments(), 36u);
  windows.marked(Seq{50}, Seq{68});
  windows.go_slower();
  for (int i = 0; i < 18; ++i) unmarked(windows, windows.fragments());
  EXPECT_NEAR(windows.fragments(), 19, 1);
}

TEST(Windows, LossesCountForLessWhereNoQueueIs) {
  Windows near({.most = 1000, .first = 32, .paced = true}),
      queued({.most = 1000, .first = 32, .paced = true});
  for (uint64_t seq = 0; seq < 2000; seq += 100) {
    near.lost(Seq{seq}, Seq{seq + 100}, round_trips(100 * kUs, 150 * kUs));
    queued.lost(Seq{seq}, Seq{seq + 100}, round_trips(100 * kUs, 300 * kUs));
  }
  EXPECT_EQ(near.fragments(), 32u);
  EXPECT_EQ(queued.fragments(), 4u);
}

TEST(Windows, FewLossesCountForLessInQueuesToo) {
  Windows few({.most = 1000, .first = 32}), many({.most = 1000, .first = 32});
  const RoundTrip queued = round_trips(100 * kUs, 300 * kUs);
  const auto lose = [&](Windows& windows, uint64_t every, uint64_t begin, uint64_t end) {
    for (uint64_t seq = begin; seq < end; ++seq) {
      if (seq % every == 0) windows.lost(Seq{seq}, Seq{seq + 4}, queued);
      windows.delivered(static_cast<Nanos>(seq) * kUs, false, queued);
    }
  };
  lose(few, 100, 0, 10'000);
  lose(many, 10, 0, 10'000);
  EXPECT_EQ(few.fragments(), 32u);
  EXPECT_EQ(many.fragments(), 4u);
  // A path that loses little again.
  lose(many, 100, 10'000, 20'000);
  EXPECT_EQ(many.fragments(), 32u);
}

TEST(Windows, ThatForAggregatorsCountsOnlyIfAsked) {
  Windows off({.most = 100}), on({.most = 100, .aggregators = true});
  for (Windows* windows : {&off, &on}) windows->split(Seq{1}, Seq{100}, 100, {});
  EXPECT_EQ(off.fragments(), 100u);
  EXPECT_EQ(on.fragments(), 75u);
  on.split(Seq{99}, Seq{150}, 100, {});
  EXPECT_EQ(on.fragments(), 75u);
  for (uint64_t seq = 100; seq < 10'000; seq += 100) on.split(Seq{seq}, Seq{seq + 100}, 100, {});
  EXPECT_EQ(on.fragments(), 8u);
  for (int i = 0; i < 10'000; ++i) on.whole(Seq{20'000}, 100, {});
  EXPECT_EQ(on.fragments(), 100u);
}

TEST(Windows, ThatForAggregatorsMayBeginSmall) {
  Windows windows({.most = 100, .aggregators = true, .first_aggregators = 16});
  EXPECT_EQ(windows.fragments(), 16u);
  EXPECT_EQ(Windows({.most = 5, .aggregators = true, .first_aggregators = 16}).fragments(), 5u);
  for (int i = 0; i < 16; ++i) windows.whole(Seq{1}, windows.fragments(), {});
  EXPECT_EQ(windows.fragments(), 32u);
  windows.split(Seq{10}, Seq{40}, 100, {});
  EXPECT_EQ(windows.fragments(), 24u);
  for (int i = 0; i < 24; ++i) windows.whole(Seq{50}, windows.fragments(), {});
  EXPECT_NEAR(windows.fragments(), 25, 1);
}

TEST(Windows, ThatForAggregatorsGrowsAfterASplitOnlyIfItIsUsed) {
  Windows windows({.most = 100, .aggregators = true, .first_aggregators = 20});
  for (int i = 0; i < 5; ++i) windows.whole(Seq{1}, 1, {});
  EXPECT_EQ(windows.fragments(), 25u) << "nothing was split so far";
  windows.split(Seq{10}, Seq{40}, 100, {});
  EXPECT_EQ(windows.fragments(), 18u);  // 18.75, of which 15 are four fifths
  for (int i = 0; i < 1000; ++i) windows.whole(Seq{50}, 14, {});
  EXPECT_EQ(windows.fragments(), 18u);
  for (int i = 0; i < 1000; ++i) windows.whole(Seq{50}, 16, {});
  EXPECT_EQ(windows.fragments(), 20u) << "and no more, because 16 are too few then";
}

/// Windows whose fragments have met others in the array. The cap limits them.
Windows contended() {
  Windows windows({.most = 10'000, .aggregators = true, .capped = true});
  windows.split(Seq{1}, Seq{100}, 100, {});
  return windows;
}

/// `count` results, one each `apart`.
Nanos deliver(Windows& windows, int count, Nanos apart, Nanos now, const RoundTrip& rtt) {
  for (int i = 0; i < count; ++i) windows.delivered(now += apart, false, rtt);
  return now;
}

TEST(Windows, NoMoreIsUnderWayThanAFewRoundTripsDeliver) {
  const RoundTrip rtt = round_trips(100 * kUs, 400 * kUs);
  Windows windows = contended();
  deliver(windows, 201, 2 * kUs, 0, rtt);
  EXPECT_NEAR(windows.fragments(), 4 * 50, 2);  // 50 results come in the shortest round trip
}

TEST(Windows, TheCapHoldsFromASplitUntilAWindowIsWhole) {
  const RoundTrip rtt = round_trips(100 * kUs, 400 * kUs);
  Windows windows({.most = 1000, .aggregators = true, .capped = true});
  deliver(windows, 201, 2 * kUs, 0, rtt);
  EXPECT_EQ(windows.fragments(), 1000u);
  windows.split(Seq{1}, Seq{100}, 100, {});
  EXPECT_NEAR(windows.fragments(), 200, 2);
  windows.whole(Seq{99}, windows.fragments(), {});  // sent before the split was known
  EXPECT_NEAR(windows.fragments(), 200, 2);
  windows.whole(Seq{100}, windows.fragments(), {});
  EXPECT_NEAR(windows.fragments(), 750, 2);
}

TEST(Windows, AnArrayThatSplitsIsRememberedForFourOfTheLargestWindows) {
  Windows windows({.most = 1000, .aggregators = true});
  EXPECT_FALSE(windows.split_lately(Seq{1}));
  windows.split(Seq{1}, Seq{100}, 100, {});
  windows.whole(Seq{100}, windows.fragments(), {});
  EXPECT_TRUE(windows.split_lately(Seq{4000}));
  EXPECT_FALSE(windows.split_lately(Seq{4001}));
}

TEST(Windows, TheCapIsNeverBelowSixteen) {
  Windows windows = contended();
  deliver(windows, 10, 1000 * kUs, 0, round_trips(100 * kUs, 400 * kUs));
  EXPECT_EQ(windows.fragments(), 16u);
}

TEST(Windows, TheCapFollowsTheBestOfTheLastIntervals) {
  const RoundTrip rtt = round_trips(100 * kUs, 400 * kUs);
  Windows windows = contended();
  Nanos now = deliver(windows, 201, 2 * kUs, 0, rtt);
  now = deliver(windows, 20, 50 * kUs, now, rtt);  // others' turn
  EXPECT_NEAR(windows.fragments(), 200, 2);
  now = deliver(windows, 100, 50 * kUs, now, rtt);
  EXPECT_EQ(windows.fragments(), 16u);
  deliver(windows, 400, kUs, now, rtt);
  EXPECT_NEAR(windows.fragments(), 400, 4);
}

TEST(Windows, IdleTimeIsNoRate) {
  const RoundTrip rtt = round_trips(100 * kUs, 400 * kUs);
  Windows windows = contended();
  Nanos now = 0;
  for (int operations = 0; operations < 100; ++operations) {  // of five fragments, seldom
    now += 10'000 * kUs;
    now = deliver(windows, 4, 2 * kUs, now, rtt);
    windows.delivered(now += 2 * kUs, true, rtt);
  }
  EXPECT_GT(windows.fragments(), 1000u);
}

TEST(RoundTrip, TheDistanceIsKnownFromWorkersInStep) {
  RoundTrip rtt;
  for (int i = 0; i < 40; ++i) rtt.sample(3 * kUs, i, false);
  EXPECT_FALSE(rtt.at_distance()) << "who comes last of all knows no distance";
  for (int i = 0; i < 40; ++i) rtt.sample(50 * kUs, 40 + i, true);
  EXPECT_TRUE(rtt.at_distance());
  for (int i = 0; i < 40; ++i) rtt.sample(60 * kUs, 80 + i, true);
  EXPECT_TRUE(rtt.at_distance());
  for (int i = 0; i < 40; ++i) rtt.sample(70 * kUs, 120 + i, true);
  EXPECT_FALSE(rtt.at_distance()) << "something waits in a queue";
}

/// A worker whose results come `round_trip` after its contributions, and of which each window has
/// a fragment that was split.
uint32_t window_after_splits(bool distances, Nanos round_trip, Nanos each, uint32_t first = 16) {
  Windows windows(
      {.most = 1000, .aggregators = true, .first_aggregators = first, .distances = distances});
  RoundTrip rtt;
  Nanos now = 0;
  uint64_t seq = 0;
  for (int window = 0; window < 100; ++window) {
    const uint32_t count = windows.fragments();
    const Nanos took = std::max(round_trip, count * each);
    for (uint32_t i = 0; i < count; ++i, ++seq) {
      now += took / count;
      rtt.sample(took, now);
      if (i == count / 2)
        windows.split(Seq{seq}, Seq{seq + count}, count, rtt);
      else
        windows.whole(Seq{seq}, count, rtt);
    }
  }
  return windows.fragments();
}

TEST(Windows, ASplitIsNoReasonWhereOnlyDistanceTakesTime) {
  // Links are full with 75 fragments under way.
  EXPECT_LE(window_after_splits(false, 50 * kUs, 667), 10u);
  EXPECT_GE(window_after_splits(true, 50 * kUs, 667), 50u);
  EXPECT_LE(window_after_splits(true, 50 * kUs, 667), 120u);
}

TEST(Windows, ASplitIsAReasonWhereLinksAreFull) {
  EXPECT_LE(window_after_splits(true, 3 * kUs, 667, 4), 10u);
  // The first window is longer than the distance, which no round trip shows then.
  EXPECT_LE(window_after_splits(true, 3 * kUs, 667), 24u);
}

TEST(Windows, ThatForAggregatorsGrowsNoFurtherAheadThanItBringsResults) {
  const RoundTrip rtt = round_trips(10 * kUs, 10 * kUs);
  Windows windows({.most = 500, .aggregators = true, .first_aggregators = 8, .ahead = 16});
  for (int i = 0; i < 1000; ++i) windows.whole(Seq{1}, 6, rtt);
  EXPECT_EQ(windows.fragments(), 8u) << "it is not used";
  for (int i = 0; i < 1000; ++i) windows.whole(Seq{1}, windows.fragments(), rtt);
  EXPECT_EQ(windows.fragments(), 16u);
}

TEST(Windows, ASplitIsNoReasonWhereTheLinkLoses) {
  Windows windows({.most = 100, .aggregators = true});
  windows.losing(true);
  windows.split(Seq{10}, Seq{100}, 100, {});
  EXPECT_EQ(windows.fragments(), 100u);
  windows.losing(false);
  windows.split(Seq{10}, Seq{100}, 100, {});
  EXPECT_EQ(windows.fragments(), 75u);
}

TEST(Windows, ThatForAggregatorsGrowsFurtherAheadWhereTheLinkLosesButNotInQueues) {
  Windows windows({.most = 500, .aggregators = true, .first_aggregators = 8, .ahead = 16});
  windows.losing(true);
  for (int i = 0; i < 1000; ++i)
    windows.whole(Seq{1}, windows.fragments(), round_trips(10 * kUs, 30 * kUs));
  EXPECT_EQ(windows.fragments(), 16u);
  for (int i = 0; i < 1000; ++i)
    windows.whole(Seq{1}, windows.fragments(), round_trips(10 * kUs, 15 * kUs));
  EXPECT_EQ(windows.fragments(), 500u);
}

TEST(Windows, ManyWorkersHaveSmallerOnes) {
  EXPECT_EQ(share_of(32, 2), 32u);
  EXPECT_EQ(share_of(32, 8), 32u);
  EXPECT_EQ(share_of(32, 24), 10u);
  EXPECT_EQ(share_of(32, 64), 4u);
  EXPECT_EQ(share_of(4, 64), 1u);
  for (const auto& [workers, least] : {std::pair{8u, 4u}, {16u, 2u}, {64u, 1u}}) {
    Windows windows({.most = 100, .workers = workers});
    for (uint64_t seq = 0; seq < 1000; seq += 10) windows.marked(Seq{seq}, Seq{seq + 10});
    EXPECT_EQ(windows.fragments(), least) << workers << " workers";
  }
  Windows windows({.most = 100, .workers = 32, .aggregators = true});
  for (uint64_t seq = 0; seq < 1000; seq += 10) windows.split(Seq{seq}, Seq{seq + 10}, 100, {});
  EXPECT_EQ(windows.fragments(), 2u);
}

TEST(Windows, SpreadAWindowOverTheRoundTrip) {
  Windows windows({.most = 32, .first = 32, .paced = true});
  EXPECT_EQ(windows.quantum(), 4u);
  EXPECT_EQ(Windows({.most = 32}).quantum(), 32u);
  const RoundTrip rtt = round_trips(1000 * kUs, 1000 * kUs);
  windows.sent(4, 0, {});  // nothing is known yet
  EXPECT_EQ(windows.paced_until(), 0);
  Nanos now = 0;
  for (int parts = 0; parts < 80; ++parts) {
    now = std::max(now, windows.paced_until());
    windows.sent(4, now, rtt);
  }
  // Ten windows, twice as fast as one a round trip: it is still in slow start.
  EXPECT_NEAR(windows.paced_until(), 10 * 500 * kUs, 100 * kUs);
  // A late call makes up for one part, not for all that could have left meanwhile.
  now += 100'000 * kUs;
  windows.sent(4, now, rtt);
  EXPECT_LE(windows.paced_until(), now);
  windows.sent(4, now, rtt);
  EXPECT_GT(windows.paced_until(), now);
}

TEST(Windows, WaitingForOtherWorkersIsNotDistance) {
  Windows windows({.most = 32, .first = 32, .paced = true});
  windows.sent(32, 0, round_trips(100 * kUs, 1'000'000 * kUs));
  EXPECT_LE(windows.paced_until(), 400 * kUs);
}

}  // namespace
}  // namespace ina::client
