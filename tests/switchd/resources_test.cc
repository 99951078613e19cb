// What a job gets of the switch under policies that share the slots, as a worker and an operator
// see it on the control socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/shm/layout.h"
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

Joined join(const TestSwitch& sw, const std::string& job, uint64_t window_bytes = 0) {
  auto connection = control::Connection::open(sw.socket_path(), 5'000'000'000);
  EXPECT_TRUE(connection);
  EXPECT_TRUE(connection->send({{"type", "join"},
                                {"version", control::kControlVersion},
                                {"job", job},
                                {"rank", 0},
                                {"world_size", 2},
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
    config.policy = "esa";
    config.window_bytes = 256 * 1024;
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
    config.home = Home::kWorkers;
    config.rto_min_us = 1234;
    config.rto_max_us = 5678;
    config.ecn = false;
    config.aggregator_window = true;
    config.priority_max = 99;
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
    config.slots_floor = 24;
    config.slots_ceiling = 32;
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
  TestSwitch sw(shared([](switchd::ConductorConfig& config) { config.memory_bytes = 4 << 20; }));
  {
    const Joined first = join(sw, "first");
    ASSERT_EQ(first.answer["type"], "joined") << first.answer;
    const auto status = sw.status();
    const auto used = status["aggregator"]["memory_used_bytes"].get<uint64_t>();
    EXPECT_EQ(status["jobs"][0]["memory_bytes"], used);
    // At least the results, and what each of the two workers receives.
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

}  // namespace
}  // namespace ina
