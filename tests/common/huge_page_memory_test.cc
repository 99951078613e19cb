// Large tables are where the kernel may use huge pages; small ones are on the heap.
#include "common/huge_page_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace ina {
namespace {

struct alignas(64) Line {
  uint64_t word[8];
};
using Lines = std::pmr::vector<Line>;

/// True if the kernel was told that the address is to be in a huge page (proc(5), VmFlags).
bool wants_huge_pages(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool within = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      within = begin <= wanted && wanted < end;
    else if (within && line.starts_with("VmFlags:"))
      return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(HugePageMemory, LargeTablesAreInHugePages) {
  Lines lines(3 * kHugePageBytes / sizeof(Line) / 2, huge_page_memory());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(lines.data()) % kHugePageBytes, 0u);
  EXPECT_TRUE(wants_huge_pages(lines.data()));
  EXPECT_FALSE(wants_huge_pages(&lines.back())) << "what is no whole page stays as it is";
}

TEST(HugePageMemory, SmallOnesAreNot) {
  Lines lines(100, huge_page_memory());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(lines.data()) % alignof(Line), 0u);
  EXPECT_FALSE(wants_huge_pages(lines.data()));
}

TEST(HugePageMemory, ContentsMoveFromSmallToLarge) {
  std::pmr::vector<uint64_t> numbers(huge_page_memory());
  for (uint64_t i = 0; i < kHugePageBytes / 4; ++i) numbers.push_back(i);
  for (uint64_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
  EXPECT_TRUE(wants_huge_pages(numbers.data()));
}

}  // namespace
}  // namespace ina
