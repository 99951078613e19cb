// Payloads of a group, added in one pass.
#include "aggregator/pending_sum.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::aggregator {
namespace {

constexpr uint16_t kElements = 16;

class PendingSumTest : public ::testing::Test {
 protected:
  PendingSumTest() {
    slot_.elements = kElements;
    slot_.dtype = DType::kInt32;
    slot_.op = Op::kSum;
    for (int32_t i = 0; i < 4; ++i) payloads_.emplace_back(kElements, 1 << i);
    followers_.payloads = pending_.list();
    pending_.begin_group(followers_);
  }
  const std::byte* payload(size_t i) const {
    return reinterpret_cast<const std::byte*>(payloads_[i].data());
  }
  static std::byte* bytes(std::vector<int32_t>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }
  const Kernels& kernel_ = kernels(DType::kInt32, Op::kSum);
  Slot slot_;
  std::vector<std::vector<int32_t>> payloads_;
  std::vector<int32_t> row_ = std::vector<int32_t>(kElements, 100);
  std::vector<int32_t> result_ = std::vector<int32_t>(kElements, -1);
  PendingSum pending_;
  Followers followers_;
};

TEST_F(PendingSumTest, AnEmptySlotsRowIsWrittenWhateverItHeld) {
  pending_.add(slot_, payload(0));
  pending_.add(slot_, payload(1));
  EXPECT_EQ(pending_.slot(), &slot_);
  EXPECT_EQ(pending_.add_to(kernel_, bytes(row_)), 2u);
  EXPECT_EQ(row_, std::vector<int32_t>(kElements, 3));
  EXPECT_EQ(pending_.slot(), nullptr) << "nothing waits any more";
}

TEST_F(PendingSumTest, WhatTheRowHoldsCountsFromBeforeTheGroup) {
  slot_.bits = WorkerSet::first(1);
  pending_.add(slot_, payload(0));
  slot_.bits = WorkerSet::first(2);
  pending_.add(slot_, payload(1));
  pending_.add_to(kernel_, bytes(row_));
  EXPECT_EQ(row_, std::vector<int32_t>(kElements, 103));
  // The next group is of a slot that is empty.
  slot_.bits = {};
  pending_.add(slot_, payload(2));
  pending_.add_to(kernel_, bytes(row_));
  EXPECT_EQ(row_, std::vector<int32_t>(kElements, 4));
}

TEST_F(PendingSumTest, FollowersAreListedBeforehandAndCountWhenTheyAreAdded) {
  const std::byte** const listed = pending_.list() + 5;
  listed[1] = payload(1);
  listed[2] = payload(2);
  followers_.payloads = listed;
  pending_.add(slot_, payload(0));
  pending_.add_followers(1);
  EXPECT_EQ(pending_.add_to(kernel_, bytes(row_)), 2u);
  EXPECT_EQ(row_, std::vector<int32_t>(kElements, 3));
}

TEST_F(PendingSumTest, AFinishedSumNeverTouchesTheRow) {
  bool overflow = true;
  pending_.add(slot_, payload(0));
  pending_.add(slot_, payload(1));
  EXPECT_EQ(pending_.finish(kernel_, bytes(result_), bytes(row_), payload(2), 1, overflow), 3u);
  EXPECT_EQ(result_, std::vector<int32_t>(kElements, 7));
  EXPECT_EQ(row_, std::vector<int32_t>(kElements, 100));
  EXPECT_FALSE(overflow);
  EXPECT_EQ(pending_.slot(), nullptr);
}

TEST_F(PendingSumTest, AFinishedSumHasWhatTheRowHolds) {
  bool overflow = false;
  slot_.bits = WorkerSet::first(1);
  pending_.add(slot_, payload(0));
  pending_.finish(kernel_, bytes(result_), bytes(row_), payload(1), 1, overflow);
  EXPECT_EQ(result_, std::vector<int32_t>(kElements, 103));
}

}  // namespace
}  // namespace ina::aggregator
