// Rounding, overflow and order in the kernels of every instruction set that this machine has, and
// in the reference itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "hwy/highway.h"
#include "tests/aggregator/kernels_reference.h"

namespace ina::aggregator {
namespace {

std::vector<int64_t> all_targets() {
  return hwy::SupportedAndGeneratedTargets();
}
std::string target_name(const testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

class TargetTest : public testing::TestWithParam<int64_t> {
 protected:
  Target target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(All, TargetTest, testing::ValuesIn(all_targets()), target_name);

TEST_P(TargetTest, IsTheOneInUse) {
  EXPECT_STREQ(kernel_target(), hwy::TargetName(GetParam()));
}

TEST_P(TargetTest, EverySixteenBitFloatSurvivesLoadAndFinish) {
  for (const DType dtype : kHalfTypes) {
    const auto [exponent_bits, mantissa_bits] = format_of(dtype);
    const Kernels& sum = kernels(dtype, Op::kSum);
    for (uint32_t first = 0; first < 65536; first += 1024) {
      uint16_t payload[1024], result[1024];
      for (uint32_t i = 0; i < 1024; ++i) payload[i] = static_cast<uint16_t>(first + i);
      Row row;
      sum.load(row.bytes, reinterpret_cast<const std::byte*>(payload), 1024);
      const bool has_inf = first == 0x7c00 || first == 0xfc00;  // 0x7f80, 0xff80
      EXPECT_EQ(sum.finish(reinterpret_cast<std::byte*>(result), row.bytes, 1024, 1),
                dtype == DType::kBFloat16 && has_inf);
      for (uint32_t i = 0; i < 1024; ++i) {
        const float value = decode(payload[i], exponent_bits, mantissa_bits);
        ASSERT_TRUE(same_in_row(read<float>(row.bytes, i), value)) << "0x" << std::hex << first + i;
        const uint16_t quiet_nan = dtype == DType::kFloat16 ? 0x7e00 : 0x7fc0;
        ASSERT_EQ(result[i], std::isnan(value) ? quiet_nan : payload[i])
            << "0x" << std::hex << first + i;
      }
    }
  }
}

void expect_narrowed(DType dtype, const std::vector<float>& values) {
  const auto [exponent_bits, mantissa_bits] = format_of(dtype);
  std::vector<uint16_t> result(values.size());
  kernels(dtype, Op::kSum)
      .finish(reinterpret_cast<std::byte*>(result.data()),
              reinterpret_cast<const std::byte*>(values.data()), values.size(), 1);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(result[i], encode(values[i], exponent_bits, mantissa_bits))
        << dtype_name(dtype) << " of " << std::hexfloat << values[i];
}

// Halfway between each two neighbours (the largest and Inf included), and just beside.
TEST_P(TargetTest, RoundsToNearestEven) {
  for (const DType dtype : kHalfTypes) {
    const auto [exponent_bits, mantissa_bits] = format_of(dtype);
    std::vector<float> values;
    const uint16_t infinity =
        encode(std::numeric_limits<float>::infinity(), exponent_bits, mantissa_bits);
    for (uint16_t bits = 0; bits < infinity; ++bits) {
      const double low = decode(bits, exponent_bits, mantissa_bits);
      const double high = bits + 1 < infinity ? decode(static_cast<uint16_t>(bits + 1),
                                                       exponent_bits, mantissa_bits)
                                              : std::ldexp(1.0, 1 << (exponent_bits - 1));
      const auto middle = static_cast<float>((low + high) / 2);
      for (const float value : {std::nextafter(middle, 0.0f), middle,
                                std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_narrowed(dtype, values));
  }
}

TEST_P(TargetTest, RoundsRandomFloats) {
  Random random(11);
  std::vector<float> values(1 << 18);
  for (float& value : values) {
    auto bits = static_cast<uint32_t>(random());
    // Half of them in float16's range of exponents, which random bits seldom hit.
    if (random() % 2 == 0) bits = (bits & 0x807fffffu) | (100 + bits % 46) << 23;
    value = std::bit_cast<float>(bits);
  }
  for (const DType dtype : kHalfTypes) ASSERT_NO_FATAL_FAILURE(expect_narrowed(dtype, values));
}

// Golden figures, independent of the reference above.
TEST_P(TargetTest, OverflowStartsWhereRoundingReachesInf) {
  struct Golden {
    DType dtype;
    uint32_t bits;
    uint16_t result;
    bool overflow;
  };
  const Golden goldens[] = {
      {DType::kFloat16, std::bit_cast<uint32_t>(65504.0f), 0x7bff, false},
      {DType::kFloat16, std::bit_cast<uint32_t>(65519.996f), 0x7bff, false},
      {DType::kFloat16, std::bit_cast<uint32_t>(65520.0f), 0x7c00, true},
      {DType::kFloat16, std::bit_cast<uint32_t>(-65520.0f), 0xfc00, true},
      {DType::kFloat16, 0x7f7fffff, 0x7c00, true},
      {DType::kFloat16, 0x7f800000, 0x7c00, false},
      {DType::kFloat16, 0xff800000, 0xfc00, false},
      {DType::kFloat16, 0x7f800001, 0x7e00, false},
      {DType::kFloat16, 0xffffffff, 0x7e00, false},
      {DType::kFloat16, 0x33000000, 0x0000, false},  // 2^-25 ties to zero
      {DType::kFloat16, 0x33000001, 0x0001, false},
      {DType::kFloat16, 0xb3c00000, 0x8002, false},  // -1.5 * 2^-24 ties to even
      {DType::kFloat16, 0x387fe000, 0x0400, false},  // rounds up out of the denormals
      {DType::kBFloat16, 0x7f7f7fff, 0x7f7f, false},
      {DType::kBFloat16, 0x7f7f8000, 0x7f80, true},
      {DType::kBFloat16, 0xff7fffff, 0xff80, true},
      {DType::kBFloat16, 0x7f800000, 0x7f80, true},  // made by finite numbers, perhaps
      {DType::kBFloat16, 0xff800000, 0xff80, true},
      {DType::kBFloat16, 0x7f800001, 0x7fc0, false},  // truncation would give Inf
      {DType::kBFloat16, 0xff80ffff, 0x7fc0, false},
      {DType::kBFloat16, 0x7fffffff, 0x7fc0, false},  // rounding the bits would give -0
      {DType::kBFloat16, 0x3f808000, 0x3f80, false},
      {DType::kBFloat16, 0x3f818000, 0x3f82, false},
      {DType::kBFloat16, 0x00018000, 0x0002, false},  // denormals are kept
      {DType::kBFloat16, 0x80000001, 0x8000, false},
  };
  for (const Golden& golden : goldens) {
    uint16_t result = 0;
    const bool overflow = kernels(golden.dtype, Op::kSum)
                              .finish(reinterpret_cast<std::byte*>(&result),
                                      reinterpret_cast<const std::byte*>(&golden.bits), 1, 1);
    EXPECT_EQ(result, golden.result) << dtype_name(golden.dtype) << std::hex << golden.bits;
    EXPECT_EQ(overflow, golden.overflow) << dtype_name(golden.dtype) << std::hex << golden.bits;
  }
}

// One element through load, add, finish.
template <class T>
T reduce(DType dtype, Op op, T a, T b, uint32_t divisor = 1, bool* overflow = nullptr) {
  Row row{};
  T result{};
  kernels(dtype, op).load(row.bytes, reinterpret_cast<const std::byte*>(&a), 1);
  kernels(dtype, op).add(row.bytes, reinterpret_cast<const std::byte*>(&b), 1);
  const bool over =
      kernels(dtype, op).finish(reinterpret_cast<std::byte*>(&result), row.bytes, 1, divisor);
  if (overflow != nullptr) *overflow = over;
  return result;
}

TEST_P(TargetTest, IntegersWrap) {
  EXPECT_EQ(reduce<int32_t>(DType::kInt32, Op::kSum, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(reduce<int32_t>(DType::kInt32, Op::kSum, INT32_MIN, INT32_MIN), 0);
  EXPECT_EQ(reduce<int64_t>(DType::kInt64, Op::kSum, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(reduce<int64_t>(DType::kInt64, Op::kSum, INT64_MIN, -1), INT64_MAX);
  EXPECT_EQ(reduce<int32_t>(DType::kInt32, Op::kProduct, 0x10001, 0x10001), 0x20001);
  EXPECT_EQ(reduce<int32_t>(DType::kInt32, Op::kProduct, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(reduce<int64_t>(DType::kInt64, Op::kProduct, 0x100000001, -0x100000001), -0x200000001);
  EXPECT_EQ(reduce<int64_t>(DType::kInt64, Op::kProduct, INT64_MIN, 3), INT64_MIN);
}

TEST_P(TargetTest, BitwiseOperationsOfSignedBytesDoNotSaturate) {
  bool overflow = true;
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kBand, -128, -1, 1, &overflow), -128);
  EXPECT_FALSE(overflow);
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kBor, -128, 127, 1, &overflow), -1);
  EXPECT_FALSE(overflow);
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kBxor, -1, 127, 1, &overflow), -128);
  EXPECT_FALSE(overflow);
  EXPECT_EQ(reduce<uint8_t>(DType::kUInt8, Op::kBxor, 0xff, 0x0f, 1, &overflow), 0xf0);
  EXPECT_FALSE(overflow);
}

TEST_P(TargetTest, OperationsOfBool) {
  struct Truth {
    Op op;
    uint8_t of_false_false, of_false_true, of_true_true;
  };
  const Truth table[] = {
      {Op::kSum, 0, 1, 1},     {Op::kMax, 0, 1, 1},  {Op::kBor, 0, 1, 1},  {Op::kMin, 0, 0, 1},
      {Op::kProduct, 0, 0, 1}, {Op::kBand, 0, 0, 1}, {Op::kBxor, 0, 1, 0},
  };
  for (const Truth& truth : table) {
    SCOPED_TRACE(op_name(truth.op));
    const auto of = [&](uint8_t a, uint8_t b) { return reduce(DType::kBool, truth.op, a, b); };
    EXPECT_EQ(of(0, 0), truth.of_false_false);
    EXPECT_EQ(of(0, 1), truth.of_false_true);
    EXPECT_EQ(of(1, 0), truth.of_false_true);
    EXPECT_EQ(of(1, 1), truth.of_true_true);
    EXPECT_EQ(of(2, 1), truth.of_true_true) << "any byte but 0 is true";
    EXPECT_EQ(of(0, 0x80), truth.of_false_true);
  }
}

// Products of up to as many factors as a job may have workers, in any order and grouping.
template <class T>
void expect_true_products(DType dtype) {
  Random random(13);
  const Kernels& product = kernels(dtype, Op::kProduct);
  for (int round = 0; round < 2000; ++round) {
    std::vector<T> factors(2 + random() % (kMaxWorkers - 1));
    const size_t large = random() % 4;  // of any size; the others are 1 and -1, and 0 now and then
    for (size_t i = 0; i < factors.size(); ++i) {
      factors[i] = std::is_signed_v<T> && random() % 2 == 0 ? static_cast<T>(-1) : T{1};
      if (i < large) factors[i] = static_cast<T>(random());
      if (round % 8 == 0 && i % 2 == 0) factors[i] = static_cast<T>(2 + random() % 16);
      if (random() % 256 == 0) factors[i] = 0;
    }
    double exact = 1;  // has room for the product of 64 bytes
    for (const T factor : factors) exact *= factor;
    const double clamped = std::clamp(exact, static_cast<double>(std::numeric_limits<T>::min()),
                                      static_cast<double>(std::numeric_limits<T>::max()));
    std::shuffle(factors.begin(), factors.end(), random);
    Row row{}, part{};
    const auto bytes = [&](size_t i) { return reinterpret_cast<const std::byte*>(&factors[i]); };
    product.load(row.bytes, bytes(0), 1);
    product.load(part.bytes, bytes(1), 1);
    for (size_t i = 2; i < factors.size(); ++i)
      product.add(random() % 2 == 0 ? row.bytes : part.bytes, bytes(i), 1);
    product.merge(row.bytes, part.bytes, 1);
    T result{};
    ASSERT_EQ(product.finish(reinterpret_cast<std::byte*>(&result), row.bytes, 1, 1),
              exact != clamped)
        << exact;
    ASSERT_EQ(result, static_cast<T>(clamped)) << exact;
  }
}

TEST_P(TargetTest, ProductsOfBytesSaturateOnceAtTheEnd) {
  expect_true_products<int8_t>(DType::kInt8);
  expect_true_products<uint8_t>(DType::kUInt8);
}

TEST_P(TargetTest, UInt8SaturatesOnceAtTheEnd) {
  bool overflow = false;
  EXPECT_EQ(reduce<uint8_t>(DType::kUInt8, Op::kSum, 200, 56, 1, &overflow), 255);
  EXPECT_TRUE(overflow);
  EXPECT_EQ(reduce<uint8_t>(DType::kUInt8, Op::kSum, 200, 55, 1, &overflow), 255);
  EXPECT_FALSE(overflow);
  EXPECT_EQ(reduce<uint8_t>(DType::kUInt8, Op::kMin, 128, 255, 1, &overflow), 128) << "unsigned";
  EXPECT_FALSE(overflow);
}

TEST_P(TargetTest, Int8SaturatesOnceAtTheEnd) {
  bool overflow = false;
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kSum, 100, 28, 1, &overflow), 127);
  EXPECT_TRUE(overflow);
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kSum, -128, -128, 1, &overflow), -128);
  EXPECT_TRUE(overflow);
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kSum, 100, 27, 1, &overflow), 127);
  EXPECT_FALSE(overflow);
  EXPECT_EQ(reduce<int8_t>(DType::kInt8, Op::kSum, -100, -28, 1, &overflow), -128);
  EXPECT_FALSE(overflow);
  // 127 + 127 - 128 fits, though a partial sum does not.
  Row row{};
  const Kernels& sum = kernels(DType::kInt8, Op::kSum);
  const int8_t high = 127, low = -128;
  int8_t result = 0;
  sum.load(row.bytes, reinterpret_cast<const std::byte*>(&high), 1);
  sum.add(row.bytes, reinterpret_cast<const std::byte*>(&high), 1);
  EXPECT_FALSE(sum.add_finish(reinterpret_cast<std::byte*>(&result), row.bytes,
                              reinterpret_cast<const std::byte*>(&low), 1, 1));
  EXPECT_EQ(result, 126);
}

