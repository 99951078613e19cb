// Where the callers of a context sleep, and which status they get, without a job.
#include "membership/callers.h"

#include <gtest/gtest.h>

#include <thread>

namespace ina::membership {
namespace {

constexpr Nanos kLongNs = 20'000'000'000;

class CallersTest : public testing::Test {
 protected:
  void wait_until_asleep() {
    while (!callers_.any_asleep()) std::this_thread::yield();
  }
  Callers callers_;
};

TEST_F(CallersTest, OneThatWaitsIsToldWhatHasCome) {
  bool here = false;
  bool came = false;
  std::thread caller([&] { came = callers_.await(kLongNs, [&] { return here; }); });
  wait_until_asleep();
  callers_.tell([&] { here = true; });
  caller.join();
  EXPECT_TRUE(came);
  EXPECT_FALSE(callers_.any_asleep());
}

TEST_F(CallersTest, TheEndOfTheJobWakesThoseForWhomNothingHasCome) {
  bool came = true;
  std::thread caller([&] { came = callers_.await(kLongNs, [] { return false; }); });
  wait_until_asleep();
  EXPECT_TRUE(callers_.fail(INA_ERR_PEER_LOST, "rank 1 is gone"));
  caller.join();
  EXPECT_FALSE(came);
  EXPECT_EQ(callers_.failed(), INA_ERR_PEER_LOST);
}

TEST_F(CallersTest, WhatDoesNotComeIsNotWaitedForLongerThanSaid) {
  EXPECT_FALSE(callers_.await(1, [] { return false; }));
  EXPECT_FALSE(callers_.await(-1, [] { return false; })) << "the time has passed already";
  EXPECT_TRUE(callers_.await(-1, [] { return true; }));
}

TEST_F(CallersTest, TheFirstEndCounts) {
  EXPECT_TRUE(callers_.fail(INA_ERR_PEER_LOST, "rank 1 is gone"));
  EXPECT_FALSE(callers_.fail(INA_ERR_ABORTED, "and the job, too"));
  EXPECT_EQ(callers_.failure_text(), "rank 1 is gone");
  EXPECT_EQ(callers_.failed(), INA_ERR_PEER_LOST);
}

TEST_F(CallersTest, TheEndOfTheJobIsTheLastErrorOnceItIsReported) {
  EXPECT_EQ(callers_.set_error(INA_ERR_INVALID, "count is 0"), INA_ERR_INVALID);
  callers_.fail(INA_ERR_PEER_LOST, "rank 1 is gone");
  EXPECT_EQ(callers_.last_error(), "count is 0");
  EXPECT_EQ(callers_.report_failure(), INA_ERR_PEER_LOST);
  EXPECT_EQ(callers_.last_error(), "rank 1 is gone");
  callers_.set_error(INA_ERR_INVALID, "count is 0");
  const Error error = callers_.failure().value();
  EXPECT_EQ(error.status, INA_ERR_PEER_LOST);
  EXPECT_EQ(error.text, "rank 1 is gone");
  EXPECT_EQ(callers_.last_error(), "rank 1 is gone");
}

}  // namespace
}  // namespace ina::membership
