// Trees of switches, flat sums and leaders on the same network, beside arithmetic.
#include "sim/leaf_spine.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/sim/cluster_specs.h"

namespace ina::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kFragments = kMiB / 8192;
constexpr uint64_t kFrameBytes = 8192 + 138;

LeafSpineSpec shape(uint32_t leaves, uint32_t workers, double oversubscription = 1,
                    Sums sums = Sums::kTree) {
  return {leaves, workers, oversubscription, sums};
}

Outcome correct(const ClusterSpec& spec, const LeafSpineSpec& leaf_spine) {
  Outcome outcome = run_leaf_spine(spec, leaf_spine);
  expect_correct(outcome);
  return outcome;
}

double seconds(const ClusterSpec& spec, const LeafSpineSpec& leaf_spine) {
  return static_cast<double>(correct(spec, leaf_spine).end) * 1e-9;
}

TEST(LeafSpine, UplinkOfATreeCarriesTheVectorOnceEachWay) {
  for (const auto policy : {scheduler::PolicyKind::kEsa, scheduler::PolicyKind::kFcfs}) {
    ClusterSpec spec = one_job(kMiB);
    spec.policy.kind = policy;
    const Outcome outcome = correct(spec, shape(2, 4));
    EXPECT_EQ(outcome.sums_checked, 8u);
    EXPECT_EQ(outcome.fragments, kFragments);
    ASSERT_EQ(outcome.leaves.size(), 2u);
    for (const LeafOutcome& leaf : outcome.leaves) {
      EXPECT_EQ(leaf.counters.parts, kFragments);
      EXPECT_EQ(leaf.counters.part_bytes * spec.fragment_bytes / spec.value_bytes, kMiB);
      for (const ns3net::LinkCounters& way : {leaf.up, leaf.down}) {
        EXPECT_EQ(way.frames, kFragments);
        EXPECT_EQ(way.wire_bytes, kFragments * kFrameBytes);
      }
    }
  }
}

TEST(LeafSpine, FlatSumsTakeEachContributionOverTheUplink) {
  const Outcome outcome = correct(one_job(kMiB), shape(2, 4, 1, Sums::kFlat));
  for (const LeafOutcome& leaf : outcome.leaves) {
    EXPECT_EQ(leaf.counters.packets, 0u);
    EXPECT_EQ(leaf.up.frames, 4 * kFragments);
    EXPECT_EQ(leaf.down.frames, 4 * kFragments);
  }
}

TEST(LeafSpine, FlatSumsOfMoreThan64WorkersHaveDomainsAtTheRoot) {
  ClusterSpec spec = one_job(kMiB / 4);
  spec.slots = 64;
  const Outcome outcome = correct(spec, shape(3, 32, 1, Sums::kFlat));
  EXPECT_EQ(outcome.sums_checked, 96u);
  EXPECT_EQ(outcome.counters.bypassed, 0u) << "domains use the same slots";
  EXPECT_EQ(outcome.leaves[2].up.frames, 32 * kFragments / 4);
}

TEST(LeafSpine, LeadersShareOutTheirOneLink) {
  const ClusterSpec spec = one_job(8 * kMiB);
  const Outcome outcome = correct(spec, shape(2, 4, 1, Sums::kLeaders));
  EXPECT_EQ(outcome.sums_checked, 8u);
  for (const LeafOutcome& leaf : outcome.leaves) EXPECT_EQ(leaf.up.frames, 8 * kFragments);
  // Its contribution, its leaf's sum, and what it broadcasts.
  EXPECT_NEAR(static_cast<double>(outcome.end) * 1e-9 / seconds(spec, shape(2, 4)), 3, 0.15);
}

TEST(LeafSpine, TreeTakesTheTimeOfOneSwitchAndAHop) {
  const ClusterSpec spec = one_job(16 * kMiB);
  const double one_switch = ina::sim::seconds(spec);
  EXPECT_NEAR(seconds(spec, shape(2, 4)) / one_switch, 1, 0.02);
  // An uplink as fast as one worker's link is enough.
  EXPECT_NEAR(seconds(spec, shape(2, 4, 4)) / one_switch, 1, 0.02);
  EXPECT_NEAR(seconds(spec, shape(2, 4, 8)) / one_switch, 2, 0.1);
}

TEST(LeafSpine, LossesAndWantOfSlotsLeaveSumsRight) {
  ClusterSpec spec = crowd();
  spec.slots = 8;
  spec.fabric.racks[0].link.loss = 0.002;
  const Outcome outcome = correct(spec, shape(3, 4, 2));
  EXPECT_GT(outcome.losses, 0u);
  EXPECT_GT(outcome.leaves[0].counters.bypassed, 0u);
  spec = one_job(kMiB / 4);
  spec.slots = 2;
  spec.fabric.racks[0].link.loss = 0.002;
  correct(spec, shape(3, 24, 2, Sums::kFlat));
  correct(spec, shape(3, 4, 2, Sums::kLeaders));
}

/// Without slots for all that others have sent ahead. (trees_net, wide_jobs: those elsewhere, too.)
TEST(LeafSpine, HelpLetsOthersRunAheadOfASlowWorker) {
  ClusterSpec spec = one_job(64 * kMiB);
  spec.slots = 256;
  spec.window = 256;
  spec.rto_min_ns = 5'000'000;
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.period_ns = 500'000;
  const double off = seconds(spec, shape(2, 4));
  spec.window = 4096;
  const Outcome ahead = correct(spec, shape(2, 4));
  spec.in_switch = 64;
  spec.park_patience_ns = kShortPatience;
  spec.help = Help::kFallback;
  const Outcome helped = correct(spec, shape(2, 4));
  EXPECT_LT(static_cast<double>(helped.end) * 1e-9, 0.8 * off);
  EXPECT_GT(helped.counters.parked, 0u);
  EXPECT_LT(helped.counters.slots_used_peak, ahead.counters.slots_used_peak / 2);
  for (uint32_t leaf = 0; leaf < 2; ++leaf) {
    EXPECT_GT(helped.leaves[leaf].counters.parked, 0u);
    EXPECT_LT(helped.leaves[leaf].counters.slots_used_peak,
              ahead.leaves[leaf].counters.slots_used_peak / 2);
  }
}

TEST(LeafSpine, RefusesWhatMakesNoSense) {
  const auto refused = [](const ClusterSpec& spec, const LeafSpineSpec& leaf_spine) {
    EXPECT_THROW(run_leaf_spine(spec, leaf_spine), std::invalid_argument);
  };
  refused(one_job(1), shape(0, 4));
  refused(one_job(1), shape(65, 4));
  refused(one_job(1), shape(2, 65));
  refused(one_job(1), shape(2, 4, 0));
  refused(crowd(), shape(2, 4, 1, Sums::kLeaders));
  ClusterSpec fixed = one_job(1);
  fixed.policy.kind = scheduler::PolicyKind::kStatic;
  refused(fixed, shape(2, 4));
}

}  // namespace
}  // namespace ina::sim
