// Compiled once per instruction set by foreach_target.h; table_for() picks one at run time.
#include "operations/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operations/fixed_point.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef INA_CLIENT_FIXED_POINT_ONCE
#define INA_CLIENT_FIXED_POINT_ONCE
namespace ina::client {

constexpr int exponent_of(int8_t stored) {
  return std::clamp(int{stored} + 128, 0, 254);
}
constexpr int shift_of(int8_t stored, uint32_t headroom) {
  return 157 - static_cast<int>(headroom) - exponent_of(stored);
}
constexpr float float_power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
constexpr double double_power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/// The functions that each instruction set implements: whole blocks only.
struct FixedPointTable {
  void (*exponents)(const std::byte* values, size_t blocks, int8_t* exponents, int8_t* specials);
  void (*quantise)(const std::byte* values, size_t blocks, const int8_t* exponents,
                   uint32_t headroom, int32_t* fixed);
  bool (*dequantise)(const int32_t* fixed, size_t blocks, const int8_t* exponents,
                     uint32_t headroom, uint32_t divisor, std::byte* values);
};

// A data type gives its bits, Inf, its mantissa's bits, the least exponent of a normal number, the
// magnitude from which on a sum rounds to Inf, and the biased float32 exponent of a magnitude.
struct Float32Format {
  using Bits = uint32_t;
  static constexpr Bits kInfinity = 0x7F800000;
  static constexpr int kMantissaBits = 23;
  static constexpr int kLeastExponent = -126;
  static constexpr double kLimit = 0x1.FFFFFFp127;
  static constexpr uint32_t biased_exponent(Bits magnitude) { return magnitude >> 23; }
};
struct BFloat16Format {
  using Bits = uint16_t;
  static constexpr Bits kInfinity = 0x7F80;
  static constexpr int kMantissaBits = 7;
  static constexpr int kLeastExponent = -126;
  static constexpr double kLimit = 0x1.FFp127;
  static constexpr uint32_t biased_exponent(Bits magnitude) { return magnitude >> 7; }
};
struct Float16Format {
  using Bits = uint16_t;
  static constexpr Bits kInfinity = 0x7C00;
  static constexpr int kMantissaBits = 10;
  static constexpr int kLeastExponent = -14;
  static constexpr double kLimit = 65520;
  static constexpr uint32_t biased_exponent(Bits magnitude) {
    if (magnitude >= 1u << 10) return (magnitude >> 10) + 112u;
    // A denormal m * 2^-24 is a normal float32.
    return magnitude == 0 ? 0 : 102u + static_cast<uint32_t>(std::bit_width(uint32_t{magnitude}));
  }
};

}  // namespace ina::client
#endif  // INA_CLIENT_FIXED_POINT_ONCE

HWY_BEFORE_NAMESPACE();
namespace ina::client {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---------------------------------------------------------------------------- conversions

// Elements at `from` as float32. NaN and Inf become something with a float32 exponent of 255.
template <class D>
HWY_INLINE hn::Vec<D> widen(Float32Format, D d, const std::byte* from) {
  return hn::LoadU(d, reinterpret_cast<const float*>(from));
}
template <class D>
HWY_INLINE hn::Vec<D> widen(BFloat16Format, D d, const std::byte* from) {
  const hn::Rebind<uint32_t, D> bits;
  const auto half = hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
}
template <class D>
HWY_INLINE hn::Vec<D> widen(Float16Format, D d, const std::byte* from) {
  const hn::Rebind<uint32_t, D> bits;
  const auto half = hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from));
  const auto wide = hn::PromoteTo(bits, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(bits, 0x8000)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(bits, 0x7FFF)));
  // From bias 15 to bias 127; the exponent of Inf and NaN goes on to 255.
  const auto is_special = hn::Gt(magnitude, hn::Set(bits, 0x0F7FFFFF));
  const auto rebias =
      hn::IfThenElse(is_special, hn::Set(bits, 224u << 23), hn::Set(bits, 112u << 23));
  const auto normal = hn::Add(magnitude, rebias);
  // A denormal m * 2^-24 is 2^-14 * (1 + m / 1024) - 2^-14, which is exact.
  const auto is_denormal = hn::Lt(magnitude, hn::Set(bits, 1u << 23));
  const auto with_one = hn::BitCast(d, hn::Add(normal, hn::Set(bits, 1u << 23)));
  const auto denormal = hn::BitCast(bits, hn::Sub(with_one, hn::Set(d, 0x1p-14f)));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_denormal, denormal, normal)));
}

