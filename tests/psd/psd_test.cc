// The dedicated fallback server as a process of its own, beside a switch and its workers: jobs wait
// for it, need it while slots are few, and survive its death.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ina/ina.h"
#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Process;
using test::TestSwitch;
using testing::HasSubstr;

TestSwitch::Options dedicated(uint32_t slots) {
  TestSwitch::Options options;
  options.slots = slots;
  options.lanes = 2;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.fallback.home = Home::kDedicated;
    config.jobs.window_bytes = 256 * 1024;
  };
  return options;
}

/// With its standard error on its standard output.
Process start_server(const TestSwitch& sw) {
  return Process({"/bin/sh", "-c", "exec " PSD " --socket " + sw.socket_path() + " 2>&1"});
}

Process worker(const TestSwitch& sw, const std::string& job, int rank, int world, int elements,
               int times) {
  return Process({LOAD_WORKER, sw.url(), job, std::to_string(rank), std::to_string(world),
                  std::to_string(elements), std::to_string(times)});
}

/// The switch's word on its first job that satisfies `is`; null if none does in time.
template <class Is>
control::Json await_job(const TestSwitch& sw, Is&& is) {
  for (int i = 0; i < 2000; ++i) {
    const auto status = sw.status();
    for (const auto& job : status["jobs"])
      if (is(job)) return job;
    ::usleep(5000);
  }
  return nullptr;
}

TEST(Psd, AJobWaitsForItAndSaysSo) {
  TestSwitch sw(dedicated(256));
  ina_config config;
  ina_config_init(&config);
  const std::string url = sw.url();
  config.url = url.c_str();
  config.job = "lonely";
  config.rank = 0;
  config.world_size = 1;
  config.timeout_us = 2'000'000;
  ina_context* context = nullptr;
  EXPECT_EQ(ina_init(&config, &context), INA_ERR_TIMEOUT);
  EXPECT_THAT(ina_last_error(nullptr),
              HasSubstr("waited 2 s for the fallback server (ina-psd) to join"));
  // It may come at any time.
  Process patient = worker(sw, "patient", 0, 1, 10, 1);
  const auto waiting = await_job(sw, [](const auto& job) { return job["joined"].size() == 1; });
  ASSERT_FALSE(waiting.is_null());
  EXPECT_EQ(waiting["state"], "joining");
  EXPECT_EQ(waiting["fallback_missing"], true);
  Process server = start_server(sw);
  EXPECT_EQ(patient.output(), "INA_OK \n");
  server.kill(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
}

TEST(Psd, IsRefusedWhereItIsNotWanted) {
  TestSwitch::Options options = dedicated(256);
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  };
  TestSwitch sw(options);
  Process server = start_server(sw);
  EXPECT_THAT(server.output(), HasSubstr("needs no fallback server: its fallback.home is workers"));
  EXPECT_EQ(server.wait(), 1);
}

TEST(Psd, OneIsEnough) {
  TestSwitch sw(dedicated(256));
  Process first = start_server(sw);
  Process job = worker(sw, "job", 0, 1, 10, 1);
  EXPECT_EQ(job.output(), "INA_OK \n");
  Process second = start_server(sw);
  EXPECT_THAT(second.output(), HasSubstr("another fallback server (pid " +
                                         std::to_string(first.pid()) + ") serves already"));
  EXPECT_EQ(second.wait(), 1);
  Process again = worker(sw, "again", 0, 1, 10, 1);
  EXPECT_EQ(again.output(), "INA_OK \n");
}

TEST(Psd, ServesJobsThatCompeteForFewSlots) {
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  std::vector<Process> workers;
  for (const char* job : {"one", "two", "three"})
    for (int rank = 0; rank < 3; ++rank) workers.push_back(worker(sw, job, rank, 3, 50'000, 10));
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
  EXPECT_GT(sw.status()["aggregator"]["fallback_results"], 0)
      << "slots were not few: nothing was tested";
}

TEST(Psd, JobsSurviveItsDeath) {
  constexpr int kDeaths = 10;
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  std::vector<Process> workers;
  for (int rank = 0; rank < 3; ++rank) workers.push_back(worker(sw, "job", rank, 3, 50'000, 2000));
  ASSERT_FALSE(await_job(sw, [](const auto& job) { return job["state"] == "running"; }).is_null());
  auto epoch = sw.status()["jobs"][0]["epoch"].get<uint32_t>();
  for (int death = 0; death < kDeaths; ++death) {
    ::usleep(static_cast<useconds_t>(3000 * death));
    server.kill(SIGKILL);
    EXPECT_EQ(server.wait(), -SIGKILL);
    if (await_job(sw, [](const auto& job) { return job["fallback_missing"] == true; }).is_null())
      break;
    // A worker that asks in between gets no answer, and asks again.
    if (death % 2 == 0) ::usleep(20'000);
    server = start_server(sw);
    const auto job = await_job(sw, [&](const auto& known) {
      return known["fallback_missing"] == false && known["epoch"] > epoch;
    });
    ASSERT_FALSE(job.is_null()) << "after death " << death;
    epoch = job["epoch"];
  }
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
}

TEST(Psd, JobsSurviveRestartsOfTheSwitch) {
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  std::vector<Process> workers;
  for (int rank = 0; rank < 3; ++rank) workers.push_back(worker(sw, "job", rank, 3, 50'000, 300));
  for (int restart = 0; restart < 5; ++restart) {
    if (await_job(sw, [](const auto& job) { return job["state"] == "running"; }).is_null()) break;
    ::usleep(static_cast<useconds_t>(7000 * restart));
    sw.stop();
    sw.start();
  }
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
}

}  // namespace
}  // namespace ina
