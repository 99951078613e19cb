// How many threads copy, and that their copies are whole.
#include "transport/bulk_copy.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "tests/support/sanitizers.h"

namespace ina::client {
namespace {

TEST(BulkCopy, LeavesACoreToEachLane) {
  constexpr int kCpus = 16;
  BulkCopier copier(0, 4, kCpus);
  EXPECT_EQ(copier.threads(), 3);
  copier.leave_cores_to(8);
  EXPECT_EQ(copier.threads(), 2);
  copier.leave_cores_to(64);
  EXPECT_EQ(copier.threads(), 1) << "the caller always copies";
  copier.leave_cores_to(1);
  EXPECT_EQ(copier.threads(), 3);
  EXPECT_EQ(BulkCopier(0, 1, kCpus).threads(), 8) << "no more than eight";
  EXPECT_EQ(BulkCopier(0, 8, 2).threads(), 1);
}

TEST(BulkCopy, LooksAtTheCpusOfTheProcess) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  for (const uint32_t ranks : {1u, 2u, 8u})
    EXPECT_EQ(BulkCopier(0, ranks).threads(), BulkCopier(0, ranks, CPU_COUNT(&set)).threads());
}

TEST(BulkCopy, KeepsTheNumberThatTheUserGave) {
  BulkCopier copier(3, 1);
  copier.leave_cores_to(64);
  EXPECT_EQ(copier.threads(), 3);
}

#ifndef INA_UNDER_TSAN  // oneTBB as packaged is not built for it
TEST(BulkCopy, CopiesAllWithAnyNumberOfThreads) {
  constexpr size_t kRow = 64 * 1024, kRows = 16;
  std::vector<std::byte> from(kRow * kRows), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / kRow);
  std::vector<CopyJob> jobs;
  for (size_t row = 0; row < kRows; ++row)
    jobs.push_back({.to = to.data() + row * kRow,
                    .from = from.data() + row * kRow,
                    .bytes = kRow,
                    .stream = row % 2 != 0});
  for (const int threads : {1, 3}) {
    std::ranges::fill(to, std::byte{0});
    BulkCopier(threads, 1).copy(jobs);
    EXPECT_EQ(to, from) << threads << " threads";
  }
}
#endif

}  // namespace
}  // namespace ina::client
