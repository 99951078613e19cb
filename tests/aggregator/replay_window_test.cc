#include "aggregator/replay_window.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace ina::aggregator {
namespace {

constexpr uint32_t kWindow = 8;

class ReplayWindowTest : public testing::TestWithParam<uint32_t> {
 protected:
  uint64_t lanes() const { return GetParam(); }
  size_t entries() const { return ReplayWindow::entries(kWindow, GetParam()); }
  /// The lane's fragment with this number.
  Seq fragment(uint64_t number) const { return Seq{number * lanes() + lanes() - 1}; }
  void advance(uint64_t number) {
    forgotten_.clear();
    window_.advance(fragment(number), number,
                    [&](uint64_t each) { forgotten_.push_back(window_.index(each)); });
  }

  std::vector<WorkerSet> seen_ = std::vector<WorkerSet>(entries());
  ReplayWindow window_{Seq{}, kWindow, GetParam(), seen_.data()};
  std::vector<size_t> forgotten_;
};

TEST_P(ReplayWindowTest, WhatIsTwoWindowsBackNobodyNeeds) {
  advance(entries());
  EXPECT_FALSE(window_.is_below(window_.end() - 2 * kWindow));
  EXPECT_TRUE(window_.is_below(window_.end() - (2 * kWindow + 1)));
}

TEST_P(ReplayWindowTest, EntriesOfALapAgoAreForgottenOnce) {
  for (uint64_t number = 0; number < 3 * entries(); ++number) {
    advance(number);
    EXPECT_EQ(forgotten_, std::vector{window_.index(number)});
    EXPECT_EQ(window_.seen(number), WorkerSet());
    window_.seen(number) = WorkerSet::from_bits(number + 1);
    advance(number);
    EXPECT_TRUE(forgotten_.empty()) << "it has come before";
    EXPECT_EQ(window_.seen(number), WorkerSet::from_bits(number + 1));
  }
}

TEST_P(ReplayWindowTest, AJumpForgetsWhatItPassesAndNoMore) {
  std::mt19937_64 random(1);
  std::map<uint64_t, WorkerSet> known;
  uint64_t number = 0;
  for (int i = 0; i < 1'000; ++i) {
    number += random() % (2 * entries());
    advance(number);
    EXPECT_LE(forgotten_.size(), entries());
    window_.seen(number) = known[number] = WorkerSet::from_bits(1 + random() % 1'000);
    for (uint64_t back = 0; back < std::min<uint64_t>(number + 1, entries()); ++back) {
      const auto found = known.find(number - back);
      ASSERT_EQ(window_.seen(number - back), found == known.end() ? WorkerSet() : found->second)
          << number << " - " << back;
    }
  }
}

TEST_P(ReplayWindowTest, AnotherEpochKnowsNothing) {
  advance(0);
  window_.seen(0) = WorkerSet::of(Rank{0});
  window_.clear();
  EXPECT_EQ(window_.seen(0), WorkerSet());
}

INSTANTIATE_TEST_SUITE_P(Lanes, ReplayWindowTest, testing::Values(1, 2, 8));

TEST(ReplayWindowWithoutRing, OnlyItsEndMoves) {
  ReplayWindow window(Seq{5}, kWindow, 1, nullptr);
  window.advance(Seq{4}, 4, [](uint64_t) { FAIL(); });
  EXPECT_EQ(window.end(), Seq{5});
  window.advance(Seq{9}, 9, [](uint64_t) { FAIL(); });
  EXPECT_EQ(window.end(), Seq{10});
  window.clear();
}

}  // namespace
}  // namespace ina::aggregator
