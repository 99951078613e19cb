// Results that are kept for others.
#include "fragments/kept_results.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace ina::client {
namespace {

TEST(KeptResults, AResultIsThereUntilOneARingLaterTakesItsPlace) {
  constexpr size_t kFragments = 6, kRowBytes = 100;
  KeptResults kept(kFragments, kRowBytes);
  for (uint8_t i = 0; i < kFragments; ++i) std::memset(kept.row(Seq{10u + i}), i, kRowBytes);
  for (uint8_t i = 0; i < kFragments; ++i)
    for (size_t at : {size_t{0}, kRowBytes - 1})
      EXPECT_EQ(std::to_integer<uint8_t>(kept.row(Seq{10u + i})[at]), i);
  EXPECT_EQ(kept.row(Seq{10 + kFragments}), kept.row(Seq{10}));
}

TEST(KeptResults, RowsOfWholeLinesAreAligned) {
  KeptResults kept(4, 128);
  for (uint64_t seq = 0; seq < 4; ++seq)
    EXPECT_EQ(reinterpret_cast<uintptr_t>(kept.row(Seq{seq})) % 64, 0u);
}

}  // namespace
}  // namespace ina::client
