// Whole simulated clusters, beside arithmetic.
#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ina::sim {
namespace {

constexpr Nanos kMs = 1'000'000;
// A few round trips: no host has time slices.
constexpr Nanos kShortPatience = 20'000;

ClusterSpec one_job(uint64_t bytes, uint32_t iterations = 1) {
  ClusterSpec spec;
  spec.seed = 1;
  spec.slots = 4096;
  spec.jitter = 0;
  spec.policy.kind = scheduler::PolicyKind::kEsa;
  spec.fabric.racks[0].link.ecn_bytes = 200'000;
  spec.jobs.push_back({make_plain(bytes), 8, iterations, 0});
  return spec;
}

ClusterSpec crowd() {
  ClusterSpec spec = one_job(1);
  spec.jobs.clear();
  for (int i = 0; i < 4; ++i)
    spec.jobs.push_back({make_model(i % 2 == 0 ? "vgg16" : "resnet50", 256), 4, 3, i * kMs / 10});
  spec.slots = 32;
  spec.jitter = 0.02;
  return spec;
}

/// Large models on few slots: what has no slot meets on the link of its job's server.
ClusterSpec scarce() {
  ClusterSpec spec = one_job(1);
  spec.jobs.clear();
  const char* const models[] = {"vgg16", "bert", "gnmt"};
  for (int i = 0; i < 6; ++i)
    spec.jobs.push_back({make_model(models[i % 3], 256), 8, 2, i * kMs / 4});
  spec.slots = 16;
  spec.home = Home::kDedicated;
  spec.jitter = 0.02;
  return spec;
}

double seconds(const ClusterSpec& spec) {
  const Outcome outcome = run_cluster(spec);
  EXPECT_EQ(outcome.violations, std::vector<std::string>{});
  return static_cast<double>(outcome.end) * 1e-9;
}

void expect_correct(const Outcome& outcome) {
  EXPECT_EQ(outcome.violations, std::vector<std::string>{});
  EXPECT_GT(outcome.sums_checked, 0u);
}

Outcome correct(const ClusterSpec& spec) {
  Outcome outcome = run_cluster(spec);
  expect_correct(outcome);
  return outcome;
}

/// From each job's arrival to its end.
double average_seconds(const Outcome& outcome) {
  double sum = 0;
  for (const JobResult& job : outcome.jobs)
    sum += static_cast<double>(job.finished - job.arrival) * 1e-9;
  return sum / static_cast<double>(outcome.jobs.size());
}

TEST(Cluster, AloneItTakesBytesOverBandwidth) {
  for (const uint64_t gbps : {10, 25, 100}) {
    ClusterSpec spec = one_job(16'000'000);
    spec.fabric.racks[0].link.rate_bps = gbps * 1'000'000'000;
    // Each fragment of 8192 bytes has 138 around it.
    const double ideal = 16e6 * 8 * (8192 + 138) / 8192 / (static_cast<double>(gbps) * 1e9);
    EXPECT_NEAR(seconds(spec) / ideal, 1, 0.02) << gbps << " Gb/s";
  }
}

TEST(Cluster, FallbackInTheWorkersCostsFcfsItsShareOfTheLink) {
  ClusterSpec spec = one_job(16'000'000);
  const double esa = seconds(spec);
  spec.policy.kind = scheduler::PolicyKind::kFcfs;
  // Each worker is sent, and gives out, an eighth of the sums besides.
  EXPECT_NEAR(seconds(spec) / esa, 1 + 1.0 / 8, 0.03);
}

TEST(Cluster, WithoutSlotsEachContributionGoesAroundByTheFallback) {
  ClusterSpec spec = one_job(16'000'000);
  spec.policy.kind = scheduler::PolicyKind::kFcfs;
  spec.slots = 1;
  const Outcome outcome = run_cluster(spec);
  expect_correct(outcome);
  EXPECT_GT(outcome.counters.bypassed, outcome.counters.absorbed);
  EXPECT_EQ(outcome.by_fallback, outcome.fragments);
}

TEST(Cluster, ComputationIsTheModels) {
  ClusterSpec spec = one_job(1);
  spec.jobs[0] = {make_model("dlrm", 1), 2, 4, 0};
  const double compute = 4 * static_cast<double>(spec.jobs[0].model.compute_ns()) * 1e-9;
  const double total = seconds(spec);
  EXPECT_GT(total, compute);
  EXPECT_LT(total, 1.3 * compute);
}

TEST(Cluster, ModelsHaveTheirPublishedSizes) {
  const std::pair<const char*, double> millions[] = {
      {"resnet50", 25.6}, {"vgg16", 138.4}, {"bert", 336}, {"gnmt", 160}, {"dlrm", 2.4}};
  for (const auto& [name, parameters] : millions)
    EXPECT_NEAR(static_cast<double>(make_model(name, 1).parameter_bytes()) / 4e6 / parameters, 1,
                0.03)
        << name;
}

TEST(Cluster, SameSeedSameResult) {
  const ClusterSpec spec = crowd();
  const Outcome first = run_cluster(spec);
  const Outcome second = run_cluster(spec);
  expect_correct(first);
  EXPECT_EQ(first.end, second.end);
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.counters.preemptions, second.counters.preemptions);
  ClusterSpec other = spec;
  other.seed = 2;
  EXPECT_NE(run_cluster(other).end, first.end);
}

