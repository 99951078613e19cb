// Errors as a caller sees them: which status, which text, on which workers, and how
// soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <latch>
#include <thread>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/support/free_port.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::TestSwitch;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int status = INA_OK;
  std::string text;
};

class Worker {
 public:
  Outcome join(const std::string& url, int rank, int world, const char* job = "job",
               int64_t timeout_us = 10'000'000, int64_t rejoin_timeout_us = 300'000) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = job;
    config.rank = rank;
    config.world_size = world;
    config.timeout_us = timeout_us;
    config.rejoin_timeout_us = rejoin_timeout_us;
    const int status = ina_init(&config, &context_);
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  Outcome sum(size_t count, ina_dtype dtype = INA_FLOAT32, ina_op op = INA_SUM,
              int64_t timeout_us = 0) {
    std::vector<std::byte> data(count * ina_dtype_size(dtype));
    const int status =
        ina_allreduce(context_, data.data(), data.data(), count, dtype, op, timeout_us);
    return {status, status < 0 ? ina_last_error(context_) : ""};
  }
  Outcome leave(int64_t timeout_us = 0) {
    const int status = ina_finalize(context_, timeout_us);
    context_ = nullptr;
    return {status, status < 0 ? ina_last_error(nullptr) : ""};
  }
  ~Worker() {
    if (context_) ina_finalize(context_, 1'000'000);
  }
  ina_context* context_ = nullptr;
};

/// `body(worker, rank)` in a thread per rank, after all have joined.
std::vector<Outcome> on_ranks(const TestSwitch& sw, int world,
                              const std::function<Outcome(Worker&, int)>& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::latch joined(world);  // one that still joins would hear of others' errors there
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Worker worker;
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      outcome = worker.join(sw.url(), rank, world);
      joined.arrive_and_wait();
      if (outcome.status == INA_OK) outcome = body(worker, rank);
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

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

// The others are told both where they wait already and where they call later, and so is the rank
// itself.
TEST(Errors, ARankThatLeavesBeforeAnOperationEndsItAtOnceForAllWhoCallIt) {
  const auto sw = TestSwitch();
  const auto outcomes = on_ranks(sw, 3, [](Worker& worker, int rank) {
    if (const Outcome first = worker.sum(1000); first.status != INA_OK) return first;
    if (rank == 1) return worker.leave();
    if (rank == 2) ::usleep(500'000);
    const Nanos before = now_ns();
    Outcome second = worker.sum(999);
    EXPECT_LT(now_ns() - before, 9'000'000'000);
    return second;
  });
  for (const Outcome& told : outcomes) {
    EXPECT_EQ(told.status, INA_ERR_PEER_LOST) << told.text;
    EXPECT_THAT(told.text, HasSubstr("rank 1 has called ina_finalize without calling operation 1 "
                                     "(allreduce of 999 float32 sum)"));
  }
}

TEST(Errors, ARankThatLeavesFirstDisturbsNobodyWhoCallsNothingMore) {
  const auto sw = TestSwitch();
  const auto outcomes = on_ranks(sw, 3, [](Worker& worker, int rank) {
    for (int i = 0; i < 20; ++i)
      if (const Outcome sum = worker.sum(100'000); sum.status != INA_OK) return sum;
    if (rank != 1) ::usleep(100'000);
    return worker.leave();
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

/// An all-reduce of ones that nobody waits for.
void start_ones(ina_context* context, std::vector<float>& data) {
  ina_request* request = nullptr;
  EXPECT_EQ(ina_allreduce_async(context, data.data(), data.data(), data.size(), INA_FLOAT32,
                                INA_SUM, &request),
            INA_OK);
}

TEST(Errors, LeavingWaitsForWhatIsUnderWay) {
  const auto sw = TestSwitch();
  for (const int late : {0, 1, 2}) {
    const auto outcomes = on_ranks(sw, 3, [&](Worker& worker, int rank) {
      std::vector<std::vector<float>> data(4, std::vector<float>(500'000, 1));
      if (rank == late) ::usleep(300'000);
      for (auto& tensor : data) start_ones(worker.context_, tensor);
      const Outcome left = worker.leave();
      for (const auto& tensor : data) EXPECT_EQ(tensor, std::vector<float>(500'000, 3));
      return left;
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
  }
}

TEST(Errors, LeavingWaitsForCallbacksAndForWhatTheyStart) {
  const auto sw = TestSwitch();
  struct Chain {
    ina_context* context = nullptr;
    std::vector<float> data = std::vector<float>(1000, 1);
    int ended = 0;
    static void go_on(void* user, int status) {
      auto* chain = static_cast<Chain*>(user);
      EXPECT_EQ(status, INA_OK);
      if (++chain->ended < 5) chain->start();
    }
    void start() {
      ina_request* request = nullptr;
      EXPECT_EQ(ina_allreduce_async(context, data.data(), data.data(), data.size(), INA_FLOAT32,
                                    INA_SUM, &request),
                INA_OK);
      EXPECT_EQ(ina_request_set_callback(request, go_on, this), INA_OK);
    }
  };
  const auto outcomes = on_ranks(sw, 2, [&](Worker& worker, int rank) {
    Chain chain;
    chain.context = worker.context_;
    if (rank == 0) ::usleep(100'000);
    chain.start();
    const Outcome left = worker.leave();
    EXPECT_EQ(chain.ended, 5);
    EXPECT_EQ(chain.data, std::vector<float>(1000, 32));
    return left;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

// What the others hear of it is true: it did call ina_finalize.
TEST(Errors, WhatDoesNotEndInTimeIsGivenUpAndTheOthersHearOfIt) {
  const auto sw = TestSwitch();
  std::atomic<bool> left = false;
  const auto outcomes = on_ranks(sw, 2, [&](Worker& worker, int rank) {
    std::vector<float> data(999, 1);
    if (rank == 1) {
      while (!left) ::usleep(1000);
      return worker.sum(1000);
    }
    start_ones(worker.context_, data);
    const Nanos before = now_ns();
    const Outcome outcome = worker.leave(200'000);
    EXPECT_LT(now_ns() - before, 9'000'000'000);
    left = true;
    return outcome;
  });
  EXPECT_EQ(outcomes[0].status, INA_ERR_TIMEOUT) << outcomes[0].text;
  EXPECT_EQ(outcomes[1].status, INA_ERR_PEER_LOST) << outcomes[1].text;
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 of job 'job' left before its operations were "
                                          "complete"));
  for (const Outcome& outcome : outcomes)
    EXPECT_THAT(outcome.text, HasSubstr("left with 1 operations running, the oldest: operation 0 "
                                        "(allreduce of 999 float32 sum)"));
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
  EXPECT_THAT(worker.join("shm:/x", 0, 65).text,
              HasSubstr("ina_config.world_size: 65 is not in 1..64"));
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

TEST(Errors, MismatchedCountsFailOnAllWorkersNamingBothSides) {
  TestSwitch sw;
  const auto outcomes =
      on_ranks(sw, 3, [](Worker& worker, int rank) { return worker.sum(rank == 2 ? 999 : 1000); });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status, INA_ERR_MISMATCH);
    EXPECT_THAT(outcome.text,
                HasSubstr("rank 2 started operation 0: allreduce of 999 float32 sum"));
    EXPECT_THAT(outcome.text, HasSubstr("started operation 0: allreduce of 1000 float32 sum"));
  }
}

TEST(Errors, MismatchedDtypeOpOrCollectiveIsFound) {
  TestSwitch sw;
  auto outcomes = on_ranks(
      sw, 2, [](Worker& w, int rank) { return w.sum(64, rank ? INA_INT32 : INA_FLOAT32); });
  EXPECT_EQ(outcomes[0].status, INA_ERR_MISMATCH);
  EXPECT_THAT(outcomes[0].text, HasSubstr("64 int32 sum"));
  outcomes = on_ranks(
      sw, 2, [](Worker& w, int rank) { return w.sum(64, INA_FLOAT32, rank ? INA_MAX : INA_SUM); });
  EXPECT_EQ(outcomes[1].status, INA_ERR_MISMATCH);
  EXPECT_THAT(outcomes[1].text, HasSubstr("64 float32 max"));
  outcomes = on_ranks(sw, 2, [](Worker& w, int rank) -> Outcome {
    if (rank == 0) return w.sum(0);
    const int status = ina_barrier(w.context_, 0);
    return {status, ina_last_error(w.context_)};
  });
  EXPECT_EQ(outcomes[0].status, INA_ERR_MISMATCH);
  EXPECT_THAT(outcomes[1].text, HasSubstr("barrier"));
}

TEST(Errors, AfterAMismatchTheContextSaysSoAndTheJobCanBeJoinedAgain) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Worker& worker, int rank) {
    worker.sum(rank == 0 ? 10 : 20);
    const auto again = worker.sum(10);
    EXPECT_EQ(again.status, INA_ERR_MISMATCH);
    EXPECT_EQ(worker.leave().status, INA_ERR_MISMATCH);
    return again;
  });
  const auto outcomes = on_ranks(sw, 2, [](Worker& w, int) { return w.sum(10); });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) ::usleep(1000);
}

/// Until the switch holds a contribution; false if none comes.
bool await_contribution(const TestSwitch& sw) {
  for (const Nanos end = now_ns() + 60'000'000'000; now_ns() < end; ::usleep(1000))
    if (sw.status()["aggregator"]["slots_used"] != 0) return true;
  return false;
}

TEST(Errors, LeavingTimesOutNamingWhoHasNotLeft) {
  TestSwitch sw;
  std::atomic<bool> gave_up{false};
  const auto outcomes = on_ranks(sw, 2, [&](Worker& worker, int rank) -> Outcome {
    if (rank == 1) {
      wait_for(gave_up);
      return worker.leave();
    }
    const Outcome outcome = worker.leave(200'000);
    gave_up = true;
    return outcome;
  });
  EXPECT_EQ(outcomes[0].status, INA_ERR_TIMEOUT);
  EXPECT_THAT(outcomes[0].text, HasSubstr("for the other ranks to call ina_finalize; rank 0 has "
                                          "called ina_finalize, and the job ends when all have: "
                                          "rank 1 (pid " +
                                          std::to_string(::getpid()) + " on "));
  EXPECT_THAT(outcomes[0].text, testing::EndsWith(") has not"));
}

TEST(Errors, OperationTimesOutOnAllWorkersNamingWhoIsMissing) {
  TestSwitch sw;
  std::atomic<bool> gave_up{false};
  const auto outcomes = on_ranks(sw, 3, [&](Worker& worker, int rank) -> Outcome {
    if (rank == 1) wait_for(gave_up);  // joins in too late
    if (rank == 0) {
      EXPECT_TRUE(await_contribution(sw)) << "of rank 2";
    }
    const Outcome outcome =
        worker.sum(100'000, INA_FLOAT32, INA_SUM, rank == 0 ? 200'000 : 60'000'000);
    if (rank == 0) gave_up = true;
    return outcome;
  });
  EXPECT_EQ(outcomes[0].status, INA_ERR_TIMEOUT);
  EXPECT_EQ(outcomes[1].status, INA_ERR_ABORTED);
  EXPECT_EQ(outcomes[2].status, INA_ERR_ABORTED);
  for (const auto& outcome : outcomes) {
    EXPECT_THAT(outcome.text,
                HasSubstr("waits for rank 1 (pid " + std::to_string(::getpid()) + " on "))
        << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("), and ranks 0, 2 have contributed: it has not called "
                                        "this operation yet"))
        << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("rank 0 of job 'job' gave up"));
    EXPECT_THAT(outcome.text, HasSubstr("allreduce of 100000 float32 sum"));
  }
}

// INA_ERR_TIMEOUT of ina_wait and ina_test would say that the request is still there.
TEST(Errors, RequestsOfAJobThatATimeOutEndedAreFreedAsAborted) {
  TestSwitch sw;
  std::atomic<bool> gave_up{false};
  const auto outcomes = on_ranks(sw, 2, [&](Worker& worker, int rank) -> Outcome {
    if (rank == 1) {
      wait_for(gave_up);
      return worker.sum(10);
    }
    std::vector<int32_t> data(1000, 1), more(1000, 1);
    ina_request *waited = nullptr, *tested = nullptr;
    for (ina_request** request : {&waited, &tested})
      EXPECT_EQ(ina_allreduce_async(worker.context_, data.data(), more.data(), data.size(),
                                    INA_INT32, INA_SUM, request),
                INA_OK);
    const Outcome outcome = worker.sum(10, INA_FLOAT32, INA_SUM, 200'000);
    EXPECT_EQ(ina_wait(waited, 0), INA_ERR_ABORTED);
    EXPECT_EQ(ina_test(tested), INA_ERR_ABORTED);
    EXPECT_THAT(ina_last_error(worker.context_), HasSubstr("gave up"));
    gave_up = true;
    return outcome;
  });
  EXPECT_EQ(outcomes[0].status, INA_ERR_TIMEOUT);
}

TEST(Errors, WaitOfAnAsynchronousOperationMayTimeOutAndGoOn) {
  TestSwitch sw;
  std::atomic<bool> timed_out{false};
  const auto outcomes = on_ranks(sw, 2, [&](Worker& worker, int rank) -> Outcome {
    std::vector<int32_t> data(1000, 1);
    if (rank == 1) wait_for(timed_out);
    ina_request* request = nullptr;
    int status = ina_allreduce_async(worker.context_, data.data(), data.data(), data.size(),
                                     INA_INT32, INA_SUM, &request);
    if (status != INA_OK) return {status, ina_last_error(worker.context_)};
    if (rank == 0) {
      EXPECT_TRUE(await_contribution(sw));
      EXPECT_EQ(ina_wait(request, 20'000), INA_ERR_TIMEOUT);
      EXPECT_THAT(ina_last_error(worker.context_), HasSubstr("waits for rank 1"));
      timed_out = true;
    }
    status = ina_wait(request, 0);
    EXPECT_EQ(data[999], 2);
    return {status, ina_last_error(worker.context_)};
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(Errors, FreeingARequestThatCannotCompleteEndsTheJobInTime) {
  // More than windows hold: earlier contributions cannot make the sum complete.
  constexpr size_t kElements = 100'000;
  TestSwitch sw;
  Worker first;
  std::atomic<bool> freed{false};
  std::thread silent([&] {
    Worker worker;
    EXPECT_EQ(worker.join(sw.url(), 1, 2).status, INA_OK);
    wait_for(freed);  // a stopped process: alive, but it sends nothing
    EXPECT_EQ(worker.sum(kElements).status, INA_ERR_ABORTED);
  });
  // The time-out is that of joining, too: the other must be there.
  while (sw.status()["jobs"].empty()) ::usleep(1000);
  EXPECT_EQ(first.join(sw.url(), 0, 2, "job", 2'000'000).status, INA_OK);
  std::vector<float> data(kElements);
  ina_request* request = nullptr;
  EXPECT_EQ(ina_allreduce_async(first.context_, data.data(), data.data(), data.size(), INA_FLOAT32,
                                INA_SUM, &request),
            INA_OK);
  EXPECT_TRUE(await_contribution(sw));
  EXPECT_EQ(ina_request_free(request), INA_ERR_TIMEOUT);
  EXPECT_THAT(ina_last_error(first.context_), HasSubstr("waits for rank 1"));
  freed = true;
  silent.join();
}

TEST(Errors, LeavingWithoutTheOthersIsALostPeerNamingTheRank) {
  TestSwitch sw;
  const auto outcomes = on_ranks(sw, 3, [](Worker& worker, int rank) -> Outcome {
    if (rank == 2) {
      std::vector<float> data(100);
      ina_request* request = nullptr;
      ina_allreduce_async(worker.context_, data.data(), data.data(), 100, INA_FLOAT32, INA_SUM,
                          &request);
      return worker.leave();  // with an operation running: as good as dead
    }
    const Outcome first = worker.sum(100);
    return first.status == INA_OK ? worker.sum(100) : first;
  });
  EXPECT_EQ(outcomes[0].status, INA_ERR_PEER_LOST) << outcomes[0].text;
  EXPECT_EQ(outcomes[1].status, INA_ERR_PEER_LOST) << outcomes[1].text;
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 2"));
}

TEST(Errors, SwitchThatGoesAwayEndsEveryWait) {
  auto sw = std::make_unique<TestSwitch>();
  std::atomic<bool> stopped{false};
  std::thread stopper([&] {
    EXPECT_TRUE(await_contribution(*sw)) << "rank 0 waits";
    sw->stop();
    stopped = true;
  });
  const auto outcomes = on_ranks(*sw, 2, [&](Worker& worker, int rank) -> Outcome {
    if (rank == 1) wait_for(stopped);
    return worker.sum(rank == 1 ? 10 : 10'000);
  });
  stopper.join();
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status, INA_ERR_SWITCH_LOST) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("did not come back within 0.3 s"));
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
  TestSwitch sw;
  on_ranks(sw, 1, [](Worker& worker, int) -> Outcome {
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
    const Outcome outcome = worker.sum(1000);
    EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
    return outcome;
  });
}

}  // namespace
}  // namespace ina
