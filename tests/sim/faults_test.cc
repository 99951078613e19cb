// The invariants under random faults, by seed, and the proof that the simulator can fail: each rule
// of the protocol, switched off, must be missed. I1 exactly once, I2 agreement, I3 liveness, I5
// conservation are checked in every run (sim/faults/world.cc).
#include <gtest/gtest.h>

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

class FaultSeeds : public testing::TestWithParam<uint64_t> {};

TEST_P(FaultSeeds, InvariantsHold) {
  constexpr uint64_t kSeeds = 100;
  for (uint64_t seed = GetParam() * kSeeds; seed < (GetParam() + 1) * kSeeds; ++seed) {
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
  const Scenario scenario = make_scenario(GetParam());
  World world(scenario);
  const Outcome outcome = world.run();
  EXPECT_TRUE(outcome.violations.empty()) << text_of(scenario, outcome);
}

// 247: after a restart, results of the switch's earlier life let its workers run further ahead than
// the new one allowed. 9005246, 20001590: a result that nobody needed from the switch, because home
// and parker had it from each other, left its fragment parked.
INSTANTIATE_TEST_SUITE_P(Seeds, Regressions, testing::Values<uint64_t>(247, 9'005'246, 20'001'590));

class WithoutRule : public testing::TestWithParam<uint32_t> {};

#ifndef INA_SLOW_BUILD  // the rarest needs a thousand runs
TEST_P(WithoutRule, AViolationTurnsUp) {
  constexpr uint64_t kMost = 10'000;
  Restrictions restrictions;
  restrictions.profile = kRuleNames[GetParam()];
  rules_off = 1u << GetParam();
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
