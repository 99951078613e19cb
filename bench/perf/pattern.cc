#include "bench/perf/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ina::perf {
namespace {

/// splitmix64's finaliser: neighbours get unrelated values.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// Largest n so that all integers in -n..n are exact (of uint8 in 0..n); 0 for wide integers, which
/// need no limit.
int64_t largest_exact(ina_dtype dtype) {
  switch (dtype) {
    case INA_FLOAT32:
      return int64_t{1} << 24;
    case INA_FLOAT64:
      return int64_t{1} << 53;
    case INA_BFLOAT16:
      return 256;
    case INA_FLOAT16:
      return 2048;
    case INA_INT8:
      return 127;
    case INA_UINT8:
      return 255;
    default:
      return 0;
  }
}

/// Neither all nor none of the results are true, of any number of ranks.
int64_t bool_input(ina_op op, uint64_t random, uint64_t ranks) {
  if (op == INA_BXOR) return random & 1;
  const bool rare = random % (ranks + 1) == 0;
  return rare == (op == INA_SUM || op == INA_MAX || op == INA_BOR);
}

/// One rank's factor has the `digits`, all that fit. Those of the others are signs, and of bytes
/// now and then `large`, so that the product saturates.
int64_t factor(ina_dtype dtype, uint64_t random, bool digits, bool large) {
  const auto limit = static_cast<uint64_t>(largest_exact(dtype));
  const bool is_byte = dtype == INA_INT8 || dtype == INA_UINT8;
  int64_t magnitude = is_byte && large ? 2 : 1;
  if (digits) magnitude = static_cast<int64_t>(1 + (random >> 1) % limit);
  return dtype != INA_UINT8 && random & 1 ? -magnitude : magnitude;
}

/// One rank's contribution to element `index` of the block.
int64_t input(ina_dtype dtype, ina_op op, int rank, int ranks, uint32_t round, size_t index) {
  const uint64_t random = mix(mix(uint64_t{round} << 32 | static_cast<uint32_t>(rank)) + index);
  if (dtype == INA_BOOL) return bool_input(op, random, static_cast<uint64_t>(ranks));
  if (dtype == INA_UINT8 && op == INA_SUM && ranks > 1)  // about half of the sums saturate
    return static_cast<int64_t>(random % (2 * 255 / static_cast<uint64_t>(ranks) + 1));
  if (op == INA_PROD && dtype != INA_INT32 && dtype != INA_INT64)
    return factor(dtype, random, index % static_cast<size_t>(ranks) == static_cast<size_t>(rank),
                  index % 16 == 0);
  if (dtype == INA_INT8) return static_cast<int8_t>(random);
  if (dtype == INA_INT32) return static_cast<int32_t>(random);
  if (dtype == INA_INT64) return static_cast<int64_t>(random);
  if (dtype == INA_UINT8) return static_cast<uint8_t>(random);
  // For avg all inputs are multiples of the number of ranks, which makes the quotient whole; the
  // sum then is `ranks` times larger, which matters where it is accumulated in the type itself.
  const bool wide_accumulator = dtype == INA_BFLOAT16 || dtype == INA_FLOAT16;
  int64_t limit = largest_exact(dtype) / ranks;
  if (op == INA_AVG && !wide_accumulator) limit /= ranks;
  const int64_t value = static_cast<int64_t>(random % static_cast<uint64_t>(2 * limit + 1)) - limit;
  return op == INA_AVG ? value * ranks : value;
}

int64_t multiply(ina_dtype dtype, int64_t a, int64_t b) {
  const auto product = static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  // Far out of the range of bytes, into which a factor 0 alone leads back.
  return dtype == INA_INT8 || dtype == INA_UINT8 ? std::clamp<int64_t>(product, -65536, 65536)
                                                 : product;
}

int64_t apply(ina_dtype dtype, ina_op op, int64_t a, int64_t b) {
  switch (op) {
    case INA_MIN:
      return std::min(a, b);
    case INA_MAX:
      return std::max(a, b);
    case INA_PROD:
      return multiply(dtype, a, b);
    case INA_BAND:
      return a & b;
    case INA_BOR:
      return a | b;
    case INA_BXOR:
      return a ^ b;
    case INA_SUM:
    case INA_AVG:
    case INA_OP_MAX_ENUM:  // no value
      break;
  }
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

int64_t expected(ina_dtype dtype, ina_op op, int ranks, uint32_t round, size_t index) {
  int64_t result = input(dtype, op, 0, ranks, round, index);
  for (int rank = 1; rank < ranks; ++rank)
    result = apply(dtype, op, result, input(dtype, op, rank, ranks, round, index));
  if (op == INA_AVG) return result / ranks;
  switch (dtype) {
    case INA_INT8:
      return std::clamp<int64_t>(result, -128, 127);
    case INA_UINT8:
      return std::clamp<int64_t>(result, 0, 255);
    case INA_BOOL:
      return result != 0;
    default:
      return result;
  }
}

template <class T>
void put(std::byte* out, T value) {
  std::memcpy(out, &value, sizeof(T));
}

template <class T>
T get(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof(T));
  return value;
}

/// float16 bits of an integer of at most 2048 in magnitude.
uint16_t to_float16(int64_t value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<uint64_t>(std::abs(value));
  const int exponent = std::bit_width(magnitude) - 1;
  const auto fraction = static_cast<uint16_t>((magnitude << 10 >> exponent) & 0x3ff);
  const auto sign = static_cast<uint16_t>(value < 0 ? 0x8000 : 0);
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | fraction);
}

