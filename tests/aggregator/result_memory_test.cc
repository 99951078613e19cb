#include "aggregator/result_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::aggregator {
namespace {

constexpr uint32_t kWindow = 4;
constexpr uint32_t kSlotBytes = 512;
constexpr uint32_t kUnit = wire::kTargetUnitBytes;

class ResultMemoryTest : public testing::Test {
 protected:
  std::vector<std::byte> ring_ = std::vector<std::byte>(2 * kWindow * kSlotBytes);
  std::vector<std::byte> first_ = std::vector<std::byte>(4 * kUnit);
  std::vector<std::byte> second_ = std::vector<std::byte>(2 * kUnit);
  std::vector<uint64_t> marks_ = std::vector<uint64_t>(2 * kWindow);
  ResultMemory results_{ring_.data(), kWindow, kSlotBytes, marks_.data()};
};

TEST_F(ResultMemoryTest, WithoutATargetResultsGoRoundTheRing) {
  for (uint64_t seq = 0; seq < 5 * kWindow; ++seq)
    EXPECT_EQ(results_.place(Seq{seq}, 0, kSlotBytes),
              ring_.data() + seq % (2 * kWindow) * kSlotBytes);
}

TEST_F(ResultMemoryTest, ATargetIsAUnitOfABuffer) {
  results_.add({0, 4, first_.data()});
  results_.add({4, 2, second_.data()});
  EXPECT_EQ(results_.place(Seq{7}, 1, kSlotBytes), first_.data());
  EXPECT_EQ(results_.place(Seq{7}, 3, kUnit), first_.data() + 2 * kUnit);
  EXPECT_EQ(results_.place(Seq{7}, 5, 2 * kUnit), second_.data());
}

TEST_F(ResultMemoryTest, NothingReachesBeyondItsBuffer) {
  results_.add({2, 4, first_.data()});
  EXPECT_EQ(results_.place(Seq{}, 2, 1), nullptr) << "before it";
  EXPECT_EQ(results_.place(Seq{}, 3, 4 * kUnit), first_.data());
  EXPECT_EQ(results_.place(Seq{}, 3, 4 * kUnit + 1), nullptr);
  EXPECT_EQ(results_.place(Seq{}, 6, kUnit + 1), nullptr);
  EXPECT_EQ(results_.place(Seq{}, 7, 0), nullptr) << "behind it";
  EXPECT_EQ(results_.place(Seq{}, UINT32_MAX, 1), nullptr);
}

TEST_F(ResultMemoryTest, WhatIsRemovedIsNoTarget) {
  results_.add({0, 4, first_.data()});
  results_.add({4, 2, second_.data()});
  results_.remove(3);  // nobody's first unit
  results_.remove(0);
  EXPECT_EQ(results_.place(Seq{}, 1, kUnit), nullptr);
  EXPECT_EQ(results_.place(Seq{}, 5, kUnit), second_.data());
  results_.remove(4);
  EXPECT_EQ(results_.place(Seq{}, 5, kUnit), nullptr);
  for (uint32_t i = 0; i < kMaxResultBuffers; ++i) results_.add({i, 1, second_.data()});
}

TEST_F(ResultMemoryTest, EachFragmentIsPlacedOnce) {
  EXPECT_FALSE(results_.place_once(0, Seq{}));
  EXPECT_TRUE(results_.place_once(0, Seq{}));
  EXPECT_FALSE(results_.place_once(0, Seq{2 * kWindow})) << "a lap later";
  EXPECT_FALSE(results_.place_once(1, Seq{1}));
}

}  // namespace
}  // namespace ina::aggregator
