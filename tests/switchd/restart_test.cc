// A switch that is killed or stopped, and started again: its jobs go on, and their users only wait
// longer. Here it goes between operations; restart_under_load_test.cc takes any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <barrier>
#include <fstream>
#include <functional>
#include <latch>
#include <thread>

#include "common/clock.h"
#include "control/socket.h"
#include "ina/ina.h"
#include "tests/support/hand_driven.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/switch_process.h"

namespace ina {
namespace {

using control::Json;
using test::HandDriven;
using test::rejoin_message;
using test::SwitchProcess;
using test::TestSwitch;
using testing::HasSubstr;

constexpr int64_t kLongUs = 20'000'000;

struct Outcome {
  int status = INA_OK;
  std::string text;
};

class Worker {
 public:
  Outcome join(const std::string& url, int rank, int world, int64_t rejoin_timeout_us = kLongUs) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "job";
    config.rank = rank_ = rank;
    config.world_size = world_ = world;
    config.timeout_us = kLongUs;
    config.rejoin_timeout_us = rejoin_timeout_us;
    const int status = ina_init(&config, &context_);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  /// A sum that differs from call to call, all elements checked.
  Outcome sum(size_t count, int64_t timeout_us = 0) {
    ++calls_;
    std::vector<int32_t> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = value_of(i) * (rank_ + 1);
    const int status =
        ina_allreduce(context_, data.data(), data.data(), count, INA_INT32, INA_SUM, timeout_us);
    if (status != INA_OK) return {status, ina_last_error(context_)};
    for (size_t i = 0; i < count; ++i)
      if (data[i] != value_of(i) * world_ * (world_ + 1) / 2)
        return {INA_ERR_INTERNAL, "wrong element " + std::to_string(i)};
    return {};
  }
  Outcome leave(int64_t timeout_us = 0) {
    const int status = ina_finalize(context_, timeout_us);
    context_ = nullptr;
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  ~Worker() {
    if (context_) ina_finalize(context_, 100'000);
  }
  ina_context* context_ = nullptr;

 private:
  int32_t value_of(size_t i) const { return static_cast<int32_t>(i % 1000) + calls_; }
  int rank_ = 0;
  int world_ = 0;
  int32_t calls_ = 0;
};

/// Runs `body(worker, rank)` in a thread per rank, after all have joined. `meanwhile` runs here.
std::vector<Outcome> on_ranks(const std::string& url, int world,
                              const std::function<Outcome(Worker&, int)>& body,
                              const std::function<void()>& meanwhile = {}) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::latch joined(world);  // one that still joins would hear of others' errors there
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Worker worker;
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      outcome = worker.join(url, rank, world);
      joined.arrive_and_wait();
      if (outcome.status == INA_OK) outcome = body(worker, rank);
    });
  if (meanwhile) meanwhile();
  for (auto& thread : threads) thread.join();
  return outcomes;
}

/// The entry of a job in a status, null if there is none.
Json job_of(const Json& status, const std::string& name = "job") {
  for (const Json& job : status.value("jobs", Json::array()))
    if (job["name"] == name) return job;
  return {};
}

/// Waits until `condition` holds of the job's entry.
template <class Switch>
Json await_job(const Switch& sw, const std::function<bool(const Json&)>& condition) {
  const Nanos deadline = now_ns() + 20'000'000'000;
  for (;;) {
    const Json job = job_of(sw.status());
    if (condition(job)) return job;
    if (now_ns() > deadline) {
      ADD_FAILURE() << "the job never got so far: " << job;
      return job;
    }
    ::usleep(1000);
  }
}

template <class Switch>
Json await_state(const Switch& sw, const std::string& state) {
  return await_job(sw, [&](const Json& job) { return !job.is_null() && job["state"] == state; });
}

Json saved_job(const std::string& state_path) {
  Json state = Json::parse(std::ifstream(state_path));
  EXPECT_EQ(state["jobs"].size(), 1u);
  return state["jobs"][0];
}

class RestartBySignal : public testing::TestWithParam<int> {};

TEST_P(RestartBySignal, SumsGoOnAndStayRight) {
  constexpr int kWorld = 3;
  constexpr int kRestarts = 6;
  SwitchProcess sw(SWITCH_PROCESS, 20'000, 2);
  std::barrier<> between(kWorld + 1);
  const auto outcomes = on_ranks(
      sw.url(), kWorld,
      [&](Worker& worker, int rank) -> Outcome {
        for (int round = 0; round <= kRestarts; ++round) {
          for (const size_t count : {size_t{1}, size_t{60'000}, size_t{257}})
            if (Outcome outcome = worker.sum(count); outcome.status != INA_OK) {
              between.arrive_and_drop();
              return outcome;
            }
          between.arrive_and_wait();
          // One calls while the switch is gone, the others when it is back.
          if (round % kWorld == rank)
            (void)between.arrive();
          else
            between.arrive_and_wait();
        }
        return worker.leave();
      },
      [&] {
        Json before;
        for (int round = 0; round < kRestarts; ++round) {
          between.arrive_and_wait();
          const Json job = await_state(sw, "running");
          if (round > 0) {
            EXPECT_EQ(job["id"], before["id"]);
            EXPECT_GT(job["epoch"].get<uint32_t>(), before["epoch"].get<uint32_t>());
            EXPECT_EQ(job["slots"], before["slots"]);
          }
          before = job;
          EXPECT_EQ(sw.kill(GetParam()), GetParam() == SIGKILL ? -SIGKILL : 0);
          ::usleep(50'000);
          sw.start();
          between.arrive_and_wait();
        }
        between.arrive_and_wait();
        between.arrive_and_wait();
      });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
  const Json status = sw.status();
  EXPECT_EQ(status["boots"], kRestarts + 1);
  EXPECT_TRUE(status["jobs"].empty());
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0);
  EXPECT_TRUE(Json::parse(std::ifstream(sw.state_path()))["jobs"].empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, RestartBySignal, testing::Values(SIGKILL, SIGTERM),
                         [](const auto& param_info) {
                           return param_info.param == SIGKILL ? "Killed" : "Stopped";
                         });

TEST(Restart, OperationsStartedWhileTheSwitchIsGoneComplete) {
  SwitchProcess sw(SWITCH_PROCESS);
  std::barrier<> step(3);
  const auto outcomes = on_ranks(
      sw.url(), 2,
      [&](Worker& worker, int rank) -> Outcome {
        step.arrive_and_wait();
        step.arrive_and_wait();  // gone
        std::vector<std::vector<int32_t>> data(20, std::vector<int32_t>(3000, rank + 1));
        std::vector<ina_request*> requests(data.size());
        for (size_t i = 0; i < data.size(); ++i)
          EXPECT_EQ(ina_allreduce_async(worker.context_, data[i].data(), data[i].data(), 3000,
                                        INA_INT32, INA_SUM, &requests[i]),
                    INA_OK);
        EXPECT_EQ(ina_test(requests[0]), INA_IN_PROGRESS);
        EXPECT_EQ(ina_wait(requests[0], 30'000), INA_ERR_TIMEOUT);
        EXPECT_THAT(ina_last_error(worker.context_),
                    HasSubstr("the switch at " + sw.url() + " has been gone for"));
        step.arrive_and_wait();
        for (ina_request* request : requests)
          if (const int status = ina_wait(request, 0); status != INA_OK)
            return {status, ina_last_error(worker.context_)};
        for (const auto& buffer : data)
          for (const int32_t element : buffer)
            if (element != 3) return {INA_ERR_INTERNAL, "wrong sum"};
        return worker.leave();
      },
      [&] {
        step.arrive_and_wait();
        sw.kill(SIGKILL);
        step.arrive_and_wait();
        step.arrive_and_wait();
        sw.start();
      });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(Restart, SwitchThatGoesAsTheJobBeginsIsSurvived) {
  for (useconds_t round = 0; round < 40; ++round) {
    SwitchProcess sw(SWITCH_PROCESS);
    sw.status();  // it serves
    const auto outcomes = on_ranks(
        sw.url(), 2,
        [](Worker& worker, int) {
          const Outcome outcome = worker.sum(1000);
          return outcome.status == INA_OK ? worker.leave() : outcome;
        },
        [&] {
          ::usleep(500 * round);  // while they join, or later
          sw.kill(SIGKILL);
          sw.start();
        });
    for (const Outcome& outcome : outcomes)
      EXPECT_EQ(outcome.status, INA_OK) << outcome.text << ", round " << round;
    if (HasFailure()) return;
  }
}

TEST(Restart, SwitchThatIsGoneForGoodIsAnErrorInTime) {
  SwitchProcess sw(SWITCH_PROCESS);
  Worker worker;
  ASSERT_EQ(worker.join(sw.url(), 0, 1, 700'000).status, INA_OK);
  sw.kill(SIGKILL);
  const Nanos before = now_ns();
  const Outcome outcome = worker.sum(100);
  EXPECT_EQ(outcome.status, INA_ERR_SWITCH_LOST);
  EXPECT_THAT(outcome.text, HasSubstr("did not come back within 0.7 s"));
  EXPECT_THAT(outcome.text, HasSubstr(sw.socket()));
  EXPECT_LT(now_ns() - before, 20'000'000'000);
  EXPECT_EQ(worker.leave().status, INA_ERR_SWITCH_LOST);
}

TEST(Restart, OwnTimeoutOfACallHoldsWhileTheSwitchIsGone) {
  SwitchProcess sw(SWITCH_PROCESS);
  Worker worker;
  ASSERT_EQ(worker.join(sw.url(), 0, 1).status, INA_OK);
  sw.kill(SIGKILL);
  const Nanos before = now_ns();
  const Outcome outcome = worker.sum(100, 300'000);
  EXPECT_EQ(outcome.status, INA_ERR_TIMEOUT);
  EXPECT_THAT(outcome.text, HasSubstr("has been gone for"));
  EXPECT_LT(now_ns() - before, 20'000'000'000);
  EXPECT_EQ(worker.leave().status, INA_ERR_TIMEOUT);
}

TEST(Restart, LeavingWaitsForTheSwitch) {
  SwitchProcess sw(SWITCH_PROCESS);
  std::barrier<> step(3);
  const auto outcomes = on_ranks(
      sw.url(), 2,
      [&](Worker& worker, int rank) -> Outcome {
        if (Outcome outcome = worker.sum(1000); outcome.status != INA_OK) return outcome;
        if (rank == 0) {
          step.arrive_and_drop();
          return worker.leave();  // says so before the switch goes
        }
        step.arrive_and_wait();
        step.arrive_and_wait();
        return worker.leave();
      },
      [&] {
        step.arrive_and_wait();
        await_state(sw, "leaving");
        sw.kill(SIGKILL);
        step.arrive_and_drop();
        ::usleep(50'000);
        sw.start();
      });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(Restart, LeavingEndsInTimeIfTheSwitchStaysAway) {
  SwitchProcess sw(SWITCH_PROCESS);
  Worker worker;
  ASSERT_EQ(worker.join(sw.url(), 0, 1).status, INA_OK);
  sw.kill(SIGKILL);
  const Nanos before = now_ns();
  const Outcome outcome = worker.leave(300'000);
  EXPECT_EQ(outcome.status, INA_ERR_TIMEOUT);
  EXPECT_THAT(outcome.text, HasSubstr("has been gone for"));
  EXPECT_LT(now_ns() - before, 20'000'000'000);
}

void start_without_state(SwitchProcess& sw) {
  sw.kill(SIGKILL);
  std::filesystem::remove(sw.state_path());
  sw.start();
}

TEST(Restart, SwitchThatLostItsStateSaysSo) {
  SwitchProcess sw(SWITCH_PROCESS);
  std::barrier<> step(3);
  const auto outcomes = on_ranks(
      sw.url(), 2,
      [&](Worker& worker, int) -> Outcome {
        step.arrive_and_wait();
        step.arrive_and_wait();
        return worker.sum(10);
      },
      [&] {
        step.arrive_and_wait();
        start_without_state(sw);
        step.arrive_and_drop();
      });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, INA_ERR_SWITCH_LOST);
    EXPECT_THAT(outcome.text, HasSubstr("does not know job 'job'"));
  }
}

TEST(Restart, ARankThatHasSaidThatItLeavesLosesNothingWithTheState) {
  SwitchProcess sw(SWITCH_PROCESS);
  std::barrier<> step(2);
  const auto outcomes = on_ranks(
      sw.url(), 2,
      [&](Worker& worker, int rank) -> Outcome {
        if (rank == 0) return worker.leave();
        step.arrive_and_wait();
        return {};
      },
      [&] {
        await_state(sw, "leaving");
        start_without_state(sw);
        step.arrive_and_drop();
      });
  EXPECT_EQ(outcomes[0].status, INA_OK) << outcomes[0].text;
}

TEST(Restart, RankThatDoesNotComeBackIsNamedAndItsJobEnds) {
  SwitchProcess sw(SWITCH_PROCESS, 1'500);
  Worker first;
  Worker second;
  std::thread joiner([&] { ASSERT_EQ(second.join(sw.url(), 1, 2, 1).status, INA_OK); });
  ASSERT_EQ(first.join(sw.url(), 0, 2).status, INA_OK);
  joiner.join();
  sw.kill(SIGKILL);
  EXPECT_EQ(second.sum(10).status, INA_ERR_SWITCH_LOST) << "gives up at once";
  sw.start();
  const Json job = await_job(
      sw, [](const Json& entry) { return !entry.is_null() && entry["joined"] == std::vector{0}; });
  EXPECT_EQ(job["state"], "rejoining");
  EXPECT_EQ(job["missing"], std::vector{1});

  Worker newcomer;
  const Outcome refused = newcomer.join(sw.url(), 1, 2);
  EXPECT_EQ(refused.status, INA_ERR_REFUSED);
  EXPECT_THAT(refused.text, HasSubstr("waits for rank 1 to come back"));

  const Nanos before = now_ns();
  const Outcome outcome = first.sum(10);
  EXPECT_EQ(outcome.status, INA_ERR_PEER_LOST);
  EXPECT_THAT(outcome.text, HasSubstr("rank 1 of job 'job' did not come back within 1.5 s"));
  EXPECT_LT(now_ns() - before, 20'000'000'000);
  await_job(sw, [](const Json& entry) { return entry.is_null(); });
  EXPECT_EQ(sw.status()["aggregator"]["slots_reserved"], 0);
  for (const Outcome& again :
       on_ranks(sw.url(), 2, [](Worker&worker, int) { return worker.sum(10); }))
    EXPECT_EQ(again.status, INA_OK) << "the name is free: " << again.text;
}

TEST(Restart, ForgedRejoinsAreRefusedAndHarmNobody) {
  SwitchProcess sw(SWITCH_PROCESS);
  std::barrier<> step(3);
  const auto outcomes = on_ranks(
      sw.url(), 2,
      [&](Worker& worker, int) -> Outcome {
        step.arrive_and_wait();
        step.arrive_and_wait();
        return worker.sum(1000);
      },
      [&] {
        step.arrive_and_wait();
        const Json saved = saved_job(sw.state_path());
        const auto refusal = [&](const std::function<void(Json&)>& forge) {
          Json message = rejoin_message(saved, 1);
          forge(message);
          return HandDriven(sw.socket()).ask(message);
        };
        EXPECT_EQ(refusal([](Json&) {})["status"], INA_ERR_RANK_TAKEN) << "nobody is missed";
        sw.kill(SIGKILL);
        sw.start();
        const auto wrong = [](const char* field, const Json& value) {
          return [=](Json& message) { message[field] = value; };
        };
        Json answer = refusal(wrong("job_key", saved["key"].get<uint64_t>() + 1));
        EXPECT_EQ(answer["type"], "refused");
        EXPECT_EQ(answer["status"], INA_ERR_REFUSED);
        EXPECT_THAT(answer["text"].get<std::string>(), HasSubstr("not the key of job 'job'"));
        answer = refusal(wrong("job_id", saved["id"].get<uint32_t>() + 1));
        EXPECT_EQ(answer["status"], INA_ERR_SWITCH_LOST);
        EXPECT_THAT(answer["text"].get<std::string>(), HasSubstr("does not know job 'job'"));
        EXPECT_EQ(refusal(wrong("job", "other"))["status"], INA_ERR_SWITCH_LOST);
        EXPECT_EQ(refusal(wrong("rank", 2))["status"], INA_ERR_INVALID);
        EXPECT_EQ(refusal(wrong("rank", -1))["status"], INA_ERR_INVALID);
        EXPECT_EQ(refusal(wrong("world_size", 3))["status"], INA_ERR_INVALID);
        EXPECT_EQ(refusal(wrong("results_end", 1))["status"], INA_ERR_INVALID);
        EXPECT_EQ(refusal(wrong("next", 1'000'000))["status"], INA_ERR_INVALID);
        EXPECT_EQ(refusal(wrong("transport", "pigeon"))["status"], INA_ERR_UNSUPPORTED);
        EXPECT_EQ(refusal(wrong("version", 99))["status"], INA_ERR_VERSION);
        EXPECT_EQ(refusal([](Json& message) { message.erase("low"); })["status"], INA_ERR_INVALID);
        step.arrive_and_wait();
      });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(Restart, SwitchThatDiesAgainWhileItGathersIsSurvived) {
  SwitchProcess sw(SWITCH_PROCESS);
  auto peer = std::make_unique<HandDriven>(sw.socket());
  std::thread gatherer([&] {
    peer->attach(peer->ask({{"type", "join"},
                            {"version", control::kControlVersion},
                            {"job", "job"},
                            {"rank", 1},
                            {"world_size", 2},
                            {"transport", "shm"}}));
    EXPECT_EQ(peer->receive()["type"], "ready");
  });
  Worker worker;
  ASSERT_EQ(worker.join(sw.url(), 0, 2).status, INA_OK);
  gatherer.join();
  const Json saved = saved_job(sw.state_path());
  uint32_t epoch = saved["epoch"];
  for (int restart = 0; restart < 4; ++restart) {
    sw.kill(restart % 2 == 0 ? SIGKILL : SIGTERM);
    sw.start();
    const Json job = await_job(sw, [](const Json& entry) {
      return !entry.is_null() && entry["joined"] == std::vector{0};
    });
    EXPECT_GT(job["epoch"].get<uint32_t>(), epoch);
    epoch = job["epoch"];
  }
  // The peer starts over too, in the middle of its return.
  Json joined;
  for (int i = 0; i < 2; ++i) {
    peer = std::make_unique<HandDriven>(sw.socket());
    joined = peer->ask(rejoin_message(saved, 1));
    ASSERT_EQ(joined["type"], "joined") << joined;
    EXPECT_EQ(joined["job_key"], saved["key"]);
    EXPECT_EQ(joined["epoch"], epoch);
    if (i == 0) {
      HandDriven usurper(sw.socket());
      EXPECT_EQ(usurper.ask(rejoin_message(saved, 1))["type"], "joined");
      EXPECT_TRUE(peer->receive().is_null()) << "the older connection is closed";
    }
  }
  peer->attach(joined);
  EXPECT_EQ(peer->receive()["type"], "ready");
  await_state(sw, "running");
  peer->send({{"type", "leave"}});
  EXPECT_EQ(worker.leave().status, INA_OK);
  Json last = peer->receive();
  if (last["type"] == "peer_left") last = peer->receive();  // the worker's goodbye came first
  EXPECT_EQ(last["type"], "left");
}

TEST(Restart, JobThatNoLongerFitsIsDroppedAndItsWorkersTold) {
  const test::TempDir folder;
  Worker worker;
  {
    TestSwitch sw({.slot_bytes = 1024}, folder / "");
    ASSERT_EQ(worker.join(sw.url(), 0, 1).status, INA_OK);
  }
  TestSwitch sw({.slot_bytes = 2048}, folder / "");
  EXPECT_EQ(worker.sum(10).status, INA_ERR_SWITCH_LOST);
  EXPECT_EQ(sw.status()["aggregator"]["slots_reserved"], 0);
}

TEST(Restart, StoppingTheSwitchTellsWhoStillJoins) {
  TestSwitch sw;
  Outcome outcome;
  std::thread joiner([&] { outcome = Worker().join(sw.url(), 0, 2); });
  await_job(sw, [](const Json& job) { return !job.is_null() && !job["joined"].empty(); });
  sw.stop();
  joiner.join();
  EXPECT_EQ(outcome.status, INA_ERR_SWITCH_LOST);
  EXPECT_THAT(outcome.text, HasSubstr("was shut down"));
}

TEST(Restart, ChildForkedAfterwardsDoesNotKeepItsParentAlive) {
  SwitchProcess sw(SWITCH_PROCESS);
  int commands[2];
  int answers[2];
  ASSERT_EQ(::pipe(commands), 0);
  ASSERT_EQ(::pipe(answers), 0);
  // A worker with a child: it is killed, the child lives on.
  const pid_t parent = ::fork();
  if (parent == 0) {
    Worker worker;
    char byte = 0;
    if (worker.join(sw.url(), 1, 2).status != INA_OK) ::_exit(1);
    if (::read(commands[0], &byte, 1) != 1 || worker.sum(100).status != INA_OK) ::_exit(1);
    const pid_t child = ::fork();
    if (child == 0) {
      const Outcome outcome = worker.sum(1);
      byte = outcome.status == INA_ERR_FORKED;
      [[maybe_unused]] const ssize_t written = ::write(answers[1], &byte, 1);
      ::close(commands[1]);
      [[maybe_unused]] const ssize_t got = ::read(commands[0], &byte, 1);  // until the test ends
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  Worker worker;
  EXPECT_EQ(worker.join(sw.url(), 0, 2).status, INA_OK);
  sw.kill(SIGKILL);
  sw.start();
  char byte = 0;
  EXPECT_EQ(::write(commands[1], &byte, 1), 1);
  const Outcome summed = worker.sum(100);
  EXPECT_EQ(summed.status, INA_OK) << summed.text;
  EXPECT_EQ(::read(answers[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1) << "the child was not told that it is one";
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  const Outcome lost = worker.sum(100);
  EXPECT_EQ(lost.status, INA_ERR_PEER_LOST) << lost.text;
  for (const int fd : {commands[0], commands[1], answers[0], answers[1]}) ::close(fd);
}

TEST(Control, ConnectionsThatCannotBeAcceptedWaitWithoutBurningTheCore) {
  TestSwitch sw;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Fd> fill;
  for (int fd; (fd = ::dup(0)) >= 0;) fill.emplace_back(fd);
  // The caller's end takes the last descriptor: none is left for the switch's.
  fill.pop_back();
  auto last = control::Connection::open(sw.socket_path(), 0);
  timespec cpu_before{}, cpu_after{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
  ::usleep(500'000);
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_after);
  EXPECT_LT(::dup(0), 0) << "there were descriptors left";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(last) << last.error().text;
  const Nanos cpu = (cpu_after.tv_sec - cpu_before.tv_sec) * 1'000'000'000 + cpu_after.tv_nsec -
                    cpu_before.tv_nsec;
  EXPECT_LT(cpu, 250'000'000) << "of 500 ms";
  ASSERT_TRUE(last->send({{"type", "status"}}));
  const auto answer = last->receive(10'000'000'000);
  ASSERT_TRUE(answer && *answer);
  EXPECT_EQ((*answer)->body["type"], "status") << "it was accepted in the end";
}

}  // namespace
}  // namespace ina
