#include "bench/perf/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "bench/perf/options.h"

namespace ina::perf {
namespace {

TEST(Pattern, InputsDifferByRankAndRound) {
  for (const ina_dtype dtype : kAllDtypes) {
    EXPECT_NE(input_block(dtype, INA_SUM, 0, 64, 1), input_block(dtype, INA_SUM, 1, 64, 1));
    EXPECT_NE(input_block(dtype, INA_SUM, 0, 64, 1), input_block(dtype, INA_SUM, 0, 64, 2));
    EXPECT_NE(expected_block(dtype, INA_SUM, 64, 1), expected_block(dtype, INA_SUM, 64, 2));
  }
}

template <class T>
T element(const std::vector<std::byte>& block, size_t index) {
  T value;
  std::memcpy(&value, block.data() + index * sizeof(T), sizeof(T));
  return value;
}

/// Adds the inputs as the hardware does and compares bits.
template <class T, class Wide = T>
void expect_sum(ina_dtype dtype, ina_op op) {
  constexpr int kRanks = 63;  // no power of two: a reciprocal would not be exact
  const auto expected = expected_block(dtype, op, kRanks, 7);
  std::vector<Wide> sums(kPatternElements);
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    const auto input = input_block(dtype, op, rank, kRanks, 7);
    for (size_t i = 0; i < kPatternElements; ++i)
      sums[i] += static_cast<Wide>(element<T>(input, i));
  }
  for (size_t i = 0; i < kPatternElements; ++i) {
    const Wide result = op == INA_AVG ? sums[i] / kRanks : sums[i];
    ASSERT_EQ(static_cast<T>(result), element<T>(expected, i)) << i;
  }
}

TEST(Pattern, SumsAreExactInAnyOrder) {
  expect_sum<uint32_t>(INA_INT32, INA_SUM);  // unsigned: wraps as documented
  expect_sum<uint64_t>(INA_INT64, INA_SUM);
  expect_sum<float>(INA_FLOAT32, INA_SUM);
  expect_sum<double>(INA_FLOAT64, INA_SUM);
}

TEST(Pattern, AveragesAreExact) {
  expect_sum<float>(INA_FLOAT32, INA_AVG);
  expect_sum<double>(INA_FLOAT64, INA_AVG);
}

/// Multiplies the inputs as the hardware does, last rank first, and compares bits.
template <class T>
void expect_product(ina_dtype dtype) {
  constexpr int kRanks = 63;
  const auto expected = expected_block(dtype, INA_PROD, kRanks, 7);
  std::vector<T> products(kPatternElements, T{1});
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    const auto input = input_block(dtype, INA_PROD, rank, kRanks, 7);
    for (size_t i = 0; i < kPatternElements; ++i)
      products[i] = static_cast<T>(products[i] * element<T>(input, i));
  }
  for (size_t i = 0; i < kPatternElements; ++i)
    ASSERT_EQ(products[i], element<T>(expected, i)) << i;
}

TEST(Pattern, ProductsAreExactInAnyOrder) {
  expect_product<uint32_t>(INA_INT32);
  expect_product<uint64_t>(INA_INT64);
  expect_product<float>(INA_FLOAT32);
  expect_product<double>(INA_FLOAT64);
}

TEST(Pattern, TheResultOfOneRankIsItsInput) {
  for (const ina_dtype dtype : kAllDtypes)
    for (const ina_op op : kAllOps)
      if (is_offered(dtype, op)) {
        EXPECT_TRUE(input_block(dtype, op, 0, 1, 1) == expected_block(dtype, op, 1, 1))
            << name(dtype) << ' ' << name(op);
      }
}

/// How many elements of the result, of all, are `value`.
double share_of(ina_dtype dtype, ina_op op, int ranks, uint8_t value) {
  const auto expected = expected_block(dtype, op, ranks, 1);
  const auto found = std::count(expected.begin(), expected.end(), std::byte{value});
  return static_cast<double>(found) / static_cast<double>(expected.size());
}

TEST(Pattern, BoolIsZeroAndOne) {
  for (const int ranks : {1, 2, 64})
    for (const ina_op op : kAllOps) {
      if (!is_offered(INA_BOOL, op)) continue;
      const double ones = share_of(INA_BOOL, op, ranks, 1);
      EXPECT_GT(ones, 0.2) << name(op) << ' ' << ranks;
      EXPECT_LT(ones, 0.8) << name(op) << ' ' << ranks;
      EXPECT_DOUBLE_EQ(ones + share_of(INA_BOOL, op, ranks, 0), 1) << name(op);
    }
}

TEST(Pattern, BytesSaturateNowAndThen) {
  for (const int ranks : {2, 8, 64}) {
    for (const auto& [dtype, largest] : {std::pair{INA_UINT8, 255}, std::pair{INA_INT8, 127}})
      for (const ina_op op : {INA_SUM, INA_PROD}) {
        const double share = share_of(dtype, op, ranks, static_cast<uint8_t>(largest));
        EXPECT_GT(share, 0.005) << name(dtype) << ' ' << name(op) << ' ' << ranks;
        EXPECT_LT(share, 0.7) << name(dtype) << ' ' << name(op) << ' ' << ranks;
      }
  }
}

