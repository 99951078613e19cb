// Errors of joins and of arguments as a caller sees them: which status, which text, on which
// workers, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/client/failing_ranks.h"
#include "tests/support/free_port.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using test::on_ranks;
using test::Outcome;
using test::SwitchProcess;
using test::TestSwitch;
using test::Worker;
using testing::HasSubstr;
using testing::Not;

TEST(Errors, NoSwitchNamesTheSocketWithinTheTimeout) {
  Worker worker;
  const Nanos before = now_ns();
  const auto outcome = worker.join("shm:/nonexistent/switch.sock", 0, 2, "job", 300'000);
  EXPECT_EQ(outcome.status, INA_ERR_NO_SWITCH);
  EXPECT_THAT(outcome.text, HasSubstr("/nonexistent/switch.sock"));
  EXPECT_LT(now_ns() - before, 10'000'000'000);
}

constexpr Nanos kAbsentWithinNs = 1'000'000'000;

/// Joins with all settings at their defaults, but the URL; returns how long it tried. A busy
/// machine may be late, but not each time.
std::pair<Outcome, Nanos> join_unasked(const std::string& url) {
  ::unsetenv("INA_TIMEOUT_US");
  Outcome outcome;
  Nanos took = kAbsentWithinNs;
  for (int tries = 0; tries < 5 && took >= kAbsentWithinNs; ++tries) {
    Worker worker;
    const Nanos before = now_ns();
    outcome = worker.join(url, 0, 2, "job", 0);
    took = now_ns() - before;
  }
  return {outcome, took};
}

TEST(Errors, WithoutASwitchTheErrorComesWithinASecondAndSaysHowToStartOne) {
  const test::TempDir folder;
  const std::string nobody = folder / "nobody.sock";
  {
    auto listener = control::listen_unix(nobody, 0600, "control.socket");
    ASSERT_TRUE(listener);
  }  // its path stays
  const std::string file = folder / "file";
  std::ofstream(file) << "text";
  const std::string start = "`ina-switchd --config ";
  const struct {
    std::string url, text, start;
  } cases[] = {
      {"shm:" + (folder / "absent.sock"), "there is no such file", start},
      {"shm:" + (folder / "no/folder/at.all"), "there is no such file", start},
      {"shm:" + nobody, "nobody serves it", start},
      {"shm:" + file, "it is not a socket", start},
      {"shm:" + (folder / ""), "it is not a socket", start},
      {"udp:127.0.0.1?control=tcp:127.0.0.1:" + std::to_string(test::free_port()),
       "Connection refused", start},
      {"udp:127.0.0.1?control=" + (folder / "absent.sock"), "there is no such file", start},
      {"memif:" + nobody + "?ip=10.0.0.1", "nobody serves the memif socket", "ina-memif"},
  };
  for (const auto& [url, text, how] : cases) {
    SCOPED_TRACE(url);
    const auto [outcome, took] = join_unasked(url);
    EXPECT_EQ(outcome.status, INA_ERR_NO_SWITCH);
    EXPECT_THAT(outcome.text, HasSubstr(text));
    EXPECT_THAT(outcome.text, HasSubstr(how));
    EXPECT_THAT(outcome.text, HasSubstr("INA_TIMEOUT_US"));
    EXPECT_LT(took, kAbsentWithinNs);
  }
}

TEST(Errors, WhoSaysForHowLongWaitsForASwitchToStart) {
  const test::TempDir folder;
  std::unique_ptr<TestSwitch> sw;
  std::thread late([&] {
    ::usleep(1'000'000);
    sw = std::make_unique<TestSwitch>(test::SwitchOptions{}, folder / "");
  });
  for (const char* variable : {"", "20000000"}) {
    if (*variable != 0) ::setenv("INA_TIMEOUT_US", variable, 1);
    Worker worker;
    const auto outcome = worker.join("shm:" + (folder / "switch.sock"), 0, 1, "job",
                                     *variable != 0 ? 0 : 20'000'000);
    EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
    EXPECT_EQ(worker.leave().status, INA_OK);
    if (late.joinable()) late.join();
  }
  ::unsetenv("INA_TIMEOUT_US");
}

TEST(Errors, UnknownUrlSaysWhatIsKnown) {
  Worker worker;
  const auto outcome = worker.join("tcp:somewhere", 0, 2);
  EXPECT_EQ(outcome.status, INA_ERR_INVALID);
  EXPECT_THAT(outcome.text, HasSubstr("tcp:somewhere"));
}

TEST(Errors, ConfigOutOfRangeNamesFieldAndRange) {
  Worker worker;
  EXPECT_THAT(worker.join("shm:/x", 5, 4).text, HasSubstr("ina_config.rank: 5 is not in 0..3"));
  EXPECT_THAT(worker.join("shm:/x", 0, 4097).text,
              HasSubstr("ina_config.world_size: 4097 is not in 1..4096"));
}

TEST(Errors, JoinTimesOutNamingTheMissingRanks) {
  TestSwitch sw;
  Worker worker;
  const auto outcome = worker.join(sw.url(), 1, 4, "job", 300'000);
  EXPECT_EQ(outcome.status, INA_ERR_TIMEOUT);
  EXPECT_THAT(outcome.text, HasSubstr("ranks 0, 2, 3 to join"));
  // As `inactl why` says it.
  EXPECT_THAT(outcome.text, HasSubstr("ranks 0, 2, 3 of 4 have not joined: their processes have "
                                      "not called ina_init with this job's name"));
}

TEST(Errors, AJoinSaysThatTheSwitchDoesNotAnswerOnlyWhereItDoesNot) {
  TestSwitch sw;
  Worker worker;
  EXPECT_THAT(worker.join(sw.url(), 1, 4, "job", 100'000).text,
              Not(HasSubstr("the switch does not answer")));
}

TEST(Errors, RankThatGaveUpWaitingCanJoinAgain) {
  TestSwitch sw;
  {
    Worker worker;
    EXPECT_EQ(worker.join(sw.url(), 1, 2, "job", 100'000).status, INA_ERR_TIMEOUT);
  }
  const auto outcomes = on_ranks(sw, 2, [](Worker& w, int) { return w.sum(10); });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

/// Rank 0 of a job of two joins and waits; then another worker joins. Returns the errors of both.
std::pair<Outcome, Outcome> join_while_rank_0_of_2_gathers(const TestSwitch& sw, int rank,
                                                           int world) {
  Outcome first;
  std::thread thread([&] {
    Worker worker;
    first = worker.join(sw.url(), 0, 2);
  });
  while (sw.status()["jobs"].empty() || sw.status()["jobs"][0]["joined"].empty()) ::usleep(1000);
  Worker worker;
  const Outcome second = worker.join(sw.url(), rank, world);
  thread.join();
  return {first, second};
}

TEST(Errors, SecondJoinOfARankWhileGatheringFailsAllAndNamesBoth) {
  TestSwitch sw;
  const auto [first, second] = join_while_rank_0_of_2_gathers(sw, 0, 2);
  EXPECT_EQ(second.status, INA_ERR_RANK_TAKEN);
  EXPECT_EQ(first.status, INA_ERR_RANK_TAKEN);
  EXPECT_THAT(second.text, HasSubstr("rank 0"));
  EXPECT_THAT(first.text, HasSubstr("pid " + std::to_string(::getpid())));
}

TEST(Errors, SecondJoinOfARankInARunningJobHarmsTheNewcomerOnly) {
  TestSwitch sw;
  const auto outcomes = on_ranks(sw, 2, [&](Worker& worker, int rank) {
    if (rank == 0) {
      Worker intruder;
      EXPECT_EQ(intruder.join(sw.url(), 1, 2).status, INA_ERR_RANK_TAKEN);
    }
    return worker.sum(1000);
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(Errors, DifferentWorldSizesFailAllAndNameBoth) {
  TestSwitch sw;
  const auto [first, second] = join_while_rank_0_of_2_gathers(sw, 1, 3);
  for (const auto& outcome : {first, second}) {
    EXPECT_EQ(outcome.status, INA_ERR_MISMATCH);
    EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
    EXPECT_THAT(outcome.text, HasSubstr("says 3"));
    EXPECT_THAT(outcome.text, HasSubstr("rank 0 joined with 2"));
  }
}

TEST(Errors, AdmissionRefusesWhatDoesNotFitAndSaysByHowMuch) {
  TestSwitch sw({.slots = 100, .slots_per_job = 64});
  on_ranks(sw, 1, [&](Worker&, int) {
    Worker second;
    const auto outcome = second.join(sw.url(), 0, 1, "second");
    EXPECT_EQ(outcome.status, INA_ERR_REFUSED);
    EXPECT_THAT(outcome.text, HasSubstr("needs 64 slots"));
    EXPECT_THAT(outcome.text, HasSubstr("short by 28"));
    return outcome;
  });
}

TEST(Errors, WrongArgumentsAreNamed) {
  TestSwitch sw;
  on_ranks(sw, 1, [](Worker& worker, int) -> Outcome {
    float data[4] = {};
    ina_context* c = worker.context_;
    EXPECT_EQ(ina_allreduce(c, nullptr, data, 4, INA_FLOAT32, INA_SUM, 0), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(c), HasSubstr("send is NULL"));
    EXPECT_EQ(ina_allreduce(c, data, data + 1, 2, INA_FLOAT32, INA_SUM, 0), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(c), HasSubstr("overlap"));
    EXPECT_EQ(ina_allreduce(c, data, data, 4, INA_INT32, INA_AVG, 0), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(c), HasSubstr("avg of int32"));
    EXPECT_EQ(ina_allreduce(c, data, data, 4, INA_BOOL, INA_AVG, 0), INA_ERR_INVALID);
    EXPECT_EQ(ina_allreduce(c, data, data, 4, INA_FLOAT32, INA_BXOR, 0), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(c), HasSubstr("bxor of float32 is not defined: bitwise"));
    EXPECT_EQ(ina_allreduce(c, data, data, 4, static_cast<ina_dtype>(99), INA_SUM, 0),
              INA_ERR_INVALID);
    EXPECT_EQ(ina_allreduce(nullptr, data, data, 4, INA_FLOAT32, INA_SUM, 0), INA_ERR_INVALID);
    EXPECT_EQ(ina_wait(nullptr, 0), INA_ERR_INVALID);
    return worker.sum(4);
  });
}

TEST(Errors, WrongHintsAreNamedAndChangeNothing) {
  TestSwitch sw;
  const auto outcomes = on_ranks(sw, 2, [](Worker& w, int) {
    ina_context* c = w.context_;
    const auto refuses = [&](const ina_hints& hints, const char* text) {
      EXPECT_EQ(ina_set_hints(c, &hints), INA_ERR_INVALID);
      EXPECT_THAT(ina_last_error(c), HasSubstr(text));
    };
    constexpr size_t kSize = sizeof(ina_hints);
    refuses({0, 1, 2, 3}, "hints->struct_size 0 must be sizeof(ina_hints)");
    refuses({offsetof(ina_hints, remaining_iterations), 1, 2, 3}, "hints->struct_size");
    refuses({kSize + 8, 1, 2, 3}, "hints->struct_size");
    refuses({kSize, 3, 2, 3}, "hints->layer 3 exceeds hints->layers 2");
    refuses({kSize, 3, 0, 3}, "hints->layer 3 exceeds hints->layers 0");
    refuses({kSize, 0, 2, 3}, "hints->layer is 0");
    EXPECT_EQ(ina_set_hints(nullptr, nullptr), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(nullptr), HasSubstr("ina_set_hints: context is NULL"));
    for (const ina_hints& hints : {ina_hints{kSize, 2, 2, 0}, ina_hints{kSize, 0, 0, 3}})
      EXPECT_EQ(ina_set_hints(c, &hints), INA_OK);
    EXPECT_EQ(ina_set_hints(c, nullptr), INA_OK);
    return w.sum(10);
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(Errors, ForkedChildIsToldAndTheParentGoesOn) {
  SwitchProcess sw(SWITCH_PROCESS);  // whose threads hold no lock when this process forks
  Worker worker;
  Outcome outcome = worker.join(sw.url(), 0, 1);
  ASSERT_EQ(outcome.status, INA_OK) << outcome.text;
  const pid_t child = ::fork();
  if (child == 0) {
    float data[1] = {1};
    const int status =
        ina_allreduce(worker.context_, data, data, 1, INA_FLOAT32, INA_SUM, 1'000'000);
    ::_exit(status == INA_ERR_FORKED ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  outcome = worker.sum(1000);
  EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

}  // namespace
}  // namespace ina
