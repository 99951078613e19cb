// What kernels are compared with: plain scalar code, inputs, and guarded memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "aggregator/kernels.h"
#include "hwy/highway.h"

namespace ina::aggregator {

// ---- reference

// Value of a 16-bit float with the given number of exponent and mantissa bits.
inline float decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double magnitude = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

// The nearest 16-bit float, ties to even; every NaN becomes the positive quiet one.
inline uint16_t encode(float value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | 1 << (mantissa_bits - 1));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place of that exponent; exact in double, so nearbyint rounds only once.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  // Units carry into the exponent just as mantissa bits do, a denormal's into exponent 1.
  const int bits = ((exponent + bias - 1) << mantissa_bits) + units;
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

struct Format {
  int exponent_bits;
  int mantissa_bits;
};
constexpr Format format_of(DType dtype) {
  return dtype == DType::kFloat16 ? Format{5, 10} : Format{8, 7};
}

template <class T>
T read(const std::byte* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void write(std::byte* to, size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

template <class A>
A reference_widen(DType dtype, const std::byte* payload, size_t i) {
  if (dtype == DType::kInt8) return static_cast<A>(read<int8_t>(payload, i));
  if (dtype == DType::kUInt8) return static_cast<A>(read<uint8_t>(payload, i));
  if (dtype == DType::kBool) return static_cast<A>(read<uint8_t>(payload, i) != 0);
  if (wire_bytes(dtype) == 2) {
    const auto [exponent_bits, mantissa_bits] = format_of(dtype);
    return static_cast<A>(decode(read<uint16_t>(payload, i), exponent_bits, mantissa_bits));
  }
  return read<A>(payload, i);
}

constexpr bool is_byte(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kUInt8;
}

// On bool the others stand for these.
inline Op logical(Op op) {
  if (op == Op::kSum || op == Op::kMax) return Op::kBor;
  return op == Op::kMin || op == Op::kProduct ? Op::kBand : op;
}

template <class A>
A reference_op(DType dtype, Op op, A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    switch (dtype == DType::kBool ? logical(op) : op) {
      case Op::kMin:
        return std::min(a, b);
      case Op::kMax:
        return std::max(a, b);
      case Op::kProduct: {
        const auto product = static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
        return is_byte(dtype) ? static_cast<A>(std::clamp<int64_t>(product, -32767, 32767))
                              : product;
      }
      case Op::kBand:
        return static_cast<A>(a & b);
      case Op::kBor:
        return static_cast<A>(a | b);
      case Op::kBxor:
        return static_cast<A>(a ^ b);
      default:
        return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    }
  } else {
    if (op == Op::kSum || op == Op::kAvg) return a + b;
    if (op == Op::kProduct) return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    const bool a_is_less = a < b || (a == b && std::signbit(a));
    return a_is_less == (op == Op::kMin) ? a : b;
  }
}

// Writes one result; returns whether it overflowed.
template <class A>
bool reference_finish(DType dtype, Op op, std::byte* result, size_t i, A sum, uint32_t divisor) {
  if constexpr (std::is_floating_point_v<A>) {
    if (op == Op::kAvg) sum /= static_cast<A>(divisor);
    if (wire_bytes(dtype) == 2) {
      const auto [exponent_bits, mantissa_bits] = format_of(dtype);
      const uint16_t bits = encode(static_cast<float>(sum), exponent_bits, mantissa_bits);
      write(result, i, bits);
      // A sum of bfloat16 leaves the range in the accumulator already, a product of either.
      const bool counts = std::isfinite(sum) || op == Op::kProduct ||
                          (dtype == DType::kBFloat16 && (op == Op::kSum || op == Op::kAvg));
      return counts && std::isinf(decode(bits, exponent_bits, mantissa_bits));
    }
    write(result, i, std::isnan(sum) ? std::numeric_limits<A>::quiet_NaN() : sum);
    return false;
  } else {
    if (dtype == DType::kBool) sum = sum != 0;
    if (!is_byte(dtype)) {
      write(result, i, sum);
      return false;
    }
    const int low = dtype == DType::kInt8 ? -128 : 0, high = dtype == DType::kInt8 ? 127 : 255;
    const auto clamped = std::clamp<int64_t>(static_cast<int64_t>(sum), low, high);
    write(result, i, static_cast<uint8_t>(clamped));
    return clamped != static_cast<int64_t>(sum);
  }
}

// Calls f(A{}) with the accumulator type of `dtype`.
template <class F>
void with_accumulator(DType dtype, F f) {
  switch (accumulator_of(dtype)) {
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
    case DType::kFloat32:
      return f(float{});
    case DType::kBool:
      return f(uint8_t{});
    default:
      return f(double{});
  }
}

// ---- inputs

using Random = std::mt19937_64;

// Bit patterns worth trying in an element of 1, 2, 4 or 8 bytes.
inline std::vector<uint64_t> special_patterns(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return {0, 1, 0x7f, 0x80, 0x81, 0xff};
    case DType::kInt32:
      return {0, 1, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff};
    case DType::kInt64:
      return {0,          1,          ~0ull >> 1, 1ull << 63, ~0ull,
              0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, (1ull << 63) + 1};
    case DType::kFloat32:  // zeros, denormals, largest, Inf, quiet and signalling NaN
      return {0,          0x80000000, 1,          0x80000001, 0x007fffff,
              0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
              0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 0xff812345};
    case DType::kFloat64:
      return {0,
              1ull << 63,
              1,
              (1ull << 63) + 1,
              0x000fffffffffffff,
              0x0010000000000000,
              0x7fefffffffffffff,
              0xffefffffffffffff,
              0x7ff0000000000000,
              0xfff0000000000000,
              0x7ff8000000000000,
              0xfff8123456789abc,
              0x7ff0000000000001,
              0xfff0123456789abc};
    case DType::kBFloat16:
      return {0,      0x8000, 1,      0x8001, 0x007f, 0x807f, 0x0080, 0x7f7f,
              0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0xff85};
    case DType::kFloat16:
      return {0,      0x8000, 1,      0x8001, 0x03ff, 0x83ff, 0x0400, 0x7bff,
              0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0xfc15};
  }
  return {};
}

// A third special patterns, a third random bits, a third small numbers that add up without drama.
inline uint64_t random_pattern(DType dtype, Random& random) {
  switch (random() % 3) {
    case 0: {
      const auto patterns = special_patterns(dtype);
      return patterns[random() % patterns.size()];
    }
    case 1:
      return random();
    default:
      break;
  }
  const int number = static_cast<int>(random() % 201) - 100;
  switch (dtype) {
    case DType::kFloat32:
      return std::bit_cast<uint32_t>(static_cast<float>(number) / 8);
    case DType::kFloat64:
      return std::bit_cast<uint64_t>(number / 8.0);
    case DType::kBFloat16:
      return encode(static_cast<float>(number) / 8, 8, 7);
    case DType::kFloat16:
      return encode(static_cast<float>(number) / 8, 5, 10);
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(number));
  }
}

