// The fixed-point kernels of every instruction set that this machine has, against plain scalar
// code, and the error bound that fixed_point.h states.
#include "operations/fixed_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hwy/highway.h"
#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace ina::client {
namespace {

// -------------------------------------------------------------------------------- reference

struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bytes;
};
Format format_of(DType dtype) {
  if (dtype == DType::kFloat32) return {8, 23, 4};
  return dtype == DType::kBFloat16 ? Format{8, 7, 2} : Format{5, 10, 2};
}

// Value of a bit pattern; NaN and Inf as in double.
double decode(DType dtype, uint32_t bits) {
  const Format format = format_of(dtype);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int top = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & top;
  const auto mantissa = static_cast<int>(bits & ((1u << format.mantissa_bits) - 1));
  double magnitude = 0;
  if (exponent == top) {
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  } else {
    magnitude =
        std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
  }
  return (bits >> (8 * format.bytes - 1)) != 0 ? -magnitude : magnitude;
}

// The nearest number of the format, ties to even. Units of the last place carry into the exponent
// as mantissa bits do.
uint32_t encode(DType dtype, long double value) {
  const Format format = format_of(dtype);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto infinity = static_cast<int64_t>((1 << format.exponent_bits) - 1)
                        << format.mantissa_bits;
  const uint32_t sign = std::signbit(value) ? 1u << (8 * format.bytes - 1) : 0;
  const long double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const auto units =
      static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const int64_t bits = (static_cast<int64_t>(exponent + bias - 1) << format.mantissa_bits) + units;
  return sign | static_cast<uint32_t>(std::min(bits, infinity));
}

// Elements of one data type as bit patterns.
struct Tensor {
  DType dtype;
  std::vector<std::byte> bytes;

  Tensor(DType type, size_t count) : dtype(type), bytes(count * wire_bytes(type)) {}
  size_t size() const { return bytes.size() / wire_bytes(dtype); }
  uint32_t bits(size_t i) const {
    uint32_t result = 0;
    std::memcpy(&result, bytes.data() + i * wire_bytes(dtype), wire_bytes(dtype));
    return result;
  }
  void set_bits(size_t i, uint32_t value) {
    std::memcpy(bytes.data() + i * wire_bytes(dtype), &value, wire_bytes(dtype));
  }
  double value(size_t i) const { return decode(dtype, bits(i)); }
};

int reference_exponent(double value) {
  if (value == 0 || std::fabs(value) < 0x1p-126) return 0;
  return std::ilogb(value) + 127;
}

int32_t reference_quantise(double value, int stored, uint32_t headroom) {
  if (!std::isfinite(value)) return 0;
  const int k = 157 - static_cast<int>(headroom) - (stored + 128);
  return static_cast<int32_t>(std::nearbyint(std::ldexp(value, k)));
}

// ------------------------------------------------------------------------------------ inputs

// Every pattern of a 16-bit type; for float32 every exponent with mantissas of note.
Tensor all_values(DType dtype) {
  if (dtype != DType::kFloat32) {
    Tensor tensor(dtype, 1 << 16);
    for (uint32_t i = 0; i < 1 << 16; ++i) tensor.set_bits(i, i);
    return tensor;
  }
  const uint32_t mantissas[] = {0,        1,        2,        0x000100, 0x200000, 0x3FFFFF,
                                0x400000, 0x400001, 0x555555, 0x7FFF00, 0x7FFFFE, 0x7FFFFF};
  Tensor tensor(dtype, 2 * 256 * std::size(mantissas));
  size_t i = 0;
  for (uint32_t top = 0; top < 512; ++top)
    for (const uint32_t mantissa : mantissas) tensor.set_bits(i++, top << 23 | mantissa);
  return tensor;
}

// Numbers of exponents around one that the block has, specials and zeros among them.
Tensor random_values(DType dtype, size_t count, uint32_t seed, bool specials) {
  std::mt19937 random(seed);
  const Format format = format_of(dtype);
  const uint32_t top = (1u << format.exponent_bits) - 1;
  Tensor tensor(dtype, count);
  uint32_t centre = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % kBlockElements == 0) centre = random() % top;
    const uint32_t down = random() % 12;
    uint32_t exponent = centre > down ? centre - down : 0;
    uint32_t mantissa = random() & ((1u << format.mantissa_bits) - 1);
    if (random() % 16 == 0) exponent = mantissa = 0;
    if (specials && random() % 200 == 0) exponent = top;
    if (exponent == top && random() % 2 == 0) mantissa = 0;
    tensor.set_bits(i, ((random() & 1) << (8 * format.bytes - 1)) |
                           exponent << format.mantissa_bits | mantissa);
  }
  return tensor;
}

