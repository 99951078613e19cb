// Traces about collectives other than the all-reduce: results that go to one worker, payloads that
// come from one, and the fragment that closes such an operation. Each runs with the rule that
// protects it, and again without, to prove that it can fail.
#include <gtest/gtest.h>

#include "tests/sim/script.h"

namespace ina::sim {
namespace {

using wire::Type;
using Values = std::vector<float>;
using Fragments = std::vector<ScriptFragment>;

constexpr Match kGrad{.type = Type::kGrad};
constexpr Match kResult{.type = Type::kResult};
constexpr Match kPoll{.type = Type::kPoll};
constexpr Match kDefer{.type = Type::kDefer};

constexpr uint32_t kWorkers = 3;
constexpr float kNothing = -1;  // where no result was written

Script one_job(Home home = Home::kWorkers, uint32_t window = 4) {
  Script script;
  script.home = home;
  script.jobs = {{.workers = kWorkers, .window = window}};
  return script;
}

/// Each rank's time-outs pass until all of its operations are complete; at most a few.
bool finish(Rack& rack, int operations = 1) {
  rack.deliver_all();
  for (int rounds = 0; rounds < 12; ++rounds) {
    bool done = true;
    for (uint32_t rank = 0; rank < kWorkers; ++rank)
      for (int operation = 0; operation < operations; ++operation) {
        if (rack.done(rank, 0, operation)) continue;
        done = false;
        rack.time_out(rank);
        rack.deliver_all();
      }
    if (done) return true;
  }
  return false;
}

// ---- a sum for one

constexpr uint32_t kOwner = 1;

/// 100 times the rank, one more for each fragment.
Values inputs_of(uint32_t rank, size_t fragments) {
  Values values;
  for (size_t f = 0; f < fragments; ++f)
    values.push_back(100 * static_cast<float>(rank) + static_cast<float>(f));
  return values;
}

void reduce(Rack& rack, uint32_t owner, size_t fragments = 1) {
  for (uint32_t rank = 0; rank < kWorkers; ++rank)
    rack.submit(rank, Collective::kReduce,
                Fragments(fragments, {.receiver = static_cast<uint16_t>(1 + owner)}),
                inputs_of(rank, fragments));
}

/// All but the owner hear that the sum is decided; the owner's result is lost. Returns what the
/// owner has in the end; nothing if it never gets there.
Values owners_result_lost(const Script& script, uint32_t owner, bool restart) {
  Rack rack(script);
  reduce(rack, owner);
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = static_cast<int>(owner), .seq = 0});
  rack.deliver_all();
  EXPECT_EQ(rack.done(0), !rule(Rule::kClosing) && owner != 0) << "somebody may still need it";
  for (uint32_t rank = 0; rank < kWorkers; ++rank)
    if (rack.done(rank)) rack.scribble(rank);
  if (restart) {
    rack.restart_switch();
    for (uint32_t rank = 0; rank < kWorkers; ++rank) rack.rejoin(rank);
  }
  finish(rack);
  if (rule(Rule::kClosing))
    for (uint32_t rank = 0; rank < kWorkers; ++rank)
      if (rank != owner && rack.done(rank)) {
        EXPECT_EQ(rack.got(rank), (Values{kNothing}));
      }
  return rack.got(owner);
}

class OwnersResultLost : public testing::TestWithParam<Home> {};

TEST_P(OwnersResultLost, IsMadeAgainOfWhatTheOthersSent) {
  for (const bool restart : {false, true})
    for (uint32_t owner = 0; owner < kWorkers; ++owner)  // fragment 0 is at home at rank 0
      EXPECT_EQ(owners_result_lost(one_job(GetParam()), owner, restart), (Values{300}))
          << "owner " << owner << (restart ? ", restart" : "");
}

TEST_P(OwnersResultLost, NobodyIsDoneBeforeTheOwnerHasIt) {
  const Without without(Rule::kClosing);
  EXPECT_EQ(owners_result_lost(one_job(GetParam()), kOwner, false), Values{}) << "gone for good";
}

TEST_P(OwnersResultLost, WhoGotNothingHasNothingToAnswerWith) {
  const Without without(Rule::kNonReceiverSent);
  EXPECT_NE(owners_result_lost(one_job(GetParam()), kOwner, false), (Values{300}));
}

TEST_P(OwnersResultLost, WhoHeardThatItIsDecidedIsBoundAgain) {
  const Without without(Rule::kBindAgain);
  EXPECT_EQ(owners_result_lost(one_job(GetParam()), kOwner, false), Values{});
}

