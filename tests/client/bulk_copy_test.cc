// How many threads copy, and that their copies are whole.
#include "transport/bulk_copy.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "tests/support/sanitizers.h"

namespace ina::client {
namespace {

int cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int expected(int lanes, int ranks) {
  return std::clamp((cpus() - lanes) / ranks, 1, 8);
}

TEST(BulkCopy, LeavesACoreToEachLane) {
  for (const int ranks : {1, 2, 8}) {
    BulkCopier copier(0, static_cast<uint32_t>(ranks));
    EXPECT_EQ(copier.threads(), expected(1, ranks));
    for (const int lanes : {2, 4, 64}) {
      copier.leave_cores_to(static_cast<uint32_t>(lanes));
      EXPECT_EQ(copier.threads(), expected(lanes, ranks)) << lanes << " lanes, " << ranks;
    }
    copier.leave_cores_to(1);
    EXPECT_EQ(copier.threads(), expected(1, ranks));
  }
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