// ------------------------------------------------------------------------------------- tests

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

class FixedPoint : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

struct Exponents {
  std::vector<int8_t> exponents, specials;
  explicit Exponents(const Tensor& tensor)
      : exponents(blocks_of(tensor.size())), specials(exponents.size()) {
    block_exponents(tensor.dtype, tensor.bytes.data(), tensor.size(), exponents.data(),
                    specials.data());
  }
};

TEST_P(FixedPoint, IsTheOneAskedFor) {
  EXPECT_STREQ(fixed_point_target(), hwy::TargetName(GetParam()));
}

void expect_exponents(const Tensor& tensor) {
  const Exponents found(tensor);
  for (size_t block = 0; block < found.exponents.size(); ++block) {
    int exponent = 0;
    bool special = false;
    const size_t end = std::min(tensor.size(), (block + 1) * kBlockElements);
    for (size_t i = block * kBlockElements; i < end; ++i) {
      if (std::isfinite(tensor.value(i)))
        exponent = std::max(exponent, reference_exponent(tensor.value(i)));
      else
        special = true;
    }
    ASSERT_EQ(found.exponents[block], exponent - 128) << "block " << block;
    ASSERT_EQ(found.specials[block], special ? 1 : 0) << "block " << block;
  }
}

TEST_P(FixedPoint, FindsTheExponents) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name(dtype));
    expect_exponents(all_values(dtype));
    for (const size_t count : {0, 1, 255, 256, 257, 1000})
      expect_exponents(random_values(dtype, count, 1, true));
    // One value a block, so that every value decides one.
    const Tensor all = all_values(dtype);
    Tensor alone(dtype, 64 * kBlockElements);
    for (size_t i = 0; i < all.size(); i += 64) {
      for (size_t block = 0; block < 64; ++block)
        alone.set_bits(block * kBlockElements + (i + block) % kBlockElements,
                       all.bits(std::min(i + block, all.size() - 1)));
      expect_exponents(alone);
      std::fill(alone.bytes.begin(), alone.bytes.end(), std::byte{});
    }
  }
}

void expect_quantised(const Tensor& tensor, const std::vector<int8_t>& exponents,
                      uint32_t headroom) {
  std::vector<int32_t> fixed(tensor.size(), -1);
  quantise(tensor.dtype, tensor.bytes.data(), tensor.size(), exponents.data(), headroom,
           fixed.data());
  for (size_t i = 0; i < tensor.size(); ++i)
    ASSERT_EQ(fixed[i],
              reference_quantise(tensor.value(i), exponents[i / kBlockElements], headroom))
        << "element " << i << ", bits " << std::hex << tensor.bits(i) << ", headroom " << headroom;
}

TEST_P(FixedPoint, Quantises) {
  for (const DType dtype : kDTypes)
    for (const uint32_t headroom : {0u, 1u, 3u, 6u, 13u}) {
      SCOPED_TRACE(name(dtype));
      const Tensor all = all_values(dtype);
      expect_quantised(all, Exponents(all).exponents, headroom);
      // As if another worker had the largest number there is.
      expect_quantised(all, std::vector<int8_t>(blocks_of(all.size()), 126), headroom);
      for (const size_t count : {0, 1, 255, 256, 257, 1000}) {
        const Tensor random = random_values(dtype, count, headroom, true);
        expect_quantised(random, Exponents(random).exponents, headroom);
      }
    }
}

TEST_P(FixedPoint, NoSumOverflows) {
  for (const DType dtype : kDTypes)
    for (const uint32_t workers :
         {1u, 2u, 3u, 5u, 8u, 33u, 64u, 65u, 128u, 200u, 256u, 511u, 4096u}) {
      SCOPED_TRACE(name(dtype));
      const Tensor all = all_values(dtype);
      std::vector<int32_t> fixed(all.size());
      quantise(dtype, all.bytes.data(), all.size(), Exponents(all).exponents.data(),
               headroom_bits(workers), fixed.data());
      for (const int32_t value : fixed)
        ASSERT_LE(std::abs(int64_t{value}) * workers, std::numeric_limits<int32_t>::max());
    }
}

