// Sequence arithmetic, and the sizes that follow from a data type.
#include "wire/types.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace ina {
namespace {

constexpr uint64_t k32 = uint64_t{1} << 32;
constexpr uint64_t kHalf = uint64_t{1} << 31;

TEST(Extend, IsExactWithinHalfTheRange) {
  for (const uint64_t reference :
       {uint64_t{0}, uint64_t{1}, kHalf - 1, kHalf, kHalf + 1, k32 - 2, k32 - 1, k32, k32 + 1,
        k32 + kHalf, 5 * k32 - 1, 5 * k32, 5 * k32 + 1, (uint64_t{1} << 63) - 1, uint64_t{1} << 63})
    for (const uint64_t distance :
         {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{4096}, kHalf - 2, kHalf - 1}) {
      const Seq ahead{reference + distance};
      EXPECT_EQ(extend(ahead.low(), Seq{reference}), ahead) << reference << " + " << distance;
      if (distance > reference) continue;
      const Seq behind{reference - distance};
      EXPECT_EQ(extend(behind.low(), Seq{reference}), behind) << reference << " - " << distance;
    }
}

TEST(Extend, CrossesTheWrapBothWays) {
  EXPECT_EQ(extend(0, Seq{k32 - 1}), Seq{k32});
  EXPECT_EQ(extend(0xffffffff, Seq{k32}), Seq{k32 - 1});
  EXPECT_EQ(extend(5, Seq{7 * k32 - 3}), Seq{7 * k32 + 5});
  EXPECT_EQ(extend(0xfffffffd, Seq{7 * k32 + 5}), Seq{7 * k32 - 3});
}

TEST(Extend, HalfTheRangeAwayIsTakenAsOlder) {
  EXPECT_EQ(extend(0, Seq{k32 + kHalf}), Seq{k32});
  EXPECT_EQ(extend(static_cast<uint32_t>(kHalf), Seq{k32}), Seq{kHalf});
}

// A zombie of before the first fragment must not come out as a small number that some window has.
TEST(Extend, NothingIsBelowZero) {
  for (const uint32_t low :
       {uint32_t{0x80000000}, uint32_t{0x80000001}, uint32_t{0xfffffffe}, uint32_t{0xffffffff}}) {
    EXPECT_EQ(extend(low, Seq{0}), Seq{low});
    EXPECT_EQ(extend(low, Seq{0}) - Seq{0}, low);
  }
  EXPECT_EQ(extend(0xffffffff, Seq{5}), Seq{0xffffffff});
  EXPECT_EQ(extend(0, Seq{5}), Seq{0}) << "exactly 0 is a number";
  EXPECT_EQ(extend(0, Seq{kHalf}), Seq{0});
}

TEST(Extend, WorksAtCompileTime) {
  static_assert(extend(3, Seq{k32 - 1}) == Seq{k32 + 3});
  static_assert(extend(0xfffffff0, Seq{k32 + 3}) == Seq{k32 - 16});
}

TEST(SeqArithmetic, Basics) {
  Seq seq{k32 - 1};
  EXPECT_EQ((++seq).value, k32);
  EXPECT_EQ(seq.low(), 0u);
  EXPECT_EQ((seq + 5) - seq, 5u);
  EXPECT_EQ(seq - uint64_t{1}, Seq{k32 - 1});
  EXPECT_LT(seq - uint64_t{1}, seq);
}

TEST(ElementsPerFragment, IsSlotOverAccumulator) {
  EXPECT_EQ(elements_per_fragment(DType::kInt8, 1024), 256u);
  EXPECT_EQ(elements_per_fragment(DType::kInt32, 1024), 256u);
  EXPECT_EQ(elements_per_fragment(DType::kInt64, 1024), 128u);
  EXPECT_EQ(elements_per_fragment(DType::kFloat32, 1024), 256u);
  EXPECT_EQ(elements_per_fragment(DType::kFloat64, 1024), 128u);
  EXPECT_EQ(elements_per_fragment(DType::kBFloat16, 1024), 256u);
  EXPECT_EQ(elements_per_fragment(DType::kFloat16, 8192), 2048u);
  EXPECT_EQ(elements_per_fragment(DType::kUInt8, 1024), 256u);
  EXPECT_EQ(elements_per_fragment(DType::kBool, 1024), 1024u);
  for (int raw = 0; raw < 256; ++raw) {
    const DType dtype{static_cast<uint8_t>(raw)};
    if (!is_valid(dtype)) {
      EXPECT_EQ(elements_per_fragment(dtype, 1024), 0u) << raw;
    }
  }
}

// A row may have 65,536 bytes; a fragment's number of elements has 16 bits.
TEST(ElementsPerFragment, FitsItsField) {
  EXPECT_EQ(elements_per_fragment(DType::kBool, 65536), kMaxFragmentElements);
  EXPECT_EQ(elements_per_fragment(Collective::kBroadcast, DType::kInt8, 65536),
            kMaxFragmentElements);
  EXPECT_EQ(elements_per_fragment(Collective::kBroadcast, DType::kInt8, 8192), 8192u);
  EXPECT_EQ(elements_per_fragment(DType::kInt8, 65536), 16384u);
  EXPECT_LE(kMaxFragmentElements, std::numeric_limits<uint16_t>::max());
}

TEST(Validity, AvgIsForFloatsOnlyAndBitwiseForTheOthers) {
  using enum DType;
  const std::set<DType> floats = {kFloat32, kFloat64, kBFloat16, kFloat16};
  for (const DType dtype : kAllDTypes)
    for (const Op op : kAllOps) {
      const bool expected = op == Op::kAvg ? floats.contains(dtype)
                            : op == Op::kBand || op == Op::kBor || op == Op::kBxor
                                ? !floats.contains(dtype)
                                : true;
      EXPECT_EQ(is_valid(dtype, op), expected) << name(dtype) << ' ' << name(op);
    }
}

// Tables have a row for each, at its number.
TEST(Validity, EnumeratorsAreNumberedFromOne) {
  for (size_t i = 0; i < std::size(kAllDTypes); ++i)
    EXPECT_EQ(static_cast<size_t>(kAllDTypes[i]), i + 1);
  for (size_t i = 0; i < std::size(kAllOps); ++i) EXPECT_EQ(static_cast<size_t>(kAllOps[i]), i + 1);
  EXPECT_FALSE(is_valid(DType{std::size(kAllDTypes) + 1}));
  EXPECT_FALSE(is_valid(Op{std::size(kAllOps) + 1}));
}

TEST(Names, GoBothWays) {
  for (const Named<Home>& named : kHomeNames) {
    EXPECT_EQ(name_in(kHomeNames, named.value), named.name);
    EXPECT_EQ(value_in(kHomeNames, named.name), named.value);
  }
  EXPECT_EQ(name(Home::kDedicated), "dedicated");
  EXPECT_EQ(value_in(kHomeNames, "Dedicated"), std::nullopt);
  EXPECT_EQ(name_in(kHomeNames, static_cast<Home>(3)), "unknown");
}

TEST(Names, AreDistinct) {
  EXPECT_TRUE(are_distinct(kHomeNames));
  EXPECT_FALSE(are_distinct(Names<int, 2>{{{"a", 1}, {"a", 2}}}));
  EXPECT_FALSE(are_distinct(Names<int, 2>{{{"a", 1}, {"b", 1}}}));
}

}  // namespace
}  // namespace ina