double from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

void encode(ina_dtype dtype, int64_t value, std::byte* out) {
  switch (dtype) {
    case INA_DTYPE_MAX_ENUM:  // no value
      break;
    case INA_INT8:
      return put(out, static_cast<int8_t>(value));
    case INA_INT32:
      return put(out, static_cast<int32_t>(value));
    case INA_INT64:
      return put(out, value);
    case INA_FLOAT32:
      return put(out, static_cast<float>(value));
    case INA_FLOAT64:
      return put(out, static_cast<double>(value));
    case INA_BFLOAT16:
      // Exact values have nothing in the lower half.
      return put(out,
                 static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    case INA_FLOAT16:
      return put(out, to_float16(value));
    case INA_UINT8:
    case INA_BOOL:
      return put(out, static_cast<uint8_t>(value));
  }
}

template <class Value>
std::vector<std::byte> block_of(ina_dtype dtype, size_t elements, Value value) {
  const size_t width = ina_dtype_size(dtype);
  std::vector<std::byte> block(elements * width);
  for (size_t i = 0; i < elements; ++i) encode(dtype, value(i), block.data() + i * width);
  return block;
}

}  // namespace

std::vector<std::byte> input_block(ina_dtype dtype, ina_op op, int rank, int ranks, uint32_t round,
                                   size_t elements) {
  return block_of(dtype, elements,
                  [=](size_t i) { return input(dtype, op, rank, ranks, round, i); });
}

std::vector<std::byte> expected_block(ina_dtype dtype, ina_op op, int ranks, uint32_t round,
                                      size_t elements) {
  return block_of(dtype, elements, [=](size_t i) { return expected(dtype, op, ranks, round, i); });
}

void fill(std::span<std::byte> buffer, std::span<const std::byte> block) {
  for (size_t at = 0; at < buffer.size(); at += block.size())
    std::memcpy(buffer.data() + at, block.data(), std::min(block.size(), buffer.size() - at));
}

std::optional<size_t> find_difference(std::span<const std::byte> buffer,
                                      std::span<const std::byte> block, uint64_t first_byte) {
  for (size_t at = 0; at < buffer.size();) {
    const size_t in_block = (first_byte + at) % block.size();
    const size_t bytes = std::min(block.size() - in_block, buffer.size() - at);
    if (std::memcmp(buffer.data() + at, block.data() + in_block, bytes) != 0)
      for (size_t i = 0; i < bytes; ++i)
        if (buffer[at + i] != block[in_block + i]) return at + i;
    at += bytes;
  }
  return std::nullopt;
}

std::string format_element(ina_dtype dtype, const std::byte* element) {
  switch (dtype) {
    case INA_DTYPE_MAX_ENUM:  // no value
      break;
    case INA_INT8:
      return fmt::format("{}", get<int8_t>(element));
    case INA_INT32:
      return fmt::format("{}", get<int32_t>(element));
    case INA_INT64:
      return fmt::format("{}", get<int64_t>(element));
    case INA_FLOAT32:
      return fmt::format("{}", get<float>(element));
    case INA_FLOAT64:
      return fmt::format("{}", get<double>(element));
    case INA_BFLOAT16:
      return fmt::format("{}", std::bit_cast<float>(uint32_t{get<uint16_t>(element)} << 16));
    case INA_FLOAT16:
      return fmt::format("{}", from_float16(get<uint16_t>(element)));
    case INA_UINT8:
    case INA_BOOL:
      return fmt::format("{}", get<uint8_t>(element));
  }
  return "?";
}

std::string_view name(ina_dtype dtype) {
  switch (dtype) {
    case INA_DTYPE_MAX_ENUM:  // no value
      break;
    case INA_INT8:
      return "int8";
    case INA_INT32:
      return "int32";
    case INA_INT64:
      return "int64";
    case INA_FLOAT32:
      return "float32";
    case INA_FLOAT64:
      return "float64";
    case INA_BFLOAT16:
      return "bfloat16";
    case INA_FLOAT16:
      return "float16";
    case INA_UINT8:
      return "uint8";
    case INA_BOOL:
      return "bool";
  }
  return "?";
}

std::string_view name(ina_op op) {
  switch (op) {
    case INA_OP_MAX_ENUM:  // no value
      break;
    case INA_SUM:
      return "sum";
    case INA_MIN:
      return "min";
    case INA_MAX:
      return "max";
    case INA_AVG:
      return "avg";
    case INA_PROD:
      return "prod";
    case INA_BAND:
      return "band";
    case INA_BOR:
      return "bor";
    case INA_BXOR:
      return "bxor";
  }
  return "?";
}

}  // namespace ina::perf