// Writes numbers that the data type represents exactly. Those too large for it come out as
// anything.
template <class D>
HWY_INLINE void narrow(Float32Format, D d, hn::Vec<D> exact, std::byte* to) {
  hn::StoreU(exact, d, reinterpret_cast<float*>(to));
}
template <class D>
HWY_INLINE void narrow(BFloat16Format, D, hn::Vec<D> exact, std::byte* to) {
  const hn::Rebind<int32_t, D> signed_bits;
  const hn::Rebind<uint32_t, D> bits;
  const hn::Rebind<uint16_t, D> half;
  const auto upper = hn::ShiftRight<16>(hn::BitCast(bits, exact));
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(signed_bits, upper)), half,
             reinterpret_cast<uint16_t*>(to));
}
template <class D>
HWY_INLINE void narrow(Float16Format, D d, hn::Vec<D> exact, std::byte* to) {
  const hn::Rebind<int32_t, D> signed_bits;
  const hn::Rebind<uint32_t, D> bits;
  const hn::Rebind<uint16_t, D> half;
  const auto all = hn::BitCast(bits, exact);
  const auto magnitude = hn::And(all, hn::Set(bits, 0x7FFFFFFF));
  const auto sign = hn::ShiftRight<16>(hn::Xor(all, magnitude));
  // Below 2^-14: beside 2^-1 the last place of a float32 is 2^-24.
  const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto denormal = hn::Sub(hn::BitCast(bits, shifted), hn::Set(bits, 126u << 23));
  const auto normal = hn::ShiftRight<13>(hn::Sub(magnitude, hn::Set(bits, 112u << 23)));
  const auto is_denormal = hn::Lt(magnitude, hn::Set(bits, 113u << 23));
  const auto value = hn::Or(sign, hn::IfThenElse(is_denormal, denormal, normal));
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(signed_bits, value)), half,
             reinterpret_cast<uint16_t*>(to));
}

// `v` rounded to nearest even among the numbers of a format that is narrower than float32. In
// double, so in one step: adding 1.5 * 2^52 units of its last place leaves no bit below.
template <class F, class D>
HWY_INLINE hn::Vec<D> round_to(F, D d, hn::Vec<D> v) {
  const hn::Rebind<uint64_t, D> bits;
  const auto exponent = hn::And(hn::BitCast(bits, v), hn::Set(bits, 0x7FF0000000000000u));
  const auto power =
      hn::Max(hn::BitCast(d, exponent), hn::Set(d, double_power_of_two(F::kLeastExponent)));
  const auto shifter = hn::Mul(power, hn::Set(d, 1.5 * double_power_of_two(52 - F::kMantissaBits)));
  return hn::CopySign(hn::Sub(hn::Add(v, shifter), shifter), v);
}
// Nothing to do: the demotion to float32 rounds.
template <class D>
HWY_INLINE hn::Vec<D> round_to(Float32Format, D, hn::Vec<D> v) {
  return v;
}

// --------------------------------------------------------------------------------- blocks

template <class F>
void exponents(const std::byte* values, size_t blocks, int8_t* exponents, int8_t* specials) {
  using Bits = typename F::Bits;
  const hn::ScalableTag<Bits> d;
  const size_t lanes = hn::Lanes(d);
  const auto sign_mask = hn::Set(d, static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1));
  const auto largest_finite = hn::Set(d, static_cast<Bits>(F::kInfinity - 1));
  HWY_ALIGN Bits buffer[hn::MaxLanes(hn::ScalableTag<Bits>())];
  for (size_t block = 0; block < blocks; ++block) {
    const auto* from = reinterpret_cast<const Bits*>(values) + block * kBlockElements;
    auto largest = hn::Zero(d);
    auto any_special = hn::FirstN(d, 0);
    for (size_t i = 0; i < kBlockElements; i += lanes) {
      const auto magnitude = hn::And(hn::LoadU(d, from + i), sign_mask);
      const auto is_special = hn::Gt(magnitude, largest_finite);
      any_special = hn::Or(any_special, is_special);
      largest = hn::Max(largest, hn::IfThenZeroElse(is_special, magnitude));
    }
    hn::Store(largest, d, buffer);
    const Bits magnitude = *std::max_element(buffer, buffer + lanes);
    exponents[block] = static_cast<int8_t>(static_cast<int>(F::biased_exponent(magnitude)) - 128);
    specials[block] = hn::AllFalse(d, any_special) ? 0 : 1;
  }
}

