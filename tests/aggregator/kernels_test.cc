// The kernels of every instruction set that this machine has, against plain scalar code.
#include "aggregator/kernels.h"

#include <gtest/gtest.h>
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

#include "hwy/highway.h"

namespace ina::aggregator {
namespace {

// ---------------------------------------------------------------------------- reference

// Value of a 16-bit float with the given number of exponent and mantissa bits.
float decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
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
uint16_t encode(float value, int exponent_bits, int mantissa_bits) {
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
Op logical(Op op) {
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

// ------------------------------------------------------------------------------- inputs

using Random = std::mt19937_64;

// Bit patterns worth trying in an element of 1, 2, 4 or 8 bytes.
std::vector<uint64_t> special_patterns(DType dtype) {
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
uint64_t random_pattern(DType dtype, Random& random) {
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

void fill(DType dtype, std::byte* payload, size_t count, Random& random) {
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

// -------------------------------------------------------------------------------- cases

// Sets the instruction set for one test.
class Target {
 public:
  explicit Target(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~Target() { hwy::SetSupportedTargetsForTest(0); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
};

struct Case {
  int64_t target;
  DType dtype;
  Op op;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets())
    for (const DType dtype : kAllDTypes)
      for (const Op op : kAllOps)
        if (is_valid(dtype, op)) cases.push_back({target, dtype, op});
  return cases;
}

std::string dtype_name(DType dtype) {
  return std::string(name(dtype));
}
std::string op_name(Op op) {
  return std::string(name(op));
}
std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(hwy::TargetName(info.param.target)) + "_" + dtype_name(info.param.dtype) +
         "_" + op_name(info.param.op);
}

class KernelsTest : public testing::TestWithParam<Case> {
 protected:
  Target target_{GetParam().target};
  const DType dtype_ = GetParam().dtype;
  const Op op_ = GetParam().op;
  const size_t wire_bytes_ = wire_bytes(dtype_);
  const size_t accumulator_bytes_ = wire_bytes(accumulator_of(dtype_));
  const Kernels& kernels_ = kernels(dtype_, op_);
};
INSTANTIATE_TEST_SUITE_P(All, KernelsTest, testing::ValuesIn(all_cases()), case_name);

// All but sums and products of floats.
std::vector<Case> order_free_cases() {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [](const Case& c) {
    return is_float(c.dtype) && c.op != Op::kMin && c.op != Op::kMax;
  });
  return cases;
}
class OrderFreeTest : public KernelsTest {};
INSTANTIATE_TEST_SUITE_P(All, OrderFreeTest, testing::ValuesIn(order_free_cases()), case_name);

TEST_P(KernelsTest, AgreesWithReferenceAtEveryLengthAndAlignmentWithoutTouchingNeighbours) {
  Random random(static_cast<uint64_t>(dtype_) * 16 + static_cast<uint64_t>(op_));
  constexpr size_t kBytes = 3 * 4096;
  GuardedMemory payload_memory(kBytes), row_memory(kBytes), other_memory(kBytes);
  GuardedMemory result_memory(kBytes), fused_memory(kBytes);
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> streamed;
  std::vector<size_t> counts;
  for (size_t count = 0; count <= 2 * 64 + 3; ++count) counts.push_back(count);
  counts.insert(counts.end(), {255, 256, 777, 1024});

  with_accumulator(dtype_, [&]<class A>(A) {
    for (const size_t count : counts) {
      for (const size_t gap : {0, 1, 3}) {
        SCOPED_TRACE("count " + std::to_string(count) + ", gap " + std::to_string(gap));
        const uint32_t divisor = op_ == Op::kAvg ? 1 + static_cast<uint32_t>(random() % 64) : 1;
        std::byte* const payload = payload_memory.take_end(count * wire_bytes_, gap);
        std::byte* const row = row_memory.take_row(count * sizeof(A));
        std::byte* const other = other_memory.take_row(count * sizeof(A));
        std::byte* const result = result_memory.take_end(count * wire_bytes_, gap);
        std::byte* const fused = fused_memory.take_end(count * wire_bytes_, gap);
        std::vector<A> expected(count), expected_other(count);
        std::vector<std::byte> expected_result(count * wire_bytes_ + 1);

        const auto check_row = [&](const std::byte* actual, const std::vector<A>& wanted) {
          for (size_t i = 0; i < count; ++i)
            ASSERT_TRUE(same_in_row(read<A>(actual, i), wanted[i]))
                << i << ": " << read<A>(actual, i) << " is not " << wanted[i];
        };
        const auto finish_reference = [&](const std::vector<A>& sums) {
          bool overflow = false;
          for (size_t i = 0; i < count; ++i)
            overflow |= reference_finish(dtype_, op_, expected_result.data(), i, sums[i], divisor);
          return overflow;
        };
        const auto check_result = [&](const std::byte* actual) {
          for (size_t i = 0; i < count * wire_bytes_; ++i)
            ASSERT_EQ(actual[i], expected_result[i]) << "byte " << i;
        };

        fill(dtype_, payload, count, random);
        kernels_.load(row, payload, count);
        for (size_t i = 0; i < count; ++i) expected[i] = reference_widen<A>(dtype_, payload, i);
        ASSERT_NO_FATAL_FAILURE(check_row(row, expected)) << "load";

        fill(dtype_, payload, count, random);
        kernels_.add(row, payload, count);
        for (size_t i = 0; i < count; ++i)
          expected[i] =
              reference_op(dtype_, op_, expected[i], reference_widen<A>(dtype_, payload, i));
        ASSERT_NO_FATAL_FAILURE(check_row(row, expected)) << "add";

        fill(accumulator_of(dtype_), other, count, random);
        for (size_t i = 0; i < count; ++i) {
          expected_other[i] = read<A>(other, i);
          expected[i] = reference_op(dtype_, op_, expected[i], expected_other[i]);
        }
        kernels_.merge(row, other, count);
        ASSERT_NO_FATAL_FAILURE(check_row(row, expected)) << "merge";
        ASSERT_NO_FATAL_FAILURE(check_row(other, expected_other)) << "merge changed its source";

        ASSERT_EQ(kernels_.finish(result, row, count, divisor), finish_reference(expected));
        ASSERT_NO_FATAL_FAILURE(check_result(result)) << "finish";
        ASSERT_NO_FATAL_FAILURE(check_row(row, expected)) << "finish changed the row";

        fill(dtype_, payload, count, random);
        const bool fused_overflow = kernels_.add_finish(fused, row, payload, count, divisor);
        ASSERT_NO_FATAL_FAILURE(check_row(row, expected)) << "add_finish changed the row";
        streamed.assign(count * wire_bytes_ / sizeof(Line) + 1, {});
        auto* const stream = reinterpret_cast<std::byte*>(streamed.data());
        ASSERT_EQ(kernels_.add_finish_stream(stream, row, payload, count, divisor), fused_overflow);
        ASSERT_TRUE(std::equal(fused, fused + count * wire_bytes_, stream));
        ASSERT_EQ(stream[count * wire_bytes_], std::byte{}) << "wrote beyond the result";
        kernels_.add(row, payload, count);
        ASSERT_EQ(kernels_.finish(result, row, count, divisor), fused_overflow);
        ASSERT_TRUE(std::equal(result, result + count * wire_bytes_, fused));
        for (size_t i = 0; i < count; ++i)
          expected[i] =
              reference_op(dtype_, op_, expected[i], reference_widen<A>(dtype_, payload, i));
        ASSERT_EQ(fused_overflow, finish_reference(expected));
        ASSERT_NO_FATAL_FAILURE(check_result(fused)) << "add_finish";

        ASSERT_TRUE(payload_memory.intact() && row_memory.intact() && other_memory.intact() &&
                    result_memory.intact() && fused_memory.intact());
      }
    }
  });
}

// Sums and products of floats tell in which order they were made.
TEST_P(KernelsTest, SumsOfSeveralAreThoseOfOneAfterTheOther) {
  Random random(11);
  constexpr size_t kMostPayloads = 10;
  for (const size_t count : {1, 15, 16, 63, 64, 65, 127, 256, 777}) {
    for (size_t payload_count = 1; payload_count <= kMostPayloads; ++payload_count) {
      SCOPED_TRACE(std::to_string(payload_count) + " of " + std::to_string(count));
      const uint32_t divisor = op_ == Op::kAvg ? static_cast<uint32_t>(payload_count + 1) : 1;
      const size_t result_bytes = count * wire_bytes_;
      GuardedMemory row_memory(sizeof(Row)), result_memory(sizeof(Row)),
          payload_memory(sizeof(Row));
      // The last one ends where memory does.
      std::vector<std::vector<std::byte>> others(payload_count - 1);
      std::vector<const std::byte*> payloads;
      for (auto& other : others) {
        other.resize(result_bytes + 1);
        fill(dtype_, other.data() + 1, count, random);
        payloads.push_back(other.data() + 1);
      }
      std::byte* const last = payload_memory.take_end(result_bytes, random() % 3);
      fill(dtype_, last, count, random);
      payloads.push_back(last);
      for (const bool held : {false, true}) {
        Row expected{}, streamed{};
        std::byte* const row = row_memory.take_row(count * accumulator_bytes_);
        std::byte* const result = result_memory.take_end(result_bytes, random() % 3);
        std::vector<std::byte> expected_result(result_bytes);
        if (held) {
          kernels_.load(expected.bytes, payloads.back(), count);
          std::memcpy(row, expected.bytes, count * accumulator_bytes_);
        }
        for (size_t p = 0; p < payload_count; ++p)
          (p == 0 && !held ? kernels_.load : kernels_.add)(expected.bytes, payloads[p], count);
        const bool overflow =
            kernels_.finish(expected_result.data(), expected.bytes, count, divisor);
        const std::byte* const from = held ? row : nullptr;
        ASSERT_EQ(kernels_.finish_all(result, from, payloads.data(), payload_count, count, divisor),
                  overflow);
        ASSERT_TRUE(std::equal(result, result + result_bytes, expected_result.begin()));
        ASSERT_EQ(kernels_.finish_all_stream(streamed.bytes, from, payloads.data(), payload_count,
                                             count, divisor),
                  overflow);
        ASSERT_EQ(std::memcmp(streamed.bytes, expected_result.data(), result_bytes), 0);
        kernels_.add_all(row, held, payloads.data(), payload_count, count);
        with_accumulator(dtype_, [&]<class A>(A) {
          for (size_t i = 0; i < count; ++i)
            ASSERT_TRUE(same_in_row(read<A>(row, i), read<A>(expected.bytes, i))) << i;
        });
        ASSERT_TRUE(row_memory.intact() && result_memory.intact() && payload_memory.intact());
      }
    }
  }
}

// Contributions come in any order, and meet in any grouping: in the slot, at the fallback, parked.
// I2 needs less, but min and max of floats do not depend on it either, for NaN and zeros too.
TEST_P(OrderFreeTest, DoesNotDependOnOrder) {
  constexpr size_t kWorkers = 6, kCount = 77;
  Random random(7);
  std::vector<std::vector<std::byte>> payloads(kWorkers);
  for (auto& payload : payloads) {
    payload.resize(kCount * wire_bytes_);
    fill(dtype_, payload.data(), kCount, random);
    if (!is_float(dtype_)) continue;
    // Half of the elements: only zeros of either sign, so that these decide.
    for (size_t i = 0; i < kCount; i += 2) {
      std::memset(payload.data() + i * wire_bytes_, 0, wire_bytes_);
      if (random() % 2 == 0) payload[(i + 1) * wire_bytes_ - 1] = std::byte{0x80};
    }
  }
  Row row{}, part{};
  std::vector<std::byte> first(kCount * wire_bytes_), result(kCount * wire_bytes_);
  bool first_overflow = false;
  for (int round = 0; round < 200; ++round) {
    std::shuffle(payloads.begin(), payloads.end(), random);
    kernels_.load(row.bytes, payloads[0].data(), kCount);
    kernels_.load(part.bytes, payloads[1].data(), kCount);
    const size_t in_part = 2 + random() % (kWorkers - 2);  // the others go straight to the row
    for (size_t i = 2; i < kWorkers; ++i)
      kernels_.add(i < in_part ? part.bytes : row.bytes, payloads[i].data(), kCount);
    kernels_.merge(row.bytes, part.bytes, kCount);
    const bool overflow = kernels_.finish(result.data(), row.bytes, kCount, 1);
    if (round == 0) {
      first = result;
      first_overflow = overflow;
    }
    ASSERT_EQ(first, result) << "round " << round;
    ASSERT_EQ(first_overflow, overflow) << "round " << round;
  }
}

// The overflow that is found must not depend on where in the vectors it happens.
TEST_P(KernelsTest, ReportsOverflowOfAnyElementAndOfNoOther) {
  constexpr size_t kCount = 150;
  const bool can_overflow = wire_bytes_ < accumulator_bytes_;
  with_accumulator(dtype_, [&]<class A>(A) {
    const A too_much = dtype_ == DType::kInt8    ? static_cast<A>(128)
                       : dtype_ == DType::kUInt8 ? static_cast<A>(256)
                                                 : std::numeric_limits<A>::max();
    Row row{};
    std::byte result[kCount * 8], zeros[kCount * 8] = {};
    for (size_t count = 1; count <= kCount; count += count < 70 ? 1 : 16) {
      EXPECT_FALSE(kernels_.finish(result, row.bytes, count, 1));
      for (size_t i = 0; i <= count; ++i) {  // row[count] lies outside
        write(row.bytes, i, too_much);
        const bool expected = can_overflow && i < count;
        ASSERT_EQ(kernels_.finish(result, row.bytes, count, 1), expected) << i << " of " << count;
        const bool keeps =  // the others with 0 are 0
            op_ != Op::kMin && op_ != Op::kProduct && op_ != Op::kBand;
        ASSERT_EQ(kernels_.add_finish(result, row.bytes, zeros, count, 1), expected && keeps)
            << i << " of " << count;
        write(row.bytes, i, A{});
      }
    }
  });
}

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

constexpr DType kHalfTypes[] = {DType::kBFloat16, DType::kFloat16};

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