INSTANTIATE_TEST_SUITE_P(Homes, OwnersResultLost,
                         testing::Values(Home::kWorkers, Home::kDedicated, Home::kSpill),
                         [](const auto& home) { return std::string(name(home.param)); });

TEST(ClosingFragment, LostForOneWorkerItIsAskedFor) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill})
    for (int loser = 0; loser < static_cast<int>(kWorkers); ++loser) {
      Rack rack(one_job(home));
      reduce(rack, kOwner);
      rack.deliver(kGrad);
      rack.deliver(kResult);  // the owner closes
      rack.deliver(kGrad);
      rack.drop({.type = Type::kResult, .to = loser, .seq = 1});
      rack.deliver_all();
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        EXPECT_EQ(rack.done(rank), static_cast<int>(rank) != loser);
        if (rack.done(rank)) rack.scribble(rank);
      }
      EXPECT_TRUE(finish(rack));
    }
}

TEST(ClosingFragment, SomebodysLostContributionToItHoldsUpAll) {
  for (int loser = 0; loser < static_cast<int>(kWorkers); ++loser) {
    Rack rack(one_job());
    reduce(rack, kOwner);
    rack.deliver({.type = Type::kGrad, .seq = 0});
    rack.deliver(kResult);
    rack.drop({.type = Type::kGrad, .of = loser, .seq = 1});
    rack.deliver_all();
    for (uint32_t rank = 0; rank < kWorkers; ++rank) EXPECT_FALSE(rack.done(rank));
    EXPECT_TRUE(finish(rack));
    EXPECT_EQ(rack.got(kOwner), (Values{300}));
  }
}

/// Its result says that all have all: bare results that got lost are not asked for.
TEST(ClosingFragment, StandsForBareResults) {
  Rack rack(one_job());
  reduce(rack, kOwner, 3);
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .bare = true});
  rack.deliver_all();
  for (uint32_t rank = 0; rank < kWorkers; ++rank) EXPECT_TRUE(rack.done(rank));
  EXPECT_EQ(rack.got(kOwner), (Values{300, 303, 306}));
  EXPECT_EQ(rack.count({.type = Type::kQuery}), 0u);
}

/// Bound by somebody's question, it takes a bare result of the switch all the same: there is no
/// other result that it could have been given.
TEST(BareResult, IsTakenFromAnyOrigin) {
  Rack rack(one_job());
  reduce(rack, kOwner);
  rack.deliver(kGrad);
  rack.hold(kResult);
  rack.time_out(kOwner);
  rack.deliver_all();
  rack.time_out(kOwner);
  rack.pass({.type = Type::kQuery});
  rack.deliver({.type = Type::kRemind});
  rack.pass(kPoll);
  rack.drop(kDefer);
  EXPECT_EQ(rack.engine(2).counters().results, 0u);
  rack.release({.type = Type::kResult, .to = 2});
  rack.deliver({.type = Type::kResult, .to = 2});
  EXPECT_EQ(rack.engine(2).counters().results, 1u);
}

/// Two reduce-scatters, the second with its owners swapped, by ranks that are an operation apart.
TEST(BackToBack, ReduceScattersWithSwappedOwners) {
  const Fragments first{{.receiver = 1}, {.receiver = 2}, {.receiver = 3}};
  const Fragments second{{.receiver = 3}, {.receiver = 2}, {.receiver = 1}};
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill})
    for (int loser = 0; loser < static_cast<int>(kWorkers); ++loser) {
      Rack rack(one_job(home, 8));
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        rack.submit(rank, Collective::kReduceScatter, first, inputs_of(rank, 3));
        rack.submit(rank, Collective::kReduceScatter, second, inputs_of(rank, 3));
      }
      rack.deliver(kGrad);
      rack.drop({.type = Type::kResult, .to = loser, .seq = loser, .bare = false});
      rack.deliver_all();
      for (uint32_t rank = 0; rank < kWorkers; ++rank)
        EXPECT_FALSE(rack.done(rank, 0, 0)) << "rank " << loser << " still needs what was sent";
      EXPECT_TRUE(finish(rack, 2));
      for (uint32_t rank = 0; rank < kWorkers; ++rank) {
        Values one(3, kNothing);
        Values two(3, kNothing);
        one[rank] = 300 + 3 * static_cast<float>(rank);
        two[2 - rank] = 300 + 3 * static_cast<float>(2 - rank);
        EXPECT_EQ(rack.got(rank, 0, 0), one) << rank;
        EXPECT_EQ(rack.got(rank, 0, 1), two) << rank;
      }
    }
}

