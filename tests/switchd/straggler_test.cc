// Straggler help in the whole switch, with real clients: a slow worker keeps nobody waiting, sums
// stay right, and nothing is left behind, also if processes die meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "aggregator/aggregator.h"
#include "common/clock.h"
#include "ina/ina.hpp"
#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using control::Json;
using test::Process;
using test::SwitchProcess;
using test::TestSwitch;
using testing::HasSubstr;

constexpr size_t kElements =
    512 * 256;  // 512 fragments of 1 KiB: 8 times what may be in the switch
constexpr uint32_t kInSwitch = 64;

struct Way {
  const char* name;
  const char* policy;
  Home home;
  uint64_t park_bytes;
  uint32_t lanes;
};

TestSwitch::Options options_of(const Way& way) {
  TestSwitch::Options options;
  options.slots = 512;
  options.lanes = way.lanes;
  options.conductor = [way](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = value_in(scheduler::kPolicyNames, way.policy).value();
    config.rules.home = way.home;
    config.jobs.window_bytes = kInSwitch * 1024;
    config.straggler = {config::Help::kLeader, 1 << 20, way.park_bytes, 1'000'000};
  };
  return options;
}

/// The one that has a straggler.
Json job_of(const Json& status) {
  for (const Json& job : status.at("jobs"))
    if (job.at("name") == "job") return job;
  return Json::object();
}

template <class Switch>
Json await_status(const Switch& sw, const std::function<bool(const Json&)>& condition,
                  Nanos patience_ns = 20'000'000'000) {
  const Nanos deadline = now_ns() + patience_ns;
  for (;;) {
    const Json status = sw.status();
    if (condition(status) || now_ns() > deadline) return status;
    ::usleep(2000);
  }
}

uint64_t parked_now(const Json& status) {
  return status.is_null() ? 0 : job_of(status).value("parked_now", uint64_t{0});
}

class Worker {
 public:
  Worker(const std::string& url, int rank, int world, const char* job = "job")
      : rank_(rank), world_(world), context_(config(url, rank, world, job)) {}

  void sum(int round) {
    std::vector<int32_t> data(kElements);
    for (size_t i = 0; i < data.size(); ++i) data[i] = value_of(i, round) * (rank_ + 1);
    context_.allreduce<int32_t>(data);
    for (size_t i = 0; i < data.size(); ++i)
      ASSERT_EQ(data[i], value_of(i, round) * world_ * (world_ + 1) / 2) << "element " << i;
  }
  void leave() { context_.finalize(); }

 private:
  static ina_config config(const std::string& url, int rank, int world, const char* job) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = job;
    config.rank = rank;
    config.world_size = world;
    config.timeout_us = 20'000'000;
    return config;
  }
  static int32_t value_of(size_t i, int round) { return static_cast<int32_t>(i % 1000) + round; }
  int rank_;
  int world_;
  Context context_;
};

class StragglerHelp : public testing::TestWithParam<Way> {
 protected:
  static uint64_t run_once();
};

/// Returns how many results workers have completed that kept the sums.
uint64_t StragglerHelp::run_once() {
  constexpr int kWorkers = 3;
  TestSwitch sw(options_of(GetParam()));
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank)
    threads.emplace_back([&, rank] {
      Worker worker(sw.url(), rank, kWorkers);
      // Rank 2 begins each sum only when the others have sent all of theirs.
      if (rank == 2)
        while (!go) ::usleep(1000);
      worker.sum(1);
      for (int round = 2; round < 6; ++round) {
        if (rank == round % kWorkers) ::usleep(30'000);
        worker.sum(round);
      }
      worker.leave();
    });
  const Json waiting =
      await_status(sw, [](const Json& status) { return parked_now(status) >= 512 - kInSwitch; });
  const Json job = job_of(waiting);
  EXPECT_GE(parked_now(waiting), 512 - kInSwitch) << job.dump();
  EXPECT_EQ(job.value("in_switch", 0u), kInSwitch);
  EXPECT_EQ(job.value("window", 0u), 1024u);
  // Those two may be apart, and late contributions of one wait in a slot for the other.
  const bool combines = GetParam().home == Home::kWorkers;
  EXPECT_LE(job.value("slots_held", 999u), kInSwitch + (combines ? aggregator::kNearFragments : 0));
  go = true;
  for (auto& thread : threads) thread.join();
  const Json status = await_status(sw, [](const Json& s) { return s["jobs"].empty(); });
  const Json& aggregator = status["aggregator"];
  EXPECT_GT(aggregator["parked"], 512u - kInSwitch);
  EXPECT_EQ(aggregator["slots_used"], 0u);
  EXPECT_EQ(aggregator["memory_used_bytes"], 0u);
  EXPECT_EQ(aggregator["absorbed"].get<uint64_t>() + aggregator["bypassed"].get<uint64_t>(),
            aggregator["contributions_in_results"].get<uint64_t>() +
                aggregator["contributions_moved"].get<uint64_t>() +
                aggregator["contributions_discarded"].get<uint64_t>())
      << "I5: contributions";
  return aggregator["parker_results"];
}