// float32 accumulators have no more range than bfloat16: they are infinite before anything is
// rounded.
TEST_P(TargetTest, SumsOfBFloat16OverflowInTheAccumulatorToo) {
  constexpr uint16_t kLarge = 0x7f16, kMinusLarge = 0xff16;  // 2e38 and a bit less
  constexpr uint16_t kInf = 0x7f80, kMinusInf = 0xff80, kNan = 0x7fc0, kOne = 0x3f80;
  struct Golden {
    Op op;
    uint16_t a, b, result;
    bool overflow;
  };
  const Golden goldens[] = {
      {Op::kSum, kLarge, kLarge, kInf, true},
      {Op::kSum, kMinusLarge, kMinusLarge, kMinusInf, true},
      {Op::kSum, kLarge, kMinusLarge, 0, false},
      {Op::kAvg, kLarge, kLarge, kInf, true},
      {Op::kAvg, kMinusLarge, kMinusLarge, kMinusInf, true},
      {Op::kAvg, kLarge, kOne, 0x7e96, false},
      {Op::kSum, kInf, kOne, kInf, true},  // an accumulator does not remember
      {Op::kSum, kInf, kMinusInf, kNan, false},
      {Op::kSum, kInf, kNan, kNan, false},
      {Op::kMin, kLarge, kLarge, kLarge, false},
      {Op::kMax, kInf, kOne, kInf, false},  // was infinite before
      {Op::kMin, kMinusInf, kOne, kMinusInf, false},
  };
  for (const Golden& golden : goldens) {
    SCOPED_TRACE(testing::Message()
                 << op_name(golden.op) << std::hex << " " << golden.a << " " << golden.b);
    const uint32_t divisor = golden.op == Op::kAvg ? 2 : 1;
    bool overflow = !golden.overflow;
    EXPECT_EQ(reduce(DType::kBFloat16, golden.op, golden.a, golden.b, divisor, &overflow),
              golden.result);
    EXPECT_EQ(overflow, golden.overflow);
    // The last contribution, and a partial sum.
    const Kernels& kernel = kernels(DType::kBFloat16, golden.op);
    Row row{}, part{};
    alignas(64) uint16_t result = 0;
    std::byte* const to = reinterpret_cast<std::byte*>(&result);
    const std::byte* const last = reinterpret_cast<const std::byte*>(&golden.b);
    kernel.load(row.bytes, reinterpret_cast<const std::byte*>(&golden.a), 1);
    EXPECT_EQ(kernel.add_finish(to, row.bytes, last, 1, divisor), golden.overflow);
    EXPECT_EQ(result, golden.result);
    EXPECT_EQ(kernel.add_finish_stream(to, row.bytes, last, 1, divisor), golden.overflow);
    kernel.load(part.bytes, last, 1);
    kernel.merge(row.bytes, part.bytes, 1);
    EXPECT_EQ(kernel.finish(to, row.bytes, 1, divisor), golden.overflow);
  }
  // The accumulator tells: in it all sums of finite float16 numbers are finite.
  bool overflow = true;
  EXPECT_EQ(reduce<uint16_t>(DType::kFloat16, Op::kSum, 0x7c00, 0x3c00, 1, &overflow), 0x7c00);
  EXPECT_FALSE(overflow) << "an infinite contribution";
  EXPECT_EQ(reduce<uint16_t>(DType::kFloat16, Op::kSum, 0x7bff, 0x7bff, 1, &overflow), 0x7c00);
  EXPECT_TRUE(overflow);
}

