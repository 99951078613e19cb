// The thread that makes and maps workers' memory: its use of the machine.
#include "switchd/mapper.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/clock.h"
#include "tests/support/evil_files.h"

namespace ina::switchd {
namespace {

constexpr size_t kBytes = size_t{64} << 20;

Mapper::Done await(Mapper& mapper) {
  for (;;) {
    if (auto done = mapper.next()) return std::move(*done);
    pollfd waiter{mapper.fd(), POLLIN, 0};
    ::poll(&waiter, 1, -1);
  }
}

/// How often the mapper's threads have left their cores of their own accord.
uint64_t rests() {
  uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool is_mapper = false;
    for (std::string line; std::getline(status, line);) {
      is_mapper = is_mapper || line == "Name:\tina-mapper";
      if (is_mapper && line.starts_with("voluntary_ctxt_switches:"))
        sum += std::stoull(line.substr(line.find('\t')));
    }
  }
  return sum;
}

TEST(Mapper, RestsBetweenSmallPiecesAndSaysHowLongItWorked) {
  Mapper mapper;
  mapper.make(0, "test", 4096);
  (void)await(mapper);  // it has its name by now
  const uint64_t before = rests();
  const Nanos begun = now_ns();
  mapper.make(1, "test", kBytes);
  Mapper::Done made = await(mapper);
  const Nanos passed = now_ns() - begun;
  EXPECT_GE(rests() - before, kBytes >> 20);
  ASSERT_TRUE(made.region) << made.region.error().text;
  EXPECT_EQ(made.token, 1u);
  EXPECT_EQ(made.region->map.size(), kBytes);
  EXPECT_GT(made.spent, 0);
  EXPECT_LT(made.spent, passed);
  mapper.discard(std::move(made.region->map), std::move(made.region->fd));
}

TEST(Mapper, SmallMemoryDoesNotWaitForLarge) {
  Mapper mapper;
  mapper.make(1, "test", 4 * kBytes);
  mapper.make(2, "test", 4096);
  EXPECT_EQ(await(mapper).token, 2u);
  EXPECT_EQ(await(mapper).token, 1u);
}

TEST(Mapper, MapsWhatWorkersBring) {
  Mapper mapper;
  mapper.map(2, test::sealed_file(1 << 20), 1 << 20, "memory");
  const Mapper::Done mapped = await(mapper);
  ASSERT_TRUE(mapped.region) << mapped.region.error().text;
  EXPECT_GT(mapped.spent, 0);
  EXPECT_FALSE(mapped.region->fd);
  mapper.map(3, test::sealed_file(1 << 20), 4096, "memory");
  EXPECT_FALSE(await(mapper).region);
}

}  // namespace
}  // namespace ina::switchd
