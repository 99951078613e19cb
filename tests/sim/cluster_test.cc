// Whole simulated clusters, beside arithmetic.
#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/sim/cluster_specs.h"

namespace ina::sim {
namespace {

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