// ---- payloads that are moved

constexpr uint32_t kRoot = 0;

void broadcast(Rack& rack, uint32_t rank, const Values& values) {
  const Fragments fragments(values.size(), {.source = 1 + kRoot});
  rack.submit(rank, Collective::kBroadcast, fragments,
              rank == kRoot ? values : Values(values.size(), 0));
}

/// The marks of rank 2 are lost, so the root's payloads wait in slots, or at the fallback where
/// there is one slot.
class MarkRunLost : public testing::TestWithParam<std::tuple<Home, uint32_t>> {};

TEST_P(MarkRunLost, ThePayloadsWaitForIt) {
  const auto [home, slots] = GetParam();
  for (const bool restart : {false, true}) {
    Script script = one_job(home);
    script.slots = slots;
    Rack rack(script);
    const Values values{1, 2, 3};
    for (uint32_t rank = 0; rank < kWorkers; ++rank) broadcast(rack, rank, values);
    EXPECT_EQ(rack.count({.type = Type::kGrad, .of = 2}), 1u) << "one message for three";
    rack.drop({.type = Type::kGrad, .of = 2});
    rack.deliver_all();
    for (uint32_t rank = 0; rank < kWorkers; ++rank) EXPECT_FALSE(rack.done(rank));
    if (restart) {
      rack.restart_switch();
      for (uint32_t rank = 0; rank < kWorkers; ++rank) rack.rejoin(rank);
    }
    EXPECT_TRUE(finish(rack));
    for (uint32_t rank = 0; rank < kWorkers; ++rank) EXPECT_EQ(rack.got(rank), values);
    EXPECT_EQ(rack.counters().slots_used, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(HomesAndSlots, MarkRunLost,
                         testing::Combine(testing::Values(Home::kWorkers, Home::kDedicated,
                                                          Home::kSpill),
                                          testing::Values(1, 16)));

/// Three broadcasts of a window each. Ranks 0 and 1 begin; rank 2 comes when they can go no
/// further. Returns whether all ends well.
bool root_runs_ahead(const Script& script) {
  Rack rack(script);
  const Values values{1, 2, 3, 4};
  constexpr int kOperations = 3;
  for (const uint32_t rank : {0u, 1u})
    for (int operation = 0; operation < kOperations; ++operation) broadcast(rack, rank, values);
  rack.deliver_all();
  EXPECT_EQ(rack.engine(kRoot).standing().low == Seq{0}, rule(Rule::kAllMarks)) << "C2";
  for (int operation = 0; operation < kOperations; ++operation) broadcast(rack, 2, values);
  if (script.jobs[0].park_after != 0) {
    EXPECT_GT(rack.counters().parked, 0u);
  }
  if (!finish(rack, kOperations)) return false;
  for (uint32_t rank = 0; rank < kWorkers; ++rank)
    for (int operation = 0; operation < kOperations; ++operation)
      if (rack.got(rank, 0, operation) != values) return false;
  return true;
}

TEST(RootRunsAhead, NoFurtherThanAWindow) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill}) {
    EXPECT_TRUE(root_runs_ahead(one_job(home)));
    const Without without(Rule::kAllMarks);
    EXPECT_FALSE(root_runs_ahead(one_job(home)));
  }
}

/// Fragments that wait for a late rank are parked, and kept by a worker or the fallback.
TEST(RootRunsAhead, AndSoWithParking) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill})
    for (const uint32_t room : {0u, 8u}) {
      Script script = one_job(home, 8);
      script.jobs[0].park_after = 1;
      script.jobs[0].park_room = room;
      EXPECT_TRUE(root_runs_ahead(script)) << room;
    }
}

// ---- a root that dies. Its job ends with an error for the others; until they hear of it, nobody
// takes for complete what the root can no longer give or get.

/// The others wait, and ask, for long.
void ask_without_root(Rack& rack) {
  rack.deliver_all();
  for (int rounds = 0; rounds < 12; ++rounds)
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      if (rank == kRoot || rack.done(rank)) continue;
      rack.time_out(rank);
      rack.deliver_all();
    }
}