// Nine of the largest float16 numbers make a float32 infinite, two of bfloat16 do.
TEST_P(TargetTest, ProductsOverflowInTheAccumulatorToo) {
  const std::pair<DType, uint16_t> largest[] = {{DType::kFloat16, 0x7bff},
                                                {DType::kBFloat16, 0x7f7f}};
  for (const auto& [dtype, value] : largest) {
    const Kernels& product = kernels(dtype, Op::kProduct);
    const auto* const factor = reinterpret_cast<const std::byte*>(&value);
    alignas(64) uint16_t result = 0;
    auto* const to = reinterpret_cast<std::byte*>(&result);
    Row row{};
    product.load(row.bytes, factor, 1);
    EXPECT_FALSE(product.finish(to, row.bytes, 1, 1));
    for (int i = 1; i < 9; ++i) {
      EXPECT_TRUE(product.add_finish(to, row.bytes, factor, 1, 1)) << i;
      product.add(row.bytes, factor, 1);
      EXPECT_TRUE(product.finish(to, row.bytes, 1, 1)) << i;
      EXPECT_EQ(result, dtype == DType::kFloat16 ? 0x7c00 : 0x7f80);
    }
    EXPECT_TRUE(std::isinf(read<float>(row.bytes, 0)));
  }
}

template <class T>
void expect_float_order(DType dtype, T minus_zero, T plus_zero, T one, T nan, T signalling) {
  const auto both_ways = [&](Op op, T a, T b, T expected) {
    EXPECT_EQ(reduce<T>(dtype, op, a, b), expected) << dtype_name(dtype) << " " << op_name(op);
    EXPECT_EQ(reduce<T>(dtype, op, b, a), expected) << dtype_name(dtype) << " " << op_name(op);
  };
  both_ways(Op::kMin, minus_zero, plus_zero, minus_zero);
  both_ways(Op::kMax, minus_zero, plus_zero, plus_zero);
  both_ways(Op::kMin, plus_zero, one, plus_zero);
  both_ways(Op::kMax, minus_zero, one, one);
  for (const Op op : kAllOps) {
    if (!is_valid(dtype, op)) continue;
    both_ways(op, nan, one, nan);
    both_ways(op, signalling, one, nan);
    both_ways(op, signalling, nan, nan);
  }
}

