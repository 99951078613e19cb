// Errors of operations and of leaving as a caller sees them: which status, which text, on which
// workers, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/clock.h"
#include "ina/ina.h"
#include "tests/client/failing_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::on_ranks;
using test::Outcome;
using test::TestSwitch;
using test::Worker;
using testing::HasSubstr;

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

}  // namespace
}  // namespace ina
