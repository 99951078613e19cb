// Injected slowness: how long work takes on a worker that is slow at times.
#include "bench/straggle/slowness.h"

#include <gtest/gtest.h>

namespace ina::straggle {
namespace {

constexpr Time kMs = 1'000'000;

Pattern pattern(const std::string& text) {
  const auto parsed = parse_pattern(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(Pattern{});
}

TEST(Slowness, IsReadFromText) {
  EXPECT_EQ(pattern("none").kind, Pattern::Kind::kNone);
  EXPECT_EQ(pattern("permanent:4").kind, Pattern::Kind::kPermanent);
  EXPECT_EQ(pattern("link:2.5").severity, 2.5);
  EXPECT_EQ(pattern("rotating:4:250ms").period, 250 * kMs);
  for (const char* bad : {"", "slow", "none:1", "permanent", "permanent:0", "permanent:x",
                          "rotating:4", "rotating:4:250", "random:4:0ms", "link:2:1ms"})
    EXPECT_FALSE(parse_pattern(bad)) << bad;
}

TEST(Slowness, PermanentMeetsRank0Alone) {
  EXPECT_EQ(Slowness(pattern("permanent:4"), 0, 8, 1).done(5, 100), 405);
  EXPECT_EQ(Slowness(pattern("permanent:4"), 1, 8, 1).done(5, 100), 105);
}

TEST(Slowness, RotatingMeetsEachInTurn) {
  const Pattern rotating = pattern("rotating:4:10ms");
  // 10 ms of which it does a quarter, then as ever.
  EXPECT_EQ(Slowness(rotating, 0, 2, 1).done(0, 5 * kMs), 12'500'000);
  EXPECT_EQ(Slowness(rotating, 1, 2, 1).done(0, 5 * kMs), 5 * kMs);
  EXPECT_EQ(Slowness(rotating, 1, 2, 1).done(10 * kMs, kMs), 14 * kMs);
  EXPECT_EQ(Slowness(rotating, 0, 2, 1).done(19 * kMs, 2 * kMs), 24 * kMs);
}

TEST(Slowness, RandomIsAsOftenAsOneAtATime) {
  constexpr int kRanks = 8;
  constexpr Time kWork = 2'000'000 * kMs;
  double lost = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    Slowness random(pattern("random:4:10ms"), rank, kRanks, 7);
    const Time took = random.done(0, kWork);
    Slowness again(pattern("random:4:10ms"), rank, kRanks, 7);
    EXPECT_EQ(again.done(0, kWork), took);
    // Slow for a share s of the time t: (1 - s) t + s t / 4 = work.
    lost += (1 - static_cast<double>(kWork) / static_cast<double>(took)) / 0.75;
  }
  EXPECT_NEAR(lost, 1, 0.05);
}

}  // namespace
}  // namespace ina::straggle
