// A job's resources under policies that share the slots, as a worker and an operator see them on
// the control socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "io/shm/layout.h"
#include "switchd/memory/handles.h"
#include "tests/support/raw_worker.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::TestSwitch;
using testing::HasSubstr;

/// A connection on which a job was asked for, with the switch's answer.
struct Joined {
  control::Connection connection;
  Json answer;
};

Joined join(const TestSwitch& sw, const std::string& job, uint64_t window_bytes = 0,
            int workers = 2) {
  auto connection = control::Connection::open(sw.socket_path(), 5'000'000'000);
  EXPECT_TRUE(connection);
  EXPECT_TRUE(connection->send({{"type", "join"},
                                {"version", control::kControlVersion},
                                {"job", job},
                                {"rank", 0},
                                {"world_size", workers},
                                {"window_bytes", window_bytes},
                                {"transport", "shm"}}));
  auto answer = connection->receive(5'000'000'000);
  EXPECT_TRUE(answer && *answer);
  return {std::move(*connection), (*answer)->body};
}

TestSwitch::Options shared(std::function<void(switchd::ConductorConfig&)> more = {}) {
  TestSwitch::Options options;
  options.slots = 64;
  options.lanes = 2;
  options.conductor = [more](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.jobs.window_bytes = 256 * 1024;
    if (more) more(config);
  };
  return options;
}

TEST(Resources, TheWindowIsBytesAndNotBoundToTheSlots) {
  TestSwitch sw(shared());
  const Joined whole = join(sw, "whole");
  EXPECT_EQ(whole.answer["type"], "joined") << whole.answer;
  EXPECT_EQ(whole.answer["window"], 256);
  EXPECT_EQ(whole.answer["shm"]["result_rows"], 512);
  const Joined less = join(sw, "less", 10'000);
  EXPECT_EQ(less.answer["window"], 8) << "9 fragments on two lanes";
  const Joined more = join(sw, "more", 1 << 30);
  EXPECT_EQ(more.answer["window"], 256) << "no more than the switch's own";
}

TEST(Resources, WorkersAreToldTheRules) {
  TestSwitch sw(shared([](switchd::ConductorConfig& config) {
    config.rules.home = Home::kWorkers;
    config.rules.rto_min_ns = 1'234'000;
    config.rules.rto_max_ns = 5'678'000;
    config.rules.ecn = false;
    config.rules.aggregator_window = true;
    config.jobs.priority_max = 99;
  }));
  const Joined job = join(sw, "job");
  EXPECT_EQ(job.answer["policy"], "esa");
  EXPECT_EQ(job.answer["home"], "workers");
  EXPECT_EQ(job.answer["instance"], 0);
  EXPECT_EQ(job.answer["rto_min_us"], 1234);
  EXPECT_EQ(job.answer["rto_max_us"], 5678);
  EXPECT_EQ(job.answer["ecn"], false);
  EXPECT_EQ(job.answer["aggregator_window"], true);
  EXPECT_EQ(job.answer["priority_max"], 99);
}

TEST(Resources, FloorsThatDoNotFitAreRefused) {
  TestSwitch sw(shared([](switchd::ConductorConfig& config) {
    config.jobs.slots_floor = 24;
    config.jobs.slots_ceiling = 32;
  }));
  const Joined first = join(sw, "first");
  {
    const Joined second = join(sw, "second");
    EXPECT_EQ(second.answer["type"], "joined");
    EXPECT_EQ(sw.status()["aggregator"]["slots_reserved"], 48);
    EXPECT_EQ(sw.status()["jobs"][1]["slots_floor"], 24);
    EXPECT_EQ(sw.status()["jobs"][1]["slots_ceiling"], 32);
    const Joined third = join(sw, "third");
    EXPECT_EQ(third.answer["type"], "refused");
    EXPECT_THAT(third.answer["text"], HasSubstr("job 'third' does not fit: its floor needs 24"));
    EXPECT_THAT(third.answer["text"], HasSubstr("16 of 64"));
  }
  // Their places come free.
  for (int i = 0; i < 500 && sw.status()["jobs"].size() != 1; ++i) ::usleep(10'000);
  EXPECT_EQ(join(sw, "fourth").answer["type"], "joined");
}

TEST(Resources, JobsThatDoNotFitTheMemoryAreRefused) {
  TestSwitch sw(
      shared([](switchd::ConductorConfig& config) { config.jobs.memory_bytes = 4 << 20; }));
  {
    const Joined first = join(sw, "first");
    ASSERT_EQ(first.answer["type"], "joined") << first.answer;
    const auto status = sw.status();
    const auto used = status["aggregator"]["memory_used_bytes"].get<uint64_t>();
    EXPECT_EQ(status["jobs"][0]["memory_bytes"], used);
    // At least the results, and the receive rings of the two workers.
    EXPECT_GE(used, 512u * 1024 + 2 * (256u * 1024));
    std::vector<Joined> others;
    for (int i = 0; i < 8; ++i) others.push_back(join(sw, "job-" + std::to_string(i)));
    EXPECT_EQ(others.back().answer["type"], "refused");
    EXPECT_THAT(others.back().answer["text"],
                HasSubstr("it needs " + std::to_string(used) + " bytes of memory"));
    EXPECT_THAT(others.back().answer["text"], HasSubstr("of 4194304 are free"));
  }
  for (int i = 0; i < 500 && !sw.status()["jobs"].empty(); ++i) ::usleep(10'000);
  EXPECT_EQ(sw.status()["aggregator"]["memory_used_bytes"], 0);
  EXPECT_EQ(join(sw, "again").answer["type"], "joined");
}

TEST(Resources, OneWorkerThatTakesNoResultBuffersIsEnoughForNone) {
  const TestSwitch sw;
  const auto answers = [&](const std::string& job, const Json& more) {
    test::RawWorker plain(sw.socket_path(), job, 0, 2);
    test::RawWorker other(sw.socket_path(), job, 1, 2, more);
    Json found;
    for (test::RawWorker* worker : {&plain, &other}) {
      EXPECT_TRUE(worker->hear_until("ready"));
      EXPECT_TRUE(worker->control.send({{"type", "share_results"}, {"bytes", 4096}}));
    }
    for (test::RawWorker* worker : {&plain, &other}) {
      const Json answer = worker->hear();
      EXPECT_EQ(answer["status"], INA_OK);
      found.push_back(answer["first_unit"]);
    }
    return found;
  };
  EXPECT_EQ(answers("both", Json::object()), Json({0, 0}));
  EXPECT_EQ(answers("one", {{"result_buffers", false}}), Json({nullptr, nullptr}));
}

// ---- tenants: here one, the user who runs this test

std::string me() {
  return "uid:" + std::to_string(::geteuid());
}

Json use_of(const TestSwitch& sw, const std::string& tenant) {
  const Json status = sw.status();
  for (const Json& entry : status["tenants"])
    if (entry["name"] == tenant) return entry;
  return Json();
}

TEST(Tenants, JobsWorkersAndSlotsAreLimited) {
  TestSwitch sw(shared([](switchd::ConductorConfig& config) {
    config.tenants = {
        {.name = me(), .slots_ceiling = 40, .jobs_max = 2, .workers_max = 5, .priority_max = 77}};
  }));
  const Joined first = join(sw, "first");
  ASSERT_EQ(first.answer["type"], "joined") << first.answer;
  EXPECT_EQ(first.answer["priority_max"], 77);
  const Json job = sw.status()["jobs"][0];
  EXPECT_EQ(job["slots_ceiling"], 20);
  EXPECT_EQ(job["priority_max"], 77);
  {
    const Joined second = join(sw, "second");
    ASSERT_EQ(second.answer["type"], "joined") << second.answer;
    const Joined third = join(sw, "third");
    EXPECT_THAT(third.answer["text"], HasSubstr("job 'third' does not fit: tenant '" + me() +
                                                "' has 2 of 2 jobs: short by 1"));
    const Json use = use_of(sw, me());
    EXPECT_EQ(use["jobs"], 2);
    EXPECT_EQ(use["workers"], 4);
    EXPECT_EQ(use["slots_ceiling"], 40);
    EXPECT_EQ(use["quota"]["workers_max"], 5);
  }
  for (int i = 0; i < 500 && sw.status()["jobs"].size() != 1; ++i) ::usleep(10'000);
  const Joined large = join(sw, "large", 0, 4);
  EXPECT_THAT(large.answer["text"],
              HasSubstr("it has 4 workers, tenant '" + me() + "' has 3 of 5 places left"));
}

TEST(Tenants, MemoryIsLimitedAndResultBuffersCountToo) {
  uint64_t job_bytes = 0;
  {
    TestSwitch sw(shared());
    const Joined job = join(sw, "job");
    job_bytes = sw.status()["jobs"][0]["memory_bytes"];
  }
  TestSwitch sw(shared([&](switchd::ConductorConfig& config) {
    config.tenants = {{.name = me(), .memory_bytes = job_bytes + 8192}};
  }));
  test::RawWorker first(sw.socket_path(), "job", 0, 2);
  test::RawWorker second(sw.socket_path(), "job", 1, 2);
  ASSERT_TRUE(first.hear_until("ready") && second.hear_until("ready"));
  const auto share = [&](uint64_t bytes) {
    for (test::RawWorker* worker : {&first, &second})
      EXPECT_TRUE(worker->control.send({{"type", "share_results"}, {"bytes", bytes}}));
    second.hear();
    return first.hear();
  };
  EXPECT_EQ(share(8192)["status"], INA_OK);
  EXPECT_EQ(use_of(sw, me())["memory_bytes"], job_bytes + 8192);
  EXPECT_THAT(share(1024)["text"], HasSubstr("tenant '" + me() + "' has 0 of " +
                                             std::to_string(job_bytes + 8192) + " left"));
  for (test::RawWorker* worker : {&first, &second})
    EXPECT_TRUE(worker->control.send({{"type", "free_results"}, {"first_unit", 0}}));
  EXPECT_EQ(share(4096)["status"], INA_OK);
  EXPECT_EQ(use_of(sw, me())["memory_bytes"], job_bytes + 4096);
}

TEST(Tenants, AnAbsentTenantsFloorIsNotGivenToOthers) {
  TestSwitch sw({.slots = 256, .slots_per_job = 64, .conductor = [](auto& config) {
                   config.tenants = {{.name = "red", .slots_floor = 192}};
                 }});
  const Joined first = join(sw, "first");
  EXPECT_EQ(first.answer["type"], "joined");
  const Joined second = join(sw, "second");
  EXPECT_THAT(second.answer["text"], HasSubstr("0 of 256 are free"));
  EXPECT_EQ(use_of(sw, "red")["quota"]["slots_floor"], 192);
  EXPECT_EQ(use_of(sw, "red")["jobs"], 0);
}

TEST(Tenants, ConnectionsThatOutliveTheirJobsAreLimitedAndClosed) {
  TestSwitch sw({.conductor = [](switchd::ConductorConfig& config) {
    config.tenants = {{.name = me(), .workers_max = 2}};
    config.control.join_timeout_ns = 300'000'000;
  }});
  std::vector<Joined> ended;
  for (int i = 0; i < 4; ++i) {
    ended.push_back(join(sw, "job"));
    ASSERT_EQ(ended.back().answer["type"], "joined") << ended.back().answer;
    ASSERT_TRUE(ended.back().connection.send({{"type", "abort"}}));
    auto told = ended.back().connection.receive(5'000'000'000);
    ASSERT_TRUE(told && *told);
    EXPECT_EQ((*told)->body["type"], "abort");
  }
  EXPECT_THAT(join(sw, "job").answer["text"],
              HasSubstr("has 4 connections open, twice as many as it may have workers"));
  for (const Joined& job : ended) {
    const auto closed = job.connection.receive(5'000'000'000);
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error().status, INA_ERR_SWITCH_LOST);
  }
  EXPECT_EQ(join(sw, "job").answer["type"], "joined");
}

TEST(Tenants, ARestartedSwitchKeepsWhatItPromised) {
  const test::TempDir folder;
  TestSwitch sw(shared([](switchd::ConductorConfig& config) {
                  config.tenants = {{.name = me(),
                                     .slots_floor = 40,
                                     .slots_ceiling = 60,
                                     .jobs_max = 2,
                                     .priority_max = 9}};
                }),
                folder / "");
  test::RawWorker first(sw.socket_path(), "first", 0, 1);
  test::RawWorker second(sw.socket_path(), "second", 0, 1);
  ASSERT_TRUE(first.hear_until("ready") && second.hear_until("ready"));
  const Json before = sw.status();
  sw.stop();
  sw.start();
  const Json after = sw.status();
  ASSERT_EQ(after["jobs"].size(), 2u);
  const auto promised = [](Json tenants) {
    for (Json& tenant : tenants)
      for (const char* present : {"mappings", "descriptors"}) tenant.erase(present);
    return tenants;
  };
  EXPECT_EQ(promised(after["tenants"]), promised(before["tenants"]));
  EXPECT_EQ(after["jobs"][0]["slots_floor"], 20);
  EXPECT_EQ(after["jobs"][0]["slots_ceiling"], 30);
  EXPECT_EQ(after["jobs"][0]["priority_max"], 9);
  EXPECT_EQ(after["aggregator"]["slots_reserved"], 40);
}

TEST(Handles, ConnectionsHaveNoMoreThanHalfOfTheDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const uint32_t connections = switchd::Handles::connections_of_this_process(1024);
  const auto rest = switchd::Handles::of_this_process(connections).descriptors;
  EXPECT_EQ(switchd::Handles::connections_of_this_process(10), 10u);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GT(connections, 16u);
  EXPECT_GE(rest, connections);
  EXPECT_LE(connections + rest, 128u) << "the switch needs some itself";
}

}  // namespace
}  // namespace ina