TEST(Cluster, ValuesThinnedOutOrNotTakeTheSameTime) {
  ClusterSpec spec = crowd();
  const Outcome thin = run_cluster(spec);
  spec.value_bytes = spec.fragment_bytes;
  const Outcome full = run_cluster(spec);
  expect_correct(thin);
  expect_correct(full);
  EXPECT_NEAR(static_cast<double>(thin.end), static_cast<double>(full.end),
              0.01 * static_cast<double>(full.end));
}

TEST(Cluster, ComputedLinksAndDevicesAgree) {
  ClusterSpec spec = one_job(4'000'000);
  spec.policy.kind = scheduler::PolicyKind::kFcfs;
  spec.aggregator_window = false;  // it depends on which of two frames of one nanosecond is first
  const Outcome computed = run_cluster(spec);
  spec.fabric.links = ns3net::Links::kDevices;
  const Outcome devices = run_cluster(spec);
  expect_correct(computed);
  expect_correct(devices);
  EXPECT_EQ(computed.frames, devices.frames);
  EXPECT_NEAR(static_cast<double>(computed.end), static_cast<double>(devices.end),
              0.005 * static_cast<double>(devices.end));
}

TEST(Cluster, EveryPolicyAndHomeFinishesWithRightSums) {
  for (const auto kind :
       {scheduler::PolicyKind::kStatic, scheduler::PolicyKind::kFcfs, scheduler::PolicyKind::kEsa})
    for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill}) {
      ClusterSpec spec = crowd();
      spec.policy.kind = kind;
      spec.home = home;
      SCOPED_TRACE(testing::Message()
                   << "policy " << static_cast<int>(kind) << " home " << static_cast<int>(home));
      expect_correct(run_cluster(spec));
    }
}

/// docs/evaluation.md has 5 seeds, and fcfs at its best of all windows and ways.
TEST(Cluster, WhereSlotsAreScarceEsaIsFasterThanFcfs) {
  ClusterSpec spec = scarce();
  const double esa = average_seconds(correct(spec));
  spec.policy.kind = scheduler::PolicyKind::kFcfs;
  EXPECT_LT(esa, 0.8 * average_seconds(correct(spec))) << "with the same ways and window";
  spec.aggregator_window = false;
  for (const uint32_t window : {4, 8, 16}) {
    spec.window = window;
    EXPECT_LT(esa, 0.8 * average_seconds(correct(spec))) << window << " fragments";
  }
}

TEST(Cluster, TheWindowKeepsFourWaysFromOverrunningAServer) {
  ClusterSpec spec = scarce();
  for (JobPlan& job : spec.jobs) job.workers = 64;
  const uint64_t with = correct(spec).queue_drops;
  spec.aggregator_window = false;
  const uint64_t without = correct(spec).queue_drops;
  EXPECT_GT(without, 1000u);
  EXPECT_LT(with, without / 20);
}

/// What all workers together have under way meets on the server's link.
TEST(Cluster, ManyWorkersDoNotOverrunAServer) {
  ClusterSpec spec = one_job(1);
  spec.seed = 2;
  spec.jobs = {{make_model("gnmt", 64), 24, 2, 0}, {make_model("vgg16", 64), 24, 2, kMs / 6}};
  spec.slots = 32;
  spec.home = Home::kDedicated;
  spec.jitter = 0.02;
  const double esa = average_seconds(correct(spec));
  spec.policy.kind = scheduler::PolicyKind::kFcfs;
  spec.aggregator_window = false;
  spec.window = 8;
  EXPECT_LT(esa, 1.02 * average_seconds(correct(spec)));
}

/// Up to five jobs of different models that arrive one after the other, as in
/// `./dev bench jct --points-seed`.
ClusterSpec mixed(uint64_t seed, uint32_t jobs, uint32_t workers, double scale, uint32_t slots) {
  ClusterSpec spec = one_job(1);
  spec.seed = seed;
  spec.jobs.clear();
  const char* const models[] = {"vgg16", "resnet50", "bert", "dlrm", "gnmt"};
  for (uint32_t i = 0; i < jobs; ++i)
    spec.jobs.push_back({make_model(models[i], scale), workers, 2, i * kMs / 8});
  spec.slots = slots;
  spec.jitter = 0.02;
  spec.fabric.racks[0].link.queue_bytes = 1'000'000;
  return spec;
}

/// Time with the windows that are the default, beside that without the one for aggregators and
/// that with `window` alone.
void expect_right_windows(std::vector<ClusterSpec> specs, uint32_t window, double at_most) {
  double esa = 0, without = 0, small = 0;
  for (ClusterSpec& spec : specs) {
    esa += average_seconds(correct(spec));
    spec.aggregator_window = false;
    without += average_seconds(correct(spec));
    spec.window = window;
    small += average_seconds(correct(spec));
  }
  EXPECT_LT(esa / std::min(without, small), at_most)
      << "without A2TP's window " << without << ", with a window of " << window << " alone "
      << small << ", with the default " << esa;
}