inline void fill(DType dtype, std::byte* payload, size_t count, Random& random) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t pattern = random_pattern(dtype, random);  // little-endian: low bytes first
    std::memcpy(payload + i * wire_bytes(dtype), &pattern, wire_bytes(dtype));
  }
}

// Memory between two pages that nobody may touch, filled with a pattern to see stray writes.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    bytes_ = (bytes + page_ - 1) / page_ * page_;
    void* const mapped = mmap(nullptr, bytes_ + 2 * page_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(mapped) + page_;
    mprotect(begin_ - page_, page_, PROT_NONE);
    mprotect(begin_ + bytes_, page_, PROT_NONE);
  }
  ~GuardedMemory() { munmap(begin_ - page_, bytes_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // `bytes` bytes that end `gap` bytes before the forbidden page.
  std::byte* take_end(size_t bytes, size_t gap = 0) {
    std::fill_n(begin_, bytes_, kCanary);
    used_ = bytes;
    return data_ = begin_ + bytes_ - gap - bytes;
  }
  // The last place for a row: aligned to 64 bytes.
  std::byte* take_row(size_t bytes) { return take_end(bytes, (64 - bytes % 64) % 64); }
  bool intact() const {
    const auto is_canary = [](std::byte b) { return b == kCanary; };
    return std::all_of(begin_, data_, is_canary) &&
           std::all_of(data_ + used_, begin_ + bytes_, is_canary);
  }

 private:
  static constexpr std::byte kCanary{0xA5};
  size_t page_;
  size_t bytes_ = 0;
  size_t used_ = 0;
  std::byte* begin_ = nullptr;
  std::byte* data_ = nullptr;
};

struct alignas(64) Row {
  std::byte bytes[8192];
};

// Rows may hold any NaN, results only the one.
template <class A>
bool same_in_row(A a, A b) {
  if (a != a && b != b) return true;
  return std::memcmp(&a, &b, sizeof(A)) == 0;
}

// Sets the instruction set for one test.
class Target {
 public:
  explicit Target(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~Target() { hwy::SetSupportedTargetsForTest(0); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
};

inline std::string dtype_name(DType dtype) {
  return std::string(name(dtype));
}
inline std::string op_name(Op op) {
  return std::string(name(op));
}

inline constexpr DType kHalfTypes[] = {DType::kBFloat16, DType::kFloat16};

}  // namespace ina::aggregator
