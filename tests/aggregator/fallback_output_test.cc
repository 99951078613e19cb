// What the fallback aggregator has to say: once, for as long as somebody may need it, and to where
// results belong.
#include "tests/aggregator/fallback_fixture.h"

namespace ina::aggregator {
namespace {

// ---- what is to be sent

TEST_F(FallbackTest, SaysEachThingOnceHoweverOftenItIsAsked) {
  for (int i = 0; i < 100; ++i) query(0, static_cast<uint32_t>(i % 2));
  expect_poll(Phase::kStatus);
  query(0);
  expect_poll(Phase::kStatus);
  EXPECT_EQ(counters().polls, 2u);
}

TEST_F(FallbackTest, WhatAllAskItAsksOnceUntilOneAsksAgain) {
  query(0, 0);
  expect_poll(Phase::kStatus);
  query(0, 1);
  expect_silent();
  query(0, 1);
  expect_poll(Phase::kStatus);
  query(0, 0);
  expect_silent();
  query(1, 1);
  EXPECT_EQ(output().size(), 1u) << "another fragment";
}

TEST_F(FallbackTest, WhoAsksHasSent) {
  for (uint32_t rank = 0; rank < 3; ++rank) query(0, rank);
  const auto said = output();  // the poll of the first has been overtaken, and goes all the same
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[1].message.type, Type::kRemind) << "all have sent, though nobody has said so";
  query(0, 2);
  const auto bound = output();
  ASSERT_EQ(bound.size(), 2u);
  EXPECT_EQ(bound[0].message.type, Type::kRemind);
  EXPECT_EQ(bound[1].message.phase, Phase::kBind);
}

TEST_F(FallbackTest, OnlyWhatWasSentLeavesTheQueue) {
  query(0);
  query(1);
  query(2);
  Outgoing packets[4];
  ASSERT_EQ(fallback_->prepare(packets), 3u);
  fallback_->sent(1);
  ASSERT_EQ(fallback_->prepare(std::span(packets, 1)), 1u);
  EXPECT_EQ(packets[0].message.seq, 1u);
  fallback_->sent(0);
  ASSERT_EQ(fallback_->prepare(packets), 2u);
  EXPECT_EQ(packets[0].message.seq, 1u);
  EXPECT_EQ(packets[1].message.seq, 2u);
  fallback_->sent(2);
  expect_silent();
}

TEST_F(FallbackTest, QuestionsOfADecidedFragmentAreNotAsked) {
  query(0);
  query(1);
  have(0, 1, 5);
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].message.type, Type::kPoll);
  EXPECT_EQ(said[0].message.seq, 1u);
  EXPECT_EQ(said[1].message.type, Type::kResult);
  EXPECT_EQ(said[1].message.seq, 0u);
}

TEST_F(FallbackTest, NewerFragmentsTakeOverEntriesWithUnsentOutput) {
  part(0, 0b111_workers, {5});
  query(2 * kWindow);  // in the entry of fragment 0
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.type, Type::kPoll);
  EXPECT_EQ(said[0].message.seq, 2 * kWindow);
}

TEST_F(FallbackTest, QueueHoldsWhenNothingIsEverSent) {
  for (uint64_t seq = 0; seq < 20 * kWindow; ++seq) query(seq);
  const std::vector<Said> said = output();
  EXPECT_LE(said.size(), 2 * kWindow);
  query(20 * kWindow - 1);
  expect_poll(Phase::kStatus);
}

TEST_F(FallbackTest, SpeaksInTheEpochThatTheJobHasNow) {
  fallback_->set_epoch(kEpoch + 1);
  query(0);
  const std::vector<Said> said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.epoch, kEpoch + 1);
  part(1, 0b111_workers, {5}, kEpoch);  // of this fallback's own life still
  EXPECT_EQ(output().size(), 1u);
}

TEST_F(FallbackTest, NamesTheLaneOfTheFragment) {
  config_.lanes = 4;
  start();
  query(6);
  EXPECT_EQ(output()[0].message.lane, 2);
}

// ---- result buffers

TEST_F(FallbackTest, AResultGoesWhereTheContributionsAimed) {
  const Values values = {1, 2};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Message message = with_values(Type::kPart, rank, 0, values.size());
    message.target = 17;
    hear(message, values.data());
  }
  const auto said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.type, Type::kResult);
  EXPECT_EQ(said[0].message.target, 17u);
}

// After a restart of the switch: contributions that came before must not quarrel with those that
// come after.
TEST_F(FallbackTest, ForgetsTargetsOfASwitchThatHasGone) {
  const Values values = {1, 2};
  Message before = with_values(Type::kPart, 0, 0, values.size());
  before.target = 17;
  hear(before, values.data());
  fallback_->forget_targets();
  part(0, 0b110_workers, values);
  EXPECT_FALSE(fallback_->mismatch());
  const auto said = output();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].message.target, 0u);
}

}  // namespace
}  // namespace ina::aggregator