template <class F>
void quantise(const std::byte* values, size_t blocks, const int8_t* exponents, uint32_t headroom,
              int32_t* fixed) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  for (size_t block = 0; block < blocks; ++block) {
    // In two steps, since 2^157 is no float32. The first loses nothing unless the result is 0.
    const int shift = shift_of(exponents[block], headroom);
    const auto first = hn::Set(d, float_power_of_two(shift / 2));
    const auto second = hn::Set(d, float_power_of_two(shift - shift / 2));
    const std::byte* from = values + block * kBlockElements * sizeof(typename F::Bits);
    int32_t* const to = fixed + block * kBlockElements;
    for (size_t i = 0; i < kBlockElements; i += lanes) {
      const auto value = widen(F(), d, from + i * sizeof(typename F::Bits));
      const auto scaled = hn::Mul(hn::Mul(value, first), second);
      const auto is_finite = hn::Lt(hn::Abs(value), infinity);
      hn::StoreU(hn::NearestInt(hn::IfThenElseZero(is_finite, scaled)), di, to + i);
    }
  }
}

template <class F, bool kDivide>
bool dequantise_block(const int32_t* fixed, double scale, double divisor, std::byte* to) {
  using Bits = typename F::Bits;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow_d;
  const hn::Rebind<int32_t, decltype(d)> fixed_d;
  const size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, scale);
  const auto through = hn::Set(d, divisor);
  auto largest = hn::Zero(d);
  for (size_t i = 0; i < kBlockElements; i += lanes) {
    auto value = hn::Mul(hn::PromoteTo(d, hn::LoadU(fixed_d, fixed + i)), by);
    if constexpr (kDivide) value = hn::Div(value, through);
    largest = hn::Max(largest, hn::Abs(value));
    narrow(F(), narrow_d, hn::DemoteTo(narrow_d, round_to(F(), d, value)), to + i * sizeof(Bits));
  }
  if (hn::AllTrue(d, hn::Lt(largest, hn::Set(d, F::kLimit)))) return false;
  for (size_t i = 0; i < kBlockElements; ++i) {
    const double value = fixed[i] * scale / divisor;
    if (std::fabs(value) < F::kLimit) continue;
    const Bits sign = value < 0 ? static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1)) : Bits{0};
    const Bits infinity = F::kInfinity | sign;
    std::memcpy(to + i * sizeof(Bits), &infinity, sizeof(Bits));
  }
  return true;
}

template <class F>
bool dequantise(const int32_t* fixed, size_t blocks, const int8_t* exponents, uint32_t headroom,
                uint32_t divisor, std::byte* values) {
  bool overflow = false;
  for (size_t block = 0; block < blocks; ++block) {
    const double scale = double_power_of_two(-shift_of(exponents[block], headroom));
    const int32_t* const from = fixed + block * kBlockElements;
    std::byte* const to = values + block * kBlockElements * sizeof(typename F::Bits);
    // Dividing by a power of two is part of the scale.
    overflow |= std::has_single_bit(divisor)
                    ? dequantise_block<F, false>(from, scale / divisor, 1, to)
                    : dequantise_block<F, true>(from, scale, divisor, to);
  }
  return overflow;
}

template <class F>
constexpr FixedPointTable kTable = {exponents<F>, quantise<F>, dequantise<F>};

const FixedPointTable* find_table(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return &kTable<BFloat16Format>;
    case DType::kFloat16:
      return &kTable<Float16Format>;
    default:
      return &kTable<Float32Format>;
  }
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace ina::client
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ina::client {

HWY_EXPORT(find_table);
HWY_EXPORT(target_name);

namespace {

const FixedPointTable& table_for(DType dtype) {
  return *HWY_DYNAMIC_DISPATCH(find_table)(dtype);
}

/// Round to nearest, denormals kept, no traps, independent of the calling thread's settings: the
/// result must depend on nothing but the values.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&caller_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultEnvironment() { std::fesetenv(&caller_); }
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;

 private:
  std::fenv_t caller_;
};

/// A block that is not full, filled up with zeros.
struct Padded {
  alignas(64) std::byte values[kBlockElements * sizeof(float)] = {};
  alignas(64) int32_t fixed[kBlockElements] = {};
};

uint32_t bits_of(DType dtype, const std::byte* values, size_t i) {
  if (dtype == DType::kFloat32) {
    uint32_t bits;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    return bits;
  }
  uint16_t bits;
  std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
  return bits;
}

struct SpecialBits {
  uint32_t infinity;
  uint32_t negative_infinity;
  uint32_t nan;
};

SpecialBits specials_of(DType dtype) {
  if (dtype == DType::kFloat32) return {0x7F800000, 0xFF800000, 0x7FC00000};
  if (dtype == DType::kBFloat16) return {0x7F80, 0xFF80, 0x7FC0};
  return {0x7C00, 0xFC00, 0x7E00};
}

constexpr int32_t kNanClass = 1;
constexpr int32_t kInfinityClass = 2;
constexpr int32_t kNegativeInfinityClass = 4;
/// The most workers whose largest quantised values are below 2^(31 - headroom).
constexpr uint32_t kMostBelow = 128;

}  // namespace

