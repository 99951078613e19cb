// Lists of CPUs, and those of this process.
#include <gtest/gtest.h>

#include "common/cpu_list.h"
#include "common/cpus.h"

namespace ina {
namespace {

using Cpus = std::vector<uint32_t>;

TEST(CpuList, IsReadAndWrittenAsTheKernelDoes) {
  for (const auto& [text, cpus] : std::vector<std::pair<std::string, Cpus>>{
           {"", {}}, {"0", {0}}, {"0-1,3", {0, 1, 3}}, {"2-4,7-8", {2, 3, 4, 7, 8}}}) {
    EXPECT_EQ(parse_cpus(text), cpus) << text;
    EXPECT_EQ(format_cpus(cpus), text);
  }
  EXPECT_EQ(parse_cpus("3,1-3"), (Cpus{1, 2, 3}));
  for (const char* bad : {",", "1,", "a", "1-", "-1", "3-2", "1 ", "0x1", "1-2-3", "1024"})
    EXPECT_FALSE(parse_cpus(bad)) << bad;
}

TEST(Cpus, ThreadsCanBeBoundToThoseOfTheProcessAndTheProcessStaysWhereItIs) {
  const Cpus own = cpus_of_process();
  ASSERT_FALSE(own.empty());
  EXPECT_EQ(bindable_cpus(own), own);
  EXPECT_EQ(bindable_cpus({own.front()}), Cpus{own.front()});
  EXPECT_EQ(bindable_cpus({CPU_SETSIZE - 1}), Cpus{}) << "a machine with so many CPUs?";
  EXPECT_EQ(cpus_of_process(), own);
}

}  // namespace
}  // namespace ina