TEST_P(TargetTest, NanWinsAndMinusZeroIsLess) {
  expect_float_order<uint32_t>(DType::kFloat32, 0x80000000, 0, 0x3f800000, 0x7fc00000, 0xff800001);
  expect_float_order<uint64_t>(DType::kFloat64, 1ull << 63, 0, 0x3ff0000000000000,
                               0x7ff8000000000000, 0xfff0000000000001);
  expect_float_order<uint16_t>(DType::kBFloat16, 0x8000, 0, 0x3f80, 0x7fc0, 0xff81);
  expect_float_order<uint16_t>(DType::kFloat16, 0x8000, 0, 0x3c00, 0x7e00, 0xfc01);
}

TEST_P(TargetTest, AvgDividesBeforeItRounds) {
  bool overflow = true;
  EXPECT_EQ(reduce<uint16_t>(DType::kFloat16, Op::kAvg, 0x7bff, 0x7bff, 2, &overflow), 0x7bff);
  EXPECT_FALSE(overflow);
  EXPECT_EQ(reduce<float>(DType::kFloat32, Op::kAvg, 1.0f, 1.0f, 3), 2.0f / 3.0f);
  EXPECT_EQ(reduce<double>(DType::kFloat64, Op::kAvg, 1.0, 1.0, 3), 2.0 / 3.0);
  EXPECT_EQ(reduce<double>(DType::kFloat64, Op::kSum, 1.0, 1.0, 1), 2.0);
}