TEST(Pattern, Int8SaturatesBothWays) {
  constexpr int kRanks = 8;
  const auto expected = expected_block(INA_INT8, INA_SUM, kRanks, 3);
  std::vector<int> sums(kPatternElements);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto input = input_block(INA_INT8, INA_SUM, rank, kRanks, 3);
    for (size_t i = 0; i < kPatternElements; ++i) sums[i] += element<int8_t>(input, i);
  }
  int low = 0;
  int high = 0;
  for (size_t i = 0; i < kPatternElements; ++i) {
    ASSERT_EQ(element<int8_t>(expected, i), std::clamp(sums[i], -128, 127));
    low += sums[i] < -128;
    high += sums[i] > 127;
  }
  EXPECT_GT(low, 0);
  EXPECT_GT(high, 0);
}

double as_double(ina_dtype dtype, const std::vector<std::byte>& block, size_t index) {
  return std::stod(format_element(dtype, block.data() + index * 2));
}

TEST(Pattern, SixteenBitFloatsAreExact) {
  for (const ina_dtype dtype : {INA_BFLOAT16, INA_FLOAT16})
    for (const ina_op op : {INA_SUM, INA_AVG, INA_PROD})
      for (const int ranks : {1, 3, 64}) {
        const auto expected = expected_block(dtype, op, ranks, 1);
        std::vector<double> sums(500, op == INA_PROD ? 1 : 0);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto input = input_block(dtype, op, rank, ranks, 1);
          for (size_t i = 0; i < sums.size(); ++i) {
            const double value = as_double(dtype, input, i);
            sums[i] = op == INA_PROD ? sums[i] * value : sums[i] + value;
          }
        }
        for (size_t i = 0; i < sums.size(); ++i)
          ASSERT_EQ(as_double(dtype, expected, i), op == INA_AVG ? sums[i] / ranks : sums[i]);
      }
}

TEST(Pattern, SixteenBitFloatsHaveTheStandardBits) {
  const uint16_t half[] = {0x0000, 0x3c00, 0xc000, 0x6800};  // 0, 1, -2, 2048
  const char* half_text[] = {"0", "1", "-2", "2048"};
  const uint16_t brain[] = {0x0000, 0x3f80, 0xc000, 0x4380};  // 0, 1, -2, 256
  const char* brain_text[] = {"0", "1", "-2", "256"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(format_element(INA_FLOAT16, reinterpret_cast<const std::byte*>(&half[i])),
              half_text[i]);
    EXPECT_EQ(format_element(INA_BFLOAT16, reinterpret_cast<const std::byte*>(&brain[i])),
              brain_text[i]);
  }
}

TEST(Pattern, MinAndMaxPickAnInput) {
  const auto a = input_block(INA_INT32, INA_MIN, 0, 2, 5);
  const auto b = input_block(INA_INT32, INA_MIN, 1, 2, 5);
  const auto low = expected_block(INA_INT32, INA_MIN, 2, 5);
  const auto high = expected_block(INA_INT32, INA_MAX, 2, 5);
  for (size_t i = 0; i < kPatternElements; ++i) {
    const auto x = element<int32_t>(a, i);
    const auto y = element<int32_t>(b, i);
    ASSERT_EQ(element<int32_t>(low, i), std::min(x, y));
    ASSERT_EQ(element<int32_t>(high, i), std::max(x, y));
  }
}

TEST(Pattern, OneFlippedBitAnywhereIsFound) {
  const auto block = input_block(INA_INT8, INA_SUM, 0, 2, 1);
  std::vector<std::byte> buffer(3 * block.size() + 17);
  fill(buffer, block);
  EXPECT_EQ(find_difference(buffer, block), std::nullopt);
  for (const size_t at : {size_t{0}, block.size() - 1, block.size(), buffer.size() - 1}) {
    buffer[at] ^= std::byte{1};
    EXPECT_EQ(find_difference(buffer, block), at);
    buffer[at] ^= std::byte{1};
  }
}

TEST(Pattern, AFragmentAtAnothersPlaceIsFound) {
  const auto block = input_block(INA_FLOAT32, INA_SUM, 0, 2, 1);
  for (const size_t fragment_bytes : {256u, 1024u, 8192u})
    for (const size_t distance : {1u, 2u, 256u, 512u, 4096u}) {
      std::vector<std::byte> buffer((distance + 1) * fragment_bytes);
      fill(buffer, block);
      std::memcpy(buffer.data() + distance * fragment_bytes, buffer.data(), fragment_bytes);
      // Single bytes may be equal by chance.
      const auto found = find_difference(buffer, block);
      ASSERT_TRUE(found) << distance;
      EXPECT_LT(*found - distance * fragment_bytes, sizeof(float));
    }
}

TEST(Sizes, RangesAndLists) {
  using Sizes = std::vector<uint64_t>;
  EXPECT_EQ(parse_sizes("4:256:4"), (Sizes{4, 16, 64, 256}));
  EXPECT_EQ(parse_sizes("4:255:4"), (Sizes{4, 16, 64}));
  EXPECT_EQ(parse_sizes("1KiB:1MiB:32"), (Sizes{1024, 32768, 1048576}));
  EXPECT_EQ(parse_sizes("8:32"), (Sizes{8, 32}));
  EXPECT_EQ(parse_sizes("0,3,1GiB"), (Sizes{0, 3, 1u << 30}));
  EXPECT_EQ(parse_sizes("7"), (Sizes{7}));
  for (const char* bad : {"", "4,", "x", "4KB", "-4", "0:4:2", "8:4:2", "4:8:1", "1:2:3:4",
                          "4:", "99999999999999999999", "2000GiB"})
    EXPECT_FALSE(parse_sizes(bad)) << bad;
}

}  // namespace
}  // namespace ina::perf