/// Slots are held for as long as one worker is farther away than the others.
TEST(Cluster, OneFarWorkerIsNoReasonForSmallWindows) {
  for (const int64_t us : {3, 12, 30, 50}) {
    SCOPED_TRACE(us);
    std::vector<ClusterSpec> specs;
    for (const uint64_t seed : {1, 2, 3}) {
      specs.push_back(mixed(seed, 5, 4, 64, 64));
      specs.back().farther_ns = us * 1000;
    }
    expect_right_windows(specs, 64, 1.05);
  }
}

/// Slots are held for as long as a lost contribution is missing.
TEST(Cluster, LossesAreNoReasonForSmallWindows) {
  std::vector<ClusterSpec> specs;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    specs.push_back(mixed(seed, 2, 48, 256, 16));
    specs.back().fabric.racks[0].link.loss = 0.001;
  }
  expect_right_windows(specs, 8, 1.04);
}

/// Hardly any fragment finds a slot: all contributions meet on the links of the jobs' servers.
TEST(Cluster, ServersAreNotOverrunWhereNothingFindsASlot) {
  std::vector<ClusterSpec> specs;
  for (const uint64_t seed : {1, 2, 4}) {
    specs.push_back(mixed(seed, 5, 24, 256, 4));
    specs.back().home = Home::kDedicated;
  }
  expect_right_windows(specs, 4, 1.1);
}

TEST(Cluster, StaticJobsWaitForAPool) {
  ClusterSpec spec = crowd();
  spec.policy.kind = scheduler::PolicyKind::kStatic;
  spec.static_pools = 1;
  const Outcome outcome = run_cluster(spec);
  expect_correct(outcome);
  for (size_t i = 1; i < outcome.jobs.size(); ++i)
    EXPECT_GE(outcome.jobs[i].admitted, outcome.jobs[i - 1].finished) << i;
}

TEST(Cluster, LossIsRecovered) {
  for (const Home home : {Home::kWorkers, Home::kDedicated, Home::kSpill}) {
    ClusterSpec spec = one_job(4'000'000, 2);
    spec.fabric.racks[0].link.loss = 0.001;
    spec.home = home;
    const Outcome outcome = run_cluster(spec);
    expect_correct(outcome);
    EXPECT_GT(outcome.losses, 0u);
    EXPECT_GT(outcome.queries, 0u);
  }
}

TEST(Cluster, MarksReachTheWorkers) {
  // Eight contributions to each fragment meet at one server's link.
  ClusterSpec spec = one_job(8'000'000);
  spec.policy.kind = scheduler::PolicyKind::kFcfs;
  spec.slots = 1;
  spec.home = Home::kDedicated;
  spec.aggregator_window = false;  // that alone keeps the queue short
  spec.fabric.racks[0].link.queue_bytes = 3'000'000;
  const Outcome marked = run_cluster(spec);
  expect_correct(marked);
  EXPECT_GT(marked.marks, 0u);
  spec.fabric.racks[0].link.ecn_bytes = 0;
  const Outcome unmarked = run_cluster(spec);
  expect_correct(unmarked);
  EXPECT_LT(marked.queue_drops, unmarked.queue_drops);
}

TEST(Cluster, TwoRacksShareTheUplink) {
  ClusterSpec spec = one_job(16'000'000);
  spec.fabric.racks.push_back(spec.fabric.racks[0]);
  spec.fabric.racks[1].uplink.rate_bps = 400'000'000'000;
  const double wide = seconds(spec);
  spec.fabric.racks[1].uplink.rate_bps = 200'000'000'000;  // four workers at 100 Gb/s are behind it
  spec.fabric.racks[1].uplink.queue_bytes = 100'000'000;
  EXPECT_NEAR(seconds(spec) / wide, 2, 0.1);
}

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

TEST(Cluster, WhatDoesNotEndIsAViolation) {
  ClusterSpec spec = crowd();
  spec.limit_ns = kMs / 10;  // not even the first job is done by then
  EXPECT_FALSE(run_cluster(spec).violations.empty());
}

TEST(Cluster, SaysWhatMakesNoSense) {
  const auto refused = [](auto&& change) {
    ClusterSpec spec = one_job(1000);
    change(spec);
    try {
      run_cluster(spec);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refused([](ClusterSpec& s) { s.jobs[0].workers = 65; }),
            "a job has 1 to 64 workers, not 65");
  EXPECT_EQ(refused([](ClusterSpec& s) { s.slots = 0; }), "there must be at least one slot");
  EXPECT_EQ(refused([](ClusterSpec& s) { s.value_bytes = 96; }),
            "96 bytes of values do not divide a fragment of 8192 bytes");
  EXPECT_EQ(refused([](ClusterSpec& s) {
              s.policy.kind = scheduler::PolicyKind::kStatic;
              s.help = Help::kLeader;
            }),
            "straggler help does not go with the policy static");
  EXPECT_THROW(make_model("alexnet", 1), std::invalid_argument);
}

}  // namespace
}  // namespace ina::sim