// The reference rounding itself, against the neighbours of its choice.
TEST(ReferenceTest, EncodesTheNearestWithTiesToEven) {
  Random random(3);
  for (const DType dtype : kHalfTypes) {
    const auto [exponent_bits, mantissa_bits] = format_of(dtype);
    const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
    const auto value_of = [&, e = exponent_bits, m = mantissa_bits](int bits) {
      if (bits == infinity)
        return std::ldexp(1.0, 1 << (e - 1));  // what Inf stands for in rounding
      return static_cast<double>(decode(static_cast<uint16_t>(bits), e, m));
    };
    for (int i = 0; i < 200000; ++i) {
      auto pattern = static_cast<uint32_t>(random()) & 0x7fffffffu;
      if (i % 2 == 0) pattern = (pattern & 0x007fffffu) | (100 + pattern % 46) << 23;
      if (i % 3 == 0) pattern &= 0xfffff000u << (i % 9);  // many ties
      const float value = std::bit_cast<float>(pattern);
      if (!std::isfinite(value)) continue;
      const int bits = encode(value, exponent_bits, mantissa_bits);
      if (bits == infinity) {
        ASSERT_GE(value, (value_of(infinity) + value_of(infinity - 1)) / 2);
        continue;
      }
      const double error = std::fabs(value_of(bits) - value);
      const double above = std::fabs(value_of(bits + 1) - value);
      ASSERT_LE(error, above) << std::hexfloat << value;
      ASSERT_TRUE(error != above || bits % 2 == 0) << std::hexfloat << value;
      if (bits == 0) continue;
      const double below = std::fabs(value_of(bits - 1) - value);
      ASSERT_LE(error, below) << std::hexfloat << value;
      ASSERT_TRUE(error != below || bits % 2 == 0) << std::hexfloat << value;
    }
  }
}

}  // namespace
}  // namespace ina::aggregator