uint32_t headroom_bits(uint32_t workers) {
  return static_cast<uint32_t>(std::bit_width(workers > kMostBelow ? workers : workers - 1));
}

void block_exponents(DType dtype, const std::byte* values, size_t count, int8_t* exponents,
                     int8_t* specials) {
  const FixedPointTable& table = table_for(dtype);
  const size_t whole = count / kBlockElements;
  const size_t rest = count % kBlockElements;
  table.exponents(values, whole, exponents, specials);
  if (rest == 0) return;
  Padded last;
  const size_t bytes = wire_bytes(dtype);
  std::memcpy(last.values, values + whole * kBlockElements * bytes, rest * bytes);
  table.exponents(last.values, 1, exponents + whole, specials + whole);
}

void quantise(DType dtype, const std::byte* values, size_t count, const int8_t* exponents,
              uint32_t headroom, int32_t* fixed) {
  const DefaultEnvironment environment;
  const FixedPointTable& table = table_for(dtype);
  const size_t whole = count / kBlockElements;
  const size_t rest = count % kBlockElements;
  table.quantise(values, whole, exponents, headroom, fixed);
  if (rest == 0) return;
  Padded last;
  const size_t bytes = wire_bytes(dtype);
  std::memcpy(last.values, values + whole * kBlockElements * bytes, rest * bytes);
  table.quantise(last.values, 1, exponents + whole, headroom, last.fixed);
  std::memcpy(fixed + whole * kBlockElements, last.fixed, rest * sizeof(int32_t));
}

bool dequantise(DType dtype, const int32_t* fixed, size_t count, const int8_t* exponents,
                uint32_t headroom, uint32_t divisor, std::byte* values) {
  const DefaultEnvironment environment;
  const FixedPointTable& table = table_for(dtype);
  const size_t whole = count / kBlockElements;
  const size_t rest = count % kBlockElements;
  bool overflow = table.dequantise(fixed, whole, exponents, headroom, divisor, values);
  if (rest == 0) return overflow;
  Padded last;
  const size_t bytes = wire_bytes(dtype);
  std::memcpy(last.fixed, fixed + whole * kBlockElements, rest * sizeof(int32_t));
  overflow |= table.dequantise(last.fixed, 1, exponents + whole, headroom, divisor, last.values);
  std::memcpy(values + whole * kBlockElements * bytes, last.values, rest * bytes);
  return overflow;
}

void classify(DType dtype, const std::byte* values, size_t count, int32_t* classes) {
  const SpecialBits special = specials_of(dtype);
  const uint32_t sign = special.infinity ^ special.negative_infinity;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of(dtype, values, i);
    classes[i] = bits == special.infinity            ? kInfinityClass
                 : bits == special.negative_infinity ? kNegativeInfinityClass
                 : (bits & ~sign) > special.infinity ? kNanClass
                                                     : 0;
  }
}

void clear_specials(const int32_t* classes, size_t count, int32_t* fixed) {
  for (size_t i = 0; i < count; ++i)
    if (classes[i] != 0) fixed[i] = 0;
}

void put_specials(DType dtype, const int32_t* classes, size_t count, std::byte* values) {
  const SpecialBits special = specials_of(dtype);
  const size_t bytes = wire_bytes(dtype);
  for (size_t i = 0; i < count; ++i) {
    if (classes[i] == 0) continue;
    const bool nan = (classes[i] & kNanClass) != 0;
    const bool infinity = (classes[i] & kInfinityClass) != 0;
    const bool negative = (classes[i] & kNegativeInfinityClass) != 0;
    const uint32_t bits = nan || (infinity && negative) ? special.nan
                          : infinity                    ? special.infinity
                                                        : special.negative_infinity;
    std::memcpy(values + i * bytes, &bits, bytes);  // little-endian hosts only, as the wire is
  }
}

const char* fixed_point_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

}  // namespace ina::client
#endif
