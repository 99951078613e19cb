#include "common/short_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

namespace {

int allocations = 0;

}  // namespace

void* operator new[](size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace ina {
namespace {

struct Region {
  uint64_t offset = 7;
  uint64_t count = 0;
};

TEST(ShortVector, HoldsShortOnesWithinItself) {
  allocations = 0;
  ShortVector<uint64_t, 4> numbers(3);
  numbers.push_back(5);
  const ShortVector<uint64_t, 4> copy(numbers);
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(std::vector<uint64_t>(copy.begin(), copy.end()), (std::vector<uint64_t>{0, 0, 0, 5}));
  numbers.push_back(6);
  EXPECT_EQ(allocations, 1);
}

TEST(ShortVector, ResizesToElementsAsTheirTypeMakesThem) {
  ShortVector<Region, 2> regions(1);
  regions[0].offset = 1;
  regions.resize(3);
  ASSERT_EQ(regions.size(), 3u);
  EXPECT_EQ(regions[0].offset, 1u);
  EXPECT_EQ(regions[2].offset, 7u);
}

TEST(ShortVector, KeepsItsElementsAsItGrows) {
  ShortVector<uint32_t, 4> numbers;
  EXPECT_TRUE(numbers.empty());
  for (uint32_t i = 0; i < 100; ++i) numbers.push_back(i);
  // One of its own, when there is no room.
  while (numbers.size() != 128) numbers.push_back(numbers[1]);
  numbers.push_back(numbers[99]);
  ASSERT_EQ(numbers.size(), 129u);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(numbers[i], i);
  EXPECT_EQ(numbers[128], 99u);
}

TEST(ShortVector, AllocatesOnceForWhatItWasToldToHold) {
  allocations = 0;
  ShortVector<uint32_t, 4> numbers;
  numbers.reserve(200);
  std::vector<uint32_t> given(200);
  std::iota(given.begin(), given.end(), 0);
  const int before = allocations;
  numbers.append(given);
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(std::ranges::equal(numbers, given));
}

}  // namespace
}  // namespace ina