void expect_dequantised(DType dtype, const std::vector<int32_t>& fixed,
                        const std::vector<int8_t>& exponents, uint32_t headroom, uint32_t divisor) {
  Tensor tensor(dtype, fixed.size());
  const bool overflow = dequantise(dtype, fixed.data(), fixed.size(), exponents.data(), headroom,
                                   divisor, tensor.bytes.data());
  bool expected_overflow = false;
  for (size_t i = 0; i < fixed.size(); ++i) {
    const int k = 157 - static_cast<int>(headroom) - (exponents[i / kBlockElements] + 128);
    const long double value = std::ldexp(static_cast<long double>(fixed[i]), -k) / divisor;
    const uint32_t expected = encode(dtype, value);
    expected_overflow |= std::isinf(decode(dtype, expected));
    ASSERT_EQ(tensor.bits(i), expected)
        << "element " << i << ": " << fixed[i] << " * 2^" << -k << " / " << divisor;
  }
  EXPECT_EQ(overflow, expected_overflow);
}

TEST_P(FixedPoint, Dequantises) {
  std::mt19937 random(7);
  std::vector<int32_t> fixed(kBlockElements * 3 + 17);
  for (size_t i = 0; i < fixed.size(); ++i)
    fixed[i] = static_cast<int32_t>(random()) >> (random() % 31);
  const int32_t corners[] = {0,
                             1,
                             -1,
                             2,
                             3,
                             INT32_MAX,
                             -INT32_MAX,
                             1 << 24,
                             (1 << 24) + 1,
                             (3 << 23) + 1,
                             0x7FFFFF80,
                             0x7FFFFF7F,
                             0x7FFFFFC0,
                             0x7FFFFFBF};
  std::copy(std::begin(corners), std::end(corners), fixed.begin());
  std::copy(std::begin(corners), std::end(corners), fixed.end() - 17);
  for (const DType dtype : kDTypes)
    for (const uint32_t divisor : {1u, 2u, 3u, 7u, 63u, 64u, 199u, 3001u, 4096u})
      for (int exponent = 0; exponent <= 254; ++exponent) {
        SCOPED_TRACE(name(dtype));
        SCOPED_TRACE(exponent);
        expect_dequantised(
            dtype, fixed,
            std::vector<int8_t>(blocks_of(fixed.size()), static_cast<int8_t>(exponent - 128)),
            exponent % 14, divisor);
        if (HasFatalFailure()) return;
      }
}

TEST_P(FixedPoint, TiesRoundToEven) {
  // Halfway between neighbours of each format, on both sides of an even one, in units of 2^-k.
  for (const DType dtype : kDTypes) {
    const int spare = 30 - format_of(dtype).mantissa_bits;  // bits below the last place of 2^30
    std::vector<int32_t> fixed;
    for (int odd = 1; odd < 8; odd += 2)
      for (const int off : {-1, 0, 1}) fixed.push_back((1 << 30) + odd * (1 << (spare - 1)) + off);
    expect_dequantised(dtype, fixed, {0}, 1, 1);   // where float32 is denormal
    expect_dequantised(dtype, fixed, {-1}, 1, 1);  // 127: numbers around 1
    expect_dequantised(dtype, fixed, {-128 + 112}, 1, 3);
  }
}

TEST_P(FixedPoint, SumsAreAsExactAsPromised) {
  for (const DType dtype : kDTypes)
    for (const uint32_t workers : {1u, 2u, 7u, 64u, 256u}) {
      SCOPED_TRACE(name(dtype));
      constexpr size_t kCount = 4 * kBlockElements;
      const uint32_t headroom = headroom_bits(workers);
      std::vector<Tensor> inputs;
      std::vector<int8_t> exponents(kCount / kBlockElements, -128);
      for (uint32_t worker = 0; worker < workers; ++worker) {
        inputs.push_back(random_values(dtype, kCount, worker, false));
        const Exponents own(inputs.back());
        for (size_t block = 0; block < exponents.size(); ++block)
          exponents[block] = std::max(exponents[block], own.exponents[block]);
      }
      std::vector<int32_t> sum(kCount), fixed(kCount);
      for (const Tensor& input : inputs) {
        quantise(dtype, input.bytes.data(), kCount, exponents.data(), headroom, fixed.data());
        for (size_t i = 0; i < kCount; ++i) sum[i] += fixed[i];
      }
      std::vector<double> largest(exponents.size());
      for (const Tensor& input : inputs)
        for (size_t i = 0; i < kCount; ++i)
          largest[i / kBlockElements] =
              std::max(largest[i / kBlockElements], std::fabs(input.value(i)));
      for (size_t i = 0; i < kCount; ++i) {
        const size_t block = i / kBlockElements;
        long double exact = 0;
        for (const Tensor& input : inputs) exact += input.value(i);
        const int k = 157 - static_cast<int>(headroom) - (exponents[block] + 128);
        const long double error = std::ldexp(static_cast<long double>(sum[i]), -k) - exact;
        ASSERT_LE(std::fabs(error),
                  workers * std::ldexp(largest[block], static_cast<int>(headroom) - 31))
            << "element " << i << " of " << workers << " workers";
      }
    }
}