/// The root of a gather never comes. Returns whether anything that it was to get counts as given.
bool root_dies_before(Home home) {
  Rack rack(one_job(home));
  const Fragments fragments{{.source = 2, .receiver = 1 + kRoot},
                            {.source = 3, .receiver = 1 + kRoot}};
  for (const uint32_t rank : {1u, 2u})
    rack.submit(rank, Collective::kGather, fragments, inputs_of(rank, fragments.size()));
  rack.leave(kRoot);
  ask_without_root(rack);
  for (const uint32_t rank : {1u, 2u}) EXPECT_FALSE(rack.done(rank));
  return rack.engine(1).counters().results != 0;
}

TEST(RootDies, BeforeItNothingIsGivenOut) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill}) {
    EXPECT_FALSE(root_dies_before(home));
    const Without without(Rule::kAllMarks);
    EXPECT_TRUE(root_dies_before(home));
  }
}

/// The root of a reduction dies when the sum is on its way to it. Returns whether another rank
/// takes the operation for complete.
bool root_dies_during_reduce(Home home) {
  Rack rack(one_job(home));
  reduce(rack, kRoot);
  rack.deliver(kGrad);
  rack.leave(kRoot);
  ask_without_root(rack);
  return rack.done(1) || rack.done(2);
}

TEST(RootDies, DuringAReductionNobodyIsDone) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill}) {
    EXPECT_FALSE(root_dies_during_reduce(home));
    const Without without(Rule::kClosing);
    EXPECT_TRUE(root_dies_during_reduce(home));
  }
}

/// The root of a broadcast dies when one fragment of three has got through.
TEST(RootDies, DuringABroadcastNobodyIsDone) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill}) {
    Rack rack(one_job(home));
    for (uint32_t rank = 0; rank < kWorkers; ++rank) broadcast(rack, rank, {1, 2, 3});
    rack.drop({.type = Type::kGrad, .of = kRoot, .seq = 1});
    rack.drop({.type = Type::kGrad, .of = kRoot, .seq = 2});
    rack.leave(kRoot);
    ask_without_root(rack);
    for (const uint32_t rank : {1u, 2u}) {
      EXPECT_FALSE(rack.done(rank));
      EXPECT_EQ(rack.engine(rank).standing().low, Seq{1});
    }
  }
}

/// The root has done its part in a broadcast when rank 2 still misses the result, whose home is the
/// root. Returns what rank 2 gets.
Values root_goes_after() {
  Rack rack(one_job());
  for (uint32_t rank = 0; rank < kWorkers; ++rank) broadcast(rack, rank, {7});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 2});
  rack.deliver_all();
  EXPECT_TRUE(rack.done(kRoot));
  if (!rule(Rule::kLeaveBarrier)) rack.leave(kRoot);
  finish(rack);
  return rack.got(2);
}

TEST(RootDies, AfterItNobodyMissesIt) {
  EXPECT_EQ(root_goes_after(), (Values{7}));
  const Without without(Rule::kLeaveBarrier);
  EXPECT_EQ(root_goes_after(), Values{}) << "nobody else may decide";
}

TEST(OwnersResultLostWhileParked, IsMadeAgain) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill})
    for (const uint32_t room : {0u, 8u})
      for (uint32_t owner = 0; owner < kWorkers; ++owner) {
        Script script = one_job(home, 8);
        script.jobs[0].park_after = 1;
        script.jobs[0].park_room = room;
        Rack rack(script);
        constexpr size_t kFragments = 5;
        const Fragments fragments(kFragments, {.receiver = static_cast<uint16_t>(1 + owner)});
        for (const uint32_t rank : {0u, 1u})
          rack.submit(rank, Collective::kReduce, fragments, inputs_of(rank, kFragments));
        rack.deliver_all();
        EXPECT_GT(rack.counters().parked, 0u);
        rack.submit(2, Collective::kReduce, fragments, inputs_of(2, kFragments));
        for (int steps = 0;
             steps < 40 &&
             rack.count({.type = Type::kResult, .to = static_cast<int>(owner)}) == 0 &&
             rack.in_flight() != 0;
             ++steps)
          rack.deliver({});
        if (rack.count({.type = Type::kResult, .to = static_cast<int>(owner)}) != 0)
          rack.drop({.type = Type::kResult, .to = static_cast<int>(owner)});
        EXPECT_TRUE(finish(rack));
        EXPECT_EQ(rack.got(owner), (Values{300, 303, 306, 309, 312}));
      }
}

}  // namespace
}  // namespace ina::sim
