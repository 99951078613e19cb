#include "io/ethdev/last_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::io {
namespace {

constexpr wire::SipKey kKey{1, 2};

TEST(LastHash, IsThatOfThePayload) {
  const std::vector<std::byte> row(128, std::byte{5});
  const std::span payload(row);
  LastHash hash;
  for (const auto part : {payload, payload.first(64), payload.subspan(64), payload})
    EXPECT_EQ(hash.of(kKey, part), wire::siphash(kKey, part));
  constexpr wire::SipKey kOther{1, 3};
  EXPECT_EQ(hash.of(kOther, payload), wire::siphash(kOther, payload));
}

TEST(LastHash, IsMadeOnceUntilForgotten) {
  std::vector<std::byte> row(128);
  LastHash hash;
  const uint64_t first = hash.of(kKey, row);
  row[0] = std::byte{1};
  EXPECT_EQ(hash.of(kKey, row), first);
  hash.forget();
  EXPECT_EQ(hash.of(kKey, row), wire::siphash(kKey, row));
  EXPECT_NE(hash.of(kKey, row), first);
}

}  // namespace
}  // namespace ina::io
