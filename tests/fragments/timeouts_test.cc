// How long a worker waits before it asks.
#include "fragments/timeouts.h"

#include <gtest/gtest.h>

namespace ina::client {
namespace {

constexpr Nanos kLeast = 1'000'000;
constexpr Nanos kMost = 10'000'000;

class TimeoutsTest : public ::testing::Test {
 protected:
  /// Round trips of that time and no other.
  void measure(Nanos rtt, Nanos now) {
    for (int i = 0; i < 100; ++i) timeouts_.round_trip.sample(rtt, now);
  }
  Timeouts timeouts_{kLeast, kMost};
};

TEST_F(TimeoutsTest, DoubleAfterTwoUpToTheMost) {
  EXPECT_EQ(timeouts_.after(0), kLeast);
  EXPECT_EQ(timeouts_.after(2), kLeast);
  EXPECT_EQ(timeouts_.after(3), 2 * kLeast);
  EXPECT_EQ(timeouts_.after(5), 8 * kLeast);
  EXPECT_EQ(timeouts_.after(6), kMost);
  EXPECT_EQ(timeouts_.after(255), kMost);
}

TEST_F(TimeoutsTest, FollowRoundTripsThatAreLonger) {
  measure(5'000'000, 0);
  EXPECT_GE(timeouts_.after(0), 5'000'000);
  EXPECT_EQ(timeouts_.after(255), kMost);
  measure(50'000'000, 0);
  EXPECT_GE(timeouts_.after(0), 50'000'000);
  EXPECT_EQ(timeouts_.after(255), timeouts_.after(0)) << "already beyond the most";
  EXPECT_EQ(timeouts_.longest(), timeouts_.after(0));
}

TEST_F(TimeoutsTest, NothingIsToBeExpectedForTheMost) {
  EXPECT_EQ(timeouts_.longest(), kMost);
}

TEST_F(TimeoutsTest, WhatIsLostNeedNotWaitForTheLeast) {
  measure(20'000, 0);
  const Nanos soon = timeouts_.between_questions(0);
  EXPECT_EQ(soon, 500'000);
  EXPECT_LT(soon, kLeast);
  EXPECT_EQ(timeouts_.after_loss(0, 0), soon);
  EXPECT_EQ(timeouts_.after_loss(8, 0), soon) << "most steps of a recovery may be lost in turn";
  EXPECT_EQ(timeouts_.after_loss(9, 0), 2 * soon);
  EXPECT_EQ(timeouts_.after_loss(255, 0), kMost);
}

TEST_F(TimeoutsTest, QuestionsAreRoundTripsApart) {
  measure(1'000'000, 0);
  EXPECT_EQ(timeouts_.between_questions(0), 4'000'000);
}

TEST_F(TimeoutsTest, QuestionsAreAsFarApartAsTheLinkTakesForTheAnswers) {
  measure(20'000, 0);
  EXPECT_EQ(timeouts_.between_questions(5'000'000), 5'000'000);
  EXPECT_EQ(timeouts_.after_loss(0, 5'000'000), 5'000'000);
  EXPECT_EQ(timeouts_.after_loss(255, 5'000'000), kMost);
  EXPECT_EQ(timeouts_.after_loss(255, 2 * kMost), 2 * kMost);
}

TEST_F(TimeoutsTest, LongRoundTripsOfLongAgoAreForgottenWhereAllIsRecovered) {
  measure(5'000'000, 0);
  const Nanos before = timeouts_.after(0);
  EXPECT_FALSE(timeouts_.doubt(1, 1'000'000'000)) << "it timed out but once";
  EXPECT_FALSE(timeouts_.doubt(2, before)) << "there was a sample a while ago";
  EXPECT_EQ(timeouts_.after(0), before);
  EXPECT_TRUE(timeouts_.doubt(2, before + 1));
  EXPECT_EQ(timeouts_.after(0), kLeast);
}

}  // namespace
}  // namespace ina::client
