// Whole simulated clusters with stragglers, and with help against them.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/sim/cluster_specs.h"

namespace ina::sim {
namespace {

TEST(Cluster, StragglersSlowDownByTheirFactor) {
  ClusterSpec spec = one_job(4'000'000);
  const double steady = seconds(spec);
  for (const Pattern pattern : {Pattern::kPermanent, Pattern::kLink}) {
    spec.straggler.pattern = pattern;
    spec.straggler.factor = 3;
    EXPECT_NEAR(seconds(spec) / steady, 3, 0.15) << static_cast<int>(pattern);
  }
}

TEST(Cluster, SlowUplinksSlowDownWhatIsReady) {
  ClusterSpec spec = one_job(4'000'000);
  const double steady = seconds(spec);
  spec.straggler.slow = Slow::kUplink;
  spec.straggler.pattern = Pattern::kPermanent;
  spec.straggler.factor = 3;
  EXPECT_NEAR(seconds(spec) / steady, 3, 0.15);
  spec.fabric.links = ns3net::Links::kDevices;
  EXPECT_THROW(run_cluster(spec), std::invalid_argument);
}

TEST(Cluster, WhatIsStagedIsSentFasterThanItWasMade) {
  ClusterSpec spec = one_job(64'000'000);
  spec.window = 128;
  const double steady = seconds(spec);
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.period_ns = kMs / 2;
  const double coupled = seconds(spec);
  spec.straggler.staging = 0;
  const double staged = seconds(spec);
  EXPECT_GT(coupled / steady, 1.5);
  EXPECT_LT(staged / steady, 1.25) << "each loses its own turns, and no more";
}

TEST(Cluster, WorkTakesTheTimeThatItIsChargedFor) {
  ClusterSpec spec = one_job(4'000'000);
  spec.rto_min_ns = 100 * kMs;  // no worker asks for late results
  const double free = seconds(spec);
  // Eight contributions in and eight results out of each of 489 fragments, one processor.
  spec.fabric.switch_charge = {.packet_ns = 500, .byte_ns = 0.0625};
  EXPECT_NEAR(seconds(spec) / (489 * 16 * (500 + 512) * 1e-9), 1, 0.05);
  spec.fabric.switch_charge = {.packet_ns = 10};
  EXPECT_NEAR(seconds(spec) / free, 1, 0.02) << "less than the links take";
}

TEST(Straggler, ARotationMayHaveBegunBefore) {
  StragglerSpec spec;
  spec.pattern = Pattern::kRotating;
  spec.period_ns = 1000;
  Pace from_now(spec, 0, 4, 1);
  EXPECT_EQ(from_now.finish(0, 1000, 0), 1000 + 750);
  spec.phase_ns = 600;
  Pace begun(spec, 0, 4, 1);
  EXPECT_EQ(begun.finish(0, 1000, 0), 400 + 900);
}

TEST(Cluster, SomeJobsOnlyHaveStragglers) {
  ClusterSpec spec = one_job(4'000'000);
  spec.jobs.push_back(spec.jobs[0]);
  spec.straggler.slow = Slow::kUplink;
  spec.straggler.pattern = Pattern::kPermanent;
  spec.straggler_jobs = 1;
  const Outcome outcome = run_cluster(spec);
  expect_correct(outcome);
  EXPECT_GT(outcome.jobs[0].iteration_ns, 3 * outcome.jobs[1].iteration_ns);
}

TEST(Cluster, HelpOnASlowLinkCostsNothing) {
  ClusterSpec spec = one_job(64'000'000);
  spec.slots = 256;
  spec.window = 512;
  spec.rto_min_ns = 5 * kMs;
  spec.straggler.pattern = Pattern::kLink;
  const double off = seconds(spec);
  spec.window = 4096;
  spec.home = Home::kSpill;
  EXPECT_LT(seconds(spec), 1.04 * off) << "questions for what is merely late";
  spec.in_switch = 64;
  spec.park_patience_ns = kShortPatience;
  for (const Home home : {Home::kSpill, Home::kWorkers})
    for (const Help help : {Help::kFallback, Help::kLeader}) {
      spec.home = home;
      spec.help = help;
      const Outcome outcome = run_cluster(spec);
      expect_correct(outcome);
      EXPECT_EQ(outcome.counters.parked > 0, home == Home::kSpill) << "nothing is lost";
      EXPECT_LT(static_cast<double>(outcome.end) * 1e-9, 1.02 * off)
          << static_cast<int>(home) << " " << static_cast<int>(help);
    }
}

TEST(Cluster, ThePatientDoNotHelp) {
  ClusterSpec spec = one_job(16'000'000);
  spec.window = 4096;
  spec.in_switch = 64;
  spec.help = Help::kFallback;
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.period_ns = kMs / 2;
  EXPECT_EQ(run_cluster(spec).counters.parked, 0u);
  spec.park_patience_ns = kShortPatience;
  EXPECT_GT(run_cluster(spec).counters.parked, 0u);
}

TEST(Cluster, HelpLetsLeadersRunAhead) {
  ClusterSpec spec = one_job(64'000'000);
  spec.slots = 256;
  spec.window = 256;
  spec.rto_min_ns = 5 * kMs;
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.period_ns = kMs / 2;
  spec.home = Home::kSpill;
  const double off = seconds(spec);
  spec.window = 4096;
  spec.in_switch = 64;
  spec.park_patience_ns = kShortPatience;
  for (const Help help : {Help::kFallback, Help::kLeader}) {
    spec.help = help;
    spec.home = help == Help::kFallback ? Home::kSpill : Home::kWorkers;
    const Outcome outcome = run_cluster(spec);
    expect_correct(outcome);
    EXPECT_GT(outcome.counters.parked, 0u);
    if (help == Help::kFallback) {
      EXPECT_LT(static_cast<double>(outcome.end) * 1e-9, 0.8 * off);
      EXPECT_EQ(outcome.by_parker, 0u);
    } else {
      EXPECT_GT(outcome.by_parker, 0u);
    }
  }
}

/// Windows hold the lag of short turns, and a free producer's gradients are ready when it may send.
TEST(Cluster, HelpRestsWhereItDoesNotPay) {
  ClusterSpec spec = one_job(128'000'000);
  spec.slots = 256;
  spec.rto_min_ns = 5 * kMs;
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.staging = 0;
  spec.park_patience_ns = kShortPatience;
  for (const auto& [slow, period] : {std::pair{Slow::kUplink, kMs / 10}, {Slow::kProducer, kMs}}) {
    SCOPED_TRACE(slow == Slow::kUplink ? "turns of 0.1 ms" : "producer");
    spec.straggler.slow = slow;
    spec.straggler.period_ns = period;
    spec.help = Help::kOff;
    spec.home = Home::kWorkers;
    spec.window = 512;
    spec.in_switch = 0;
    const double off = seconds(spec);
    spec.window = 4096;
    spec.in_switch = 256;
    for (const auto& [name, help, home] : {std::tuple{"leader", Help::kLeader, Home::kWorkers},
                                           {"fallback", Help::kFallback, Home::kWorkers},
                                           {"spill", Help::kFallback, Home::kSpill}}) {
      spec.help = help;
      spec.home = home;
      EXPECT_LT(seconds(spec), 1.02 * off) << name;
    }
  }
}

/// A job whose first worker is slow for good: nothing can be gained.
ClusterSpec always_slow(uint64_t bytes, uint32_t workers, double factor, uint32_t slots) {
  ClusterSpec spec = one_job(bytes);
  spec.jobs[0].workers = workers;
  spec.slots = slots;
  spec.rto_min_ns = 5 * kMs;
  spec.straggler.pattern = Pattern::kPermanent;
  spec.straggler.slow = Slow::kUplink;
  spec.straggler.factor = factor;
  spec.straggler.staging = 0;
  spec.window = 512;
  return spec;
}

/// Expects it of `help`, with as many fragments in the switch as without help.
void expect_no_harm(ClusterSpec spec, Help help) {
  const double off = seconds(spec);
  spec.window = 4096;
  spec.in_switch = 512;
  spec.park_patience_ns = kShortPatience;
  spec.help = help;
  EXPECT_LT(seconds(spec), 1.02 * off);
}

/// All slots of a hashed array hardly ever have room for what comes next.
TEST(Cluster, HelpFillsNoSmallArray) {
  for (const Help help : {Help::kLeader, Help::kFallback})
    expect_no_harm(always_slow(64'000'000, 2, 1.2, 77), help);
}

TEST(Cluster, HelpIsNotTriedForAWorkerThatIsAlwaysSlow) {
  ClusterSpec spec = always_slow(96'000'000, 4, 2, 66);
  spec.straggler.pattern = Pattern::kLink;
  spec.straggler.staging = 4;
  spec.farther_ns = 8'300;
  for (const Help help : {Help::kLeader, Help::kFallback}) expect_no_harm(spec, help);
}

/// Round trips hold the waits for the slow worker, and a time-out of such a round trip would follow
/// each loss.
TEST(Cluster, ResultsOfParkedFragmentsThatGetLostAreAskedForSoon) {
  ClusterSpec spec = always_slow(35'000'000, 4, 4, 80);
  spec.straggler.staging = 4;
  spec.home = Home::kSpill;
  spec.fabric.racks[0].link.loss = 0.001;
  for (spec.seed = 1; spec.seed <= 4; ++spec.seed) expect_no_harm(spec, Help::kFallback);
}

/// Results of parked fragments would go over the one leader's link.
TEST(Cluster, HelpIsNotTriedWithTwoWorkersWhoseLinksTakeTurns) {
  ClusterSpec spec = always_slow(114'000'000, 2, 8, 390);
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.period_ns = 1'386'000;
  for (const Help help : {Help::kLeader, Help::kFallback}) expect_no_harm(spec, help);
}

/// Less is lost to these stragglers than help would cost.
TEST(Cluster, HelpThatCouldNotPayIsNotTried) {
  ClusterSpec spec = one_job(32'000'000);
  spec.slots = 256;
  spec.rto_min_ns = 5 * kMs;
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.factor = 1.5;
  spec.straggler.slow = Slow::kUplink;
  spec.window = 512;
  const double off = seconds(spec);
  spec.window = 4096;
  spec.in_switch = 256;
  spec.park_patience_ns = kShortPatience;
  for (const Help help : {Help::kLeader, Help::kFallback}) {
    spec.help = help;
    const Outcome outcome = run_cluster(spec);
    EXPECT_EQ(outcome.counters.parked, 0u);
    EXPECT_LT(static_cast<double>(outcome.end) * 1e-9, 1.02 * off);
  }
}

/// The headline of docs/evaluation.md, with half of the bytes: 58, 46 and 46 % are saved there.
TEST(Cluster, HelpShortensIterationsWhileASlowUplinkGoesRound) {
  ClusterSpec spec = one_job(128'000'000);
  spec.slots = 256;
  spec.window = 512;
  spec.rto_min_ns = 5 * kMs;
  spec.straggler.slow = Slow::kUplink;
  spec.straggler.pattern = Pattern::kRotating;
  spec.straggler.period_ns = kMs;
  const double off = seconds(spec);
  spec.window = 4096;
  const double run_ahead = seconds(spec);
  spec.aggregator_window = false;
  const double unlimited = seconds(spec);
  spec.aggregator_window = true;
  spec.in_switch = 256;
  spec.park_patience_ns = kShortPatience;
  const auto with = [&spec](Help help, Home home) {
    spec.help = help;
    spec.home = home;
    return seconds(spec);
  };
  const double spill = with(Help::kFallback, Home::kSpill);
  EXPECT_LT(spill, 0.5 * off);
  EXPECT_LT(spill, 0.5 * run_ahead) << "which has the same slots";
  EXPECT_LT(spill, 0.5 * unlimited) << "without A2TP's window";
  EXPECT_LT(with(Help::kFallback, Home::kWorkers), 0.65 * off);
  EXPECT_LT(with(Help::kLeader, Home::kWorkers), 0.65 * off);
}

TEST(Cluster, WithoutStragglersHelpCostsNothing) {
  ClusterSpec spec = one_job(16'000'000);
  const double off = seconds(spec);
  spec.window = 4096;
  spec.in_switch = 64;
  spec.park_patience_ns = kShortPatience;
  for (const Help help : {Help::kFallback, Help::kLeader}) {
    spec.help = help;
    EXPECT_LT(seconds(spec), 1.02 * off);
  }
}

/// All have sent such a fragment when later ones have results. So nobody waits long for its own.
TEST(Cluster, TheLostResultOfAParkedFragmentIsAskedForBeforeATimeOut) {
  ClusterSpec spec = one_job(16'000'000);
  spec.jobs[0].workers = 16;
  spec.fabric.racks[0].link.loss = 0.001;
  spec.home = Home::kSpill;
  spec.rto_min_ns = 20 * kMs;
  spec.rto_max_ns = 40 * kMs;
  const double off = seconds(spec);
  spec.window = 4096;
  spec.in_switch = 64;
  spec.park_patience_ns = kShortPatience;
  spec.help = Help::kFallback;
  for (spec.seed = 1; spec.seed <= 3; ++spec.seed) EXPECT_LT(seconds(spec), 1.5 * off) << spec.seed;
}

}  // namespace
}  // namespace ina::sim