TEST_P(StragglerHelp, LetsTheOthersGoOn) {
  if (GetParam().park_bytes == 0) {
    EXPECT_EQ(run_once(), 0u);
    return;
  }
  // A leader that has no core for longer than a time-out is asked for all that it keeps.
  uint64_t kept = 0;
  for (int tries = 0; tries < 5 && kept == 0 && !HasFailure(); ++tries) kept = run_once();
  EXPECT_GT(kept, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, StragglerHelp,
                         testing::Values(Way{"Leader", "esa", Home::kWorkers, 1 << 20, 1},
                                         Way{"LeaderWithLittleRoom", "esa", Home::kWorkers,
                                             64 << 10, 1},
                                         Way{"LeaderOnTwoLanes", "fcfs", Home::kSpill, 1 << 20, 2},
                                         Way{"Fallback", "esa", Home::kWorkers, 0, 1},
                                         Way{"Spill", "esa", Home::kSpill, 0, 2}),
                         [](const auto& test) { return test.param.name; });

/// Processes of which one is stopped, so that sums of the others are parked.
class StragglerProcesses {
 public:
  static constexpr int kWorkers = 3;
  template <class Switch>
  explicit StragglerProcesses(const Switch& sw, const char* times = "-1") {
    for (int rank = 0; rank < kWorkers; ++rank)
      workers.push_back(std::make_unique<Process>(std::vector<std::string>{
          LOAD_WORKER, sw.url(), "job", std::to_string(rank), std::to_string(kWorkers),
          std::to_string(8 * kElements), times}));
    const auto running = [](const Json& s) { return job_of(s).value("absorbed", 0u) > 5000; };
    const auto parked = [](const Json& s) { return parked_now(s) > 100; };
    await_status(sw, running);
    Json status;
    for (int i = 0; i < 20 && !parked(status); ++i) {  // it may stop at the very end of a sum
      workers[2]->kill(SIGCONT);
      ::usleep(5000);
      workers[2]->kill(SIGSTOP);
      status = await_status(sw, parked, 1'000'000'000);
    }
    EXPECT_GT(parked_now(status), 100u) << status.dump();
  }
  std::vector<std::unique_ptr<Process>> workers;
};

void expect_nothing_left(const TestSwitch& sw) {
  const Json status = await_status(sw, [](const Json& s) { return s["jobs"].empty(); });
  EXPECT_EQ(status["jobs"].size(), 0u);
  EXPECT_EQ(status["aggregator"]["slots_used"], 0u);
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], 0u);
}

/// Another job, in this process, that sums all the while.
class Bystander {
 public:
  explicit Bystander(const TestSwitch& sw) : thread_([this, url = sw.url()] { run(url); }) {}
  ~Bystander() { leave(); }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  /// Has done this many sums by now, all of them right.
  int sums() const { return sums_; }
  void leave() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(const std::string& url) {
    Worker worker(url, 0, 1, "bystander");
    while (!stop_ && !testing::Test::HasFatalFailure()) worker.sum(++sums_);
    worker.leave();
  }
  std::atomic<bool> stop_{false};
  std::atomic<int> sums_{0};
  std::thread thread_;
};

class StragglerDies : public testing::TestWithParam<int> {};

TEST_P(StragglerDies, AndTheOthersAreToldAtOnce) {
  const int doomed = GetParam();
  TestSwitch sw(options_of({"", "esa", Home::kWorkers, 1 << 20, 1}));
  Bystander bystander(sw);
  StragglerProcesses job(sw);
  const int before = bystander.sums();
  job.workers[static_cast<size_t>(doomed)]->kill(SIGKILL);
  if (doomed != 2) job.workers[2]->kill(SIGCONT);
  for (int rank = 0; rank < StragglerProcesses::kWorkers; ++rank) {
    Process& worker = *job.workers[static_cast<size_t>(rank)];
    const std::string said = worker.output();
    worker.wait();
    if (rank != doomed) {
      EXPECT_THAT(said, HasSubstr("INA_ERR_PEER_LOST rank " + std::to_string(doomed)));
    }
  }
  await_status(sw, [&](const Json&) { return bystander.sums() > before + 10; });
  EXPECT_GT(bystander.sums(), before + 10) << "another job goes on";
  bystander.leave();
  expect_nothing_left(sw);
}

// Rank 0 keeps parked sums, they wait for rank 2.
INSTANTIATE_TEST_SUITE_P(Of, StragglerDies, testing::Values(0, 2));

class StragglerRestart : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(StragglerRestart, OfTheSwitchLosesNothingThatIsParked) {
  const auto [home, help] = GetParam();
  SwitchProcess sw(SWITCH_PROCESS, 10'000, 1, "esa", home, help);
  StragglerProcesses job(sw, "20");
  sw.kill(SIGKILL);
  sw.start();
  job.workers[2]->kill(SIGCONT);
  for (auto& worker : job.workers) {
    const std::string said = worker->output();
    EXPECT_EQ(worker->wait(), 0) << said;
    EXPECT_THAT(said, HasSubstr("INA_OK"));
  }
  const Json status = await_status(sw, [](const Json& s) { return s["jobs"].empty(); });
  EXPECT_EQ(status["aggregator"]["slots_used"], 0u);
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], 0u);
}

INSTANTIATE_TEST_SUITE_P(With, StragglerRestart,
                         testing::Values(std::tuple{"workers", "leader"},
                                         std::tuple{"workers", "fallback"},
                                         std::tuple{"spill", "fallback"}));

}  // namespace
}  // namespace ina
