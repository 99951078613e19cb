// The kernels of every instruction set that this machine has, against plain scalar code.
#include "aggregator/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "tests/aggregator/kernels_reference.h"

namespace ina::aggregator {
namespace {

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

}  // namespace
}  // namespace ina::aggregator
