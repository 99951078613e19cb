// The invariants under random faults, by seed, and the proof that the simulator can fail: each rule
// of the protocol, switched off, must be missed. I1 exactly once, I2 agreement, I3 liveness, I5
// conservation are checked in every run (sim/faults/world.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/faults/world.h"
#include "tests/support/sanitizers.h"
#include "wire/rules.h"

namespace ina::sim {
namespace {

#ifdef INA_SLOW_BUILD
constexpr uint64_t kSeedsPerProfile = 10;
#else
constexpr uint64_t kSeedsPerProfile = 100;
#endif

std::string text_of(const Scenario& scenario, const Outcome& outcome) {
  std::string text = describe(scenario);
  for (const std::string& violation : outcome.violations) text += "\n  " + violation;
  return text + "\n  replay: ina-faultsim --seed " + std::to_string(scenario.seed);
}

void expect_no_violation(uint64_t seeds, const Restrictions& restrictions) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
  }
}

class FaultSeeds : public testing::TestWithParam<uint64_t> {};

TEST_P(FaultSeeds, InvariantsHold) {
#ifdef INA_SLOW_BUILD
  constexpr uint64_t kSeeds = 30;  // of the same hundred
#else
  constexpr uint64_t kSeeds = 100;
#endif
  for (uint64_t seed = GetParam() * 100; seed < GetParam() * 100 + kSeeds; ++seed) {
    const Scenario scenario = make_scenario(seed);
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(Hundreds, FaultSeeds, testing::Range<uint64_t>(0, 10));

/// Seeds that once failed.
class Regressions : public testing::TestWithParam<uint64_t> {};

TEST_P(Regressions, HoldNow) {
  Restrictions restrictions;
  restrictions.plain = true;
  const Scenario scenario = make_scenario(GetParam(), restrictions);
  World world(scenario);
  const Outcome outcome = world.run();
  EXPECT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
}

// Before there were collectives: 247: after a restart, results of the switch's earlier life let its
// workers run further ahead than the new one allowed. 9005246, 20001590: a result that nobody
// needed from the switch, because home and parker had it from each other, left its fragment parked.
INSTANTIATE_TEST_SUITE_P(Seeds, Regressions, testing::Values<uint64_t>(247, 9'005'246, 20'001'590));

/// One worker calls another collective, or the same with another root or other sizes: a worker, the
/// switch or the fallback finds out, with any losses, and no rank gets a wrong result before.
TEST(Mismatch, IsFound) {
  Restrictions restrictions;
  restrictions.mismatch = true;
  restrictions.collectives = all_collectives();
  expect_no_violation(5 * kSeedsPerProfile, restrictions);
}

/// Seeds that failed when all of its operations were of all kinds.
TEST(RegressionsOfCollectives, HoldNow) {
  Restrictions restrictions;
  restrictions.collectives = all_collectives();
  // The fallback's home took a result for itself alone, of which the switch never heard.
  for (const uint64_t seed : {302'327}) {
    const Scenario scenario = make_scenario(seed, restrictions);
    World world(scenario);
    const Outcome outcome = world.run();
    EXPECT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
  }
}

/// Seeds that failed in the swarm as it is.
TEST(RegressionsOfTheSwarm, HoldNow) {
  // A worker with a full window waited for bytes of its own, on their way, of a fragment amid a run
  // of bare results. The simulation took that for a wait for the run.
  for (const uint64_t seed : {30'557'109}) {
    const Scenario scenario = make_scenario(seed);
    World world(scenario);
    const Outcome outcome = world.run();
    EXPECT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
  }
}

/// Domains of one switch, of two levels and of three, all of whose switches start again, and jobs
/// of more ranks than a switch has bits.
TEST(Trees, HoldWhileSwitchesStartAgain) {
  Restrictions restrictions;
  restrictions.trees = true;
  uint64_t restarts = 0, dropped = 0, wide = 0, deep = 0, together = 0;
  for (uint64_t seed = 0; seed < 10 * kSeedsPerProfile; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
    restarts += outcome.restarts;
    dropped += outcome.dropped;
    together += scenario.together;
    wide += scenario.jobs[0].workers > kMaxWorkers;
    deep += std::ranges::any_of(scenario.parents, [](uint32_t parent) { return parent != 0; });
  }
  EXPECT_GT(restarts, 10 * kSeedsPerProfile);
  EXPECT_GT(dropped, 10 * kSeedsPerProfile);
  EXPECT_GT(deep, kSeedsPerProfile);
  EXPECT_GT(together, kSeedsPerProfile);
  if (kSeedsPerProfile >= 100) EXPECT_GT(wide, 0u);
}

/// Each domain sends each fragment up once, and gets it once.
TEST(Trees, AFragmentGoesUpOnceWithoutFaults) {
  for (const bool together : {false, true}) {
    Scenario scenario;
    scenario.seed = 1;
    scenario.policy.kind = scheduler::PolicyKind::kEsa;
    scenario.home = Home::kTree;
    scenario.slots = 8;
    scenario.parents = {0, 0, 0, 2};
    scenario.together = together;
    scenario.faults_end_ns = INT64_MAX;
    scenario.jobs.resize(1);
    scenario.jobs[0].workers = 6;
    scenario.jobs[0].at = {1, 1, 2, 3, 3, 3};
    const Outcome outcome = World(scenario).run();
    EXPECT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
    EXPECT_GT(outcome.fragments, 0u);
    EXPECT_EQ(outcome.ascents, 3 * outcome.fragments);
    EXPECT_EQ(outcome.resent, 0u);
  }
}

/// Arrays that change their layout, by plans of every method, whole and in pieces, are Schedules of
/// many operations. Every byte of the final layout is compared, and they have no more memory than
/// their plan states.
TEST(Redistributions, EndInTheirLayoutWithinTheirMemory) {
  Restrictions restrictions;
  restrictions.redistributions = true;
  uint64_t redistributions = 0, restarts = 0, dropped = 0;
  for (uint64_t seed = 0; seed < 10 * kSeedsPerProfile; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
    redistributions += outcome.redistributions;
    restarts += outcome.restarts;
    dropped += outcome.dropped;
  }
  EXPECT_GT(redistributions, 20 * kSeedsPerProfile);
  EXPECT_GT(restarts, kSeedsPerProfile);
  EXPECT_GT(dropped, 10 * kSeedsPerProfile);
}

/// A switch that comes back with another policy goes on with the jobs of the one before.
TEST(PolicyChanges, LoseNothing) {
  Restrictions restrictions;
  restrictions.policy_changes = true;
  uint64_t restarts = 0;
  uint64_t to_the_other_kind = 0;
  for (uint64_t seed = 0; seed < 10 * kSeedsPerProfile; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    bool hashed = scheduler::traits(scenario.policy.kind).hashed;
    for (const Event& event : scenario.events)
      if (event.policy) {
        to_the_other_kind += scheduler::traits(*event.policy).hashed != hashed;
        hashed = scheduler::traits(*event.policy).hashed;
      }
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
    restarts += outcome.restarts;
  }
  EXPECT_GT(restarts, 10 * kSeedsPerProfile);
  EXPECT_GT(to_the_other_kind, 3 * kSeedsPerProfile);
}

/// One rank has another plan: nobody completes it, and somebody says so.
TEST(Redistributions, OfRanksWithOtherPlansEndNowhere) {
  Restrictions restrictions;
  restrictions.redistributions = true;
  restrictions.mismatch = true;
  expect_no_violation(3 * kSeedsPerProfile, restrictions);
}

/// Plans without their last step, and plans that take more than their limit.
TEST(Redistributions, OfBrokenPlansAreNoticed) {
  Restrictions restrictions;
  restrictions.redistributions = true;
  const auto first_violation = [](Scenario scenario, BrokenPlans how) {
    scenario.broken_plans = how;
    const Outcome outcome = World(scenario).run();
    return outcome.violations.empty() ? std::string() : outcome.violations.front();
  };
  for (uint64_t seed = 0; seed < kSeedsPerProfile / 10; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    if (scenario.jobs[0].redistributions == 0) continue;
    EXPECT_TRUE(first_violation(scenario, BrokenPlans::kTooLarge).starts_with("memory: job 0"))
        << seed;
    EXPECT_TRUE(first_violation(scenario, BrokenPlans::kTooShort).starts_with("I1: job")) << seed;
  }
}

/// They occur in scenarios of all kinds, so a rule that is off shows there, too.
TEST(Redistributions, AreInTheSwarm) {
  uint64_t redistributions = 0;
  for (uint64_t seed = 0; seed < 2 * kSeedsPerProfile; ++seed)
    redistributions += World(make_scenario(seed)).run().redistributions;
  EXPECT_GT(redistributions, kSeedsPerProfile / 2);
}

#ifdef INA_SLOW_BUILD
constexpr uint64_t kReproducibleCases = 250;
#else
constexpr uint64_t kReproducibleCases = 10'000;
#endif

/// Sums, averages and products of all floats have the bits of a naive model. They are made by
/// slots, by the fallback in each of its homes and by restarted switches, over any number of lanes,
/// in any order of arrival and by chunks of any size.
TEST(Reproducible, SameBitsOnAnyPath) {
  Restrictions restrictions;
  restrictions.reproducible = true;
  uint64_t cases = 0, restarts = 0, in_lanes = 0, parked = 0;
  std::map<Home, uint64_t> by_fallback;
  for (uint64_t seed = 0; cases < kReproducibleCases; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    const Outcome outcome = World(scenario).run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome) << " --reproducible";
    cases += outcome.reproducible;
    restarts += outcome.restarts;
    parked += outcome.parked;
    in_lanes += scenario.lanes == 1 ? 0 : outcome.reproducible;
    by_fallback[scenario.home] += outcome.fallback_fragments;
  }
  EXPECT_GT(restarts, cases / 50);
  EXPECT_GT(parked, cases / 50);
  EXPECT_GT(in_lanes, cases / 50);
  for (const auto& home : kHomeNames) EXPECT_GT(by_fallback[home.value], cases / 50) << home.name;
}

/// Collectives by plans of Themis and the search, whose stages begin with a receipt: ranks start
/// apart, packets are lost, switches restart and ranks die, and every integer on every rank is
/// right. A rank's payload is that of its plans.
TEST(Hierarchies, EndBitExactHoweverRanksArrive) {
  Restrictions restrictions;
  restrictions.hierarchies = true;
  uint64_t groups = 0, restarts = 0, dropped = 0, apart = 0;
  for (uint64_t seed = 0; seed < 10 * kSeedsPerProfile; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
    groups += outcome.hierarchical;
    restarts += outcome.restarts;
    dropped += outcome.dropped;
    apart += scenario.hierarchies[0].jitter_ns != 0;
  }
  EXPECT_GT(groups, 20 * kSeedsPerProfile);
  EXPECT_GT(restarts, kSeedsPerProfile);
  EXPECT_GT(dropped, 10 * kSeedsPerProfile);
  EXPECT_GT(apart, 5 * kSeedsPerProfile);
}

/// In scenarios of all kinds, beside other jobs.
TEST(Hierarchies, AreInTheSwarm) {
  uint64_t groups = 0;
  for (uint64_t seed = 0; seed < 5 * kSeedsPerProfile; ++seed)
    groups += World(make_scenario(seed)).run().hierarchical;
  EXPECT_GT(groups, kSeedsPerProfile / 4);
}

/// Or the search would say nothing about them.
TEST(RandomFaults, MeetGroupsUnderEveryPolicy) {
  for (const auto& policy : scheduler::kPolicyNames) {
    uint64_t groups = 0;
    uint64_t grouped = 0;
    for (uint64_t seed = 0; seed < kSeedsPerProfile; ++seed) {
      Restrictions restrictions;
      restrictions.policy = policy.value;
      const Outcome outcome = World(make_scenario(seed, restrictions)).run();
      groups += outcome.groups;
      grouped += outcome.grouped;
    }
    EXPECT_GT(groups, kSeedsPerProfile) << policy.name;
    EXPECT_GT(grouped, 2 * groups) << policy.name;
  }
}

class WithoutRule : public testing::TestWithParam<uint32_t> {};

#ifndef INA_SLOW_BUILD  // the rarest needs a thousand runs
TEST_P(WithoutRule, AViolationTurnsUp) {
  constexpr uint64_t kMost = 10'000;
  Restrictions restrictions;
  restrictions.profile = kRuleNames[GetParam()];
  rules_off = uint64_t{1} << GetParam();
  bool found = false;
  for (uint64_t seed = 0; seed < kMost && !found; ++seed) {
    World world(make_scenario(seed, restrictions));
    found = !world.run().violations.empty();
  }
  rules_off = 0;
  EXPECT_TRUE(found) << "nobody misses the rule " << kRuleNames[GetParam()];
}
#endif

INSTANTIATE_TEST_SUITE_P(Rules, WithoutRule, testing::Range<uint32_t>(0, kRules),
                         [](const auto& rule) { return std::string(kRuleNames[rule.param]); });

/// The profiles themselves are no violation: with all rules they hold.
TEST_P(WithoutRule, WithItTheSameRunsHold) {
  Restrictions restrictions;
  restrictions.profile = kRuleNames[GetParam()];
  for (uint64_t seed = 0; seed < kSeedsPerProfile; ++seed) {
    const Scenario scenario = make_scenario(seed, restrictions);
    World world(scenario);
    const Outcome outcome = world.run();
    ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
  }
}

TEST(FaultFree, AFragmentIsSentOnceAndNothingIsDropped) {
  Restrictions restrictions;
  restrictions.policy = scheduler::PolicyKind::kStatic;
  restrictions.home = Home::kWorkers;
  restrictions.loss = 0;
  Scenario scenario = make_scenario(1, restrictions);
  for (JobPlan& job : scenario.jobs) job.think_ns = 0;
  World world(scenario);
  const Outcome outcome = world.run();
  EXPECT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
  EXPECT_EQ(outcome.raws, 0u);
  EXPECT_EQ(outcome.fallback_fragments, 0u);
}

/// Roots, counts, blocks of any size in any order; the bytes of each worker are counted in every
/// run (World::check_payload), and nothing is sent twice.
class FaultFreeCollective : public testing::TestWithParam<Collective> {};

TEST_P(FaultFreeCollective, EachByteIsSentOnceAndComesOnce) {
  for (const auto& policy : scheduler::kPolicyNames) {
    for (uint64_t seed = 0; seed < kSeedsPerProfile; ++seed) {
      Restrictions restrictions;
      restrictions.policy = policy.value;
      restrictions.loss = 0;
      restrictions.collectives = {GetParam()};
      Scenario scenario = make_scenario(seed, restrictions);
      if (scheduler::traits(policy.value).hashed) scenario.slots = 16'384;
      scenario.policy.residual = true;
      for (JobPlan& job : scenario.jobs) job.quota = {};
      // Nobody waits for so long that it asks, or sends again.
      scenario.rto_min_ns = 1'000'000'000;
      World world(scenario);
      const Outcome outcome = world.run();
      ASSERT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
      ASSERT_EQ(outcome.raws + outcome.resent + outcome.queries, 0u) << text_of(scenario, outcome);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FaultFreeCollective, testing::ValuesIn(all_collectives()),
                         [](const auto& collective) {
                           std::string text(name(collective.param));
                           std::erase(text, '-');
                           return text;
                         });

TEST(FaultFree, TheSameSeedIsTheSameRun) {
  const Scenario scenario = make_scenario(77);
  World one(scenario);
  World two(scenario);
  const Outcome first = one.run();
  const Outcome second = two.run();
  EXPECT_EQ(first.packets, second.packets);
  EXPECT_EQ(first.finished_at, second.finished_at);
  EXPECT_EQ(first.preemptions, second.preemptions);
}

}  // namespace
}  // namespace ina::sim