// The settings of some programs: another rounding, and on x86 denormals taken for zeros.
class EnvironmentOfOthers {
 public:
  EnvironmentOfOthers() {
    std::fesetround(FE_UPWARD);
#if HWY_ARCH_X86
    _mm_setcsr(_mm_getcsr() | kDenormalsAreZero);
#endif
  }
  bool is_kept() const {
#if HWY_ARCH_X86
    if ((_mm_getcsr() & kDenormalsAreZero) != kDenormalsAreZero) return false;
#endif
    return std::fegetround() == FE_UPWARD;
  }
  void end() const {
    std::fesetenv(FE_DFL_ENV);
  }

 private:
  static constexpr unsigned kDenormalsAreZero = 0x8040;
};

TEST_P(FixedPoint, IgnoresTheCallersFloatingPointEnvironment) {
  for (const DType dtype : kDTypes) {
    Tensor input = random_values(dtype, 1000, 3, false);
    for (uint32_t i = 0; i < kBlockElements; ++i) input.set_bits(i, i);  // denormals
    const Exponents found(input);
    const EnvironmentOfOthers environment;
    std::vector<int32_t> fixed(input.size());
    quantise(dtype, input.bytes.data(), input.size(), found.exponents.data(), 6, fixed.data());
    Tensor output(dtype, input.size());
    dequantise(dtype, fixed.data(), fixed.size(), found.exponents.data(), 6, 3,
               output.bytes.data());
    EXPECT_TRUE(environment.is_kept());
    environment.end();
    expect_quantised(input, found.exponents, 6);
    Tensor again(dtype, input.size());
    dequantise(dtype, fixed.data(), fixed.size(), found.exponents.data(), 6, 3, again.bytes.data());
    EXPECT_EQ(output.bytes, again.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FixedPoint, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

TEST(Headroom, HoldsTheWorkers) {
  for (uint32_t workers = 1; workers <= kMaxRanks; ++workers) {
    EXPECT_GE(1u << headroom_bits(workers), workers);
    EXPECT_LE(1u << headroom_bits(workers), 2 * workers);
    if (workers <= kMaxWorkers) {
      EXPECT_LT(1u << headroom_bits(workers), 2 * workers);
    }
  }
}

TEST(Specials, AreToldApart) {
  for (const DType dtype : kDTypes) {
    const Tensor all = all_values(dtype);
    std::vector<int32_t> classes(all.size());
    classify(dtype, all.bytes.data(), all.size(), classes.data());
    for (size_t i = 0; i < all.size(); ++i) {
      const double value = all.value(i);
      const int expected = std::isnan(value) ? 1 : !std::isinf(value) ? 0 : value > 0 ? 2 : 4;
      ASSERT_EQ(classes[i], expected) << std::hex << all.bits(i);
    }
  }
}

TEST(Specials, AreAddedByIeee754) {
  // NaN, Inf, -Inf, and some of them together.
  const std::vector<int32_t> classes = {0, 1, 2, 4, 6, 3, 5, 7};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> expected = {0, nan, inf, -inf, nan, nan, nan, nan};
  for (const DType dtype : kDTypes) {
    Tensor values(dtype, classes.size());
    put_specials(dtype, classes.data(), classes.size(), values.bytes.data());
    for (size_t i = 0; i < classes.size(); ++i) {
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(values.value(i)) && values.bits(i) == values.bits(1)) << i;
      else
        EXPECT_EQ(values.value(i), expected[i]) << i;
    }
    std::vector<int32_t> fixed(classes.size(), 5);
    clear_specials(classes.data(), classes.size(), fixed.data());
    EXPECT_EQ(fixed[0], 5);
    EXPECT_EQ(std::count(fixed.begin() + 1, fixed.end(), 0), std::ssize(fixed) - 1);
  }
}

}  // namespace
}  // namespace ina::client
