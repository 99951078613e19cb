// The threads that make and map workers' memory: their use of the machine, and who waits for whom.
#include "switchd/memory/mapper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/clock.h"
#include "io/shm/layout.h"
#include "switchd/jobs/job_rules.h"
#include "tests/support/deadline.h"
#include "tests/support/evil_files.h"
#include "tests/support/thread_sleeps.h"

namespace ina::switchd {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
using test::kTimeoutNs;
const std::string kAlice = "uid:1000", kBob = "uid:1001";

Mapper::Done await(Mapper& mapper) {
  for (;;) {
    if (auto done = mapper.next()) return std::move(*done);
    pollfd waiter{mapper.fd(), POLLIN, 0};
    ::poll(&waiter, 1, -1);
  }
}

/// The tokens of the next tasks that are done, in order.
std::vector<uint64_t> await_tokens(Mapper& mapper, size_t count) {
  std::vector<uint64_t> tokens;
  while (tokens.size() < count) tokens.push_back(await(mapper).token);
  return tokens;
}

ptrdiff_t position(const std::vector<uint64_t>& tokens, uint64_t token) {
  return std::ranges::find(tokens, token) - tokens.begin();
}

Fd copy_of(const Fd& file) {
  return Fd(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
}

/// A file of which a test sees when it is closed.
class Watched {
 public:
  Watched() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    near_ = Fd(ends[0]);
    far = Fd(ends[1]);
  }
  bool closes() const {
    pollfd waiter{near_.get(), 0, 0};
    return ::poll(&waiter, 1, static_cast<int>(kTimeoutNs / 1'000'000)) > 0;
  }
  Fd far;

 private:
  Fd near_;
};

/// Bytes for a worker whose window is as large as a default configuration allows.
size_t default_region_bytes() {
  const ConductorConfig config;
  scheduler::Grant grant;
  grant.window = static_cast<uint32_t>(config.jobs.window_bytes / config.aggregator.slot_bytes);
  const JobRules rules(config, config.switchd.lcores);
  return io::shm::WorkerLayout(rules.geometry(grant)).bytes;
}

/// How often the mapper's threads have left their cores of their own accord.
uint64_t rests() {
  return test::sleeps_of_threads("self", "ina-mapper");
}

TEST(Mapper, RestsBetweenSmallPiecesAndSaysHowLongItWorked) {
  Mapper mapper;
  mapper.make(kAlice, 0, "test", 4096);
  (void)await(mapper);  // it has its name by now
  const uint64_t before = rests();
  const Nanos begun = now_ns();
  mapper.make(kAlice, 1, "test", kBytes);
  Mapper::Done made = await(mapper);
  const Nanos passed = now_ns() - begun;
  EXPECT_GE(rests() - before, kBytes >> 20);
  ASSERT_TRUE(made.region) << made.region.error().text;
  EXPECT_EQ(made.token, 1u);
  EXPECT_EQ(made.region->map.size(), kBytes);
  EXPECT_GT(made.spent, 0);
  EXPECT_LT(made.spent, passed);
  const uint64_t made_with = rests();
  mapper.discard(kAlice, std::move(made.region->map), std::move(made.region->fd));
  while (mapper.leaving() != 0) ::usleep(1000);
  EXPECT_GE(rests() - made_with, kBytes >> 22) << "giving back takes as long as a part of making";
}

// Not even its own user's, so that it is no matter of turns.
TEST(Mapper, AWorkersRegionDoesNotWaitForLargeMemory) {
  const size_t bytes = default_region_bytes();
  const Fd large = test::sealed_file(kBytes);
  Fd region = test::sealed_file(bytes);
  Mapper mapper;
  for (uint64_t token = 1; token <= 8; ++token) {
    if (token % 2 == 0)
      mapper.map_registered(kAlice, token, copy_of(large), kBytes);
    else
      mapper.make(kAlice, token, "test", kBytes);
  }
  mapper.map_region(kAlice, 9, std::move(region), bytes);
  EXPECT_LT(position(await_tokens(mapper, 9), 9), 7);
}

TEST(Mapper, OwnersOfLargeMemoryTakeTurns) {
  const Fd large = test::sealed_file(kBytes);
  Mapper mapper;
  for (uint64_t token = 1; token <= 12; ++token)
    mapper.map_registered(token <= 8 ? kAlice : kBob, token, copy_of(large), kBytes);
  const std::vector<uint64_t> tokens = await_tokens(mapper, 12);
  EXPECT_LT(position(tokens, 12), position(tokens, 8)) << "Bob's last, Alice's last";
  EXPECT_LT(position(tokens, 7), position(tokens, 8)) << "an owner's own keep their order";
}

// What is refused after a look at all of it, and may take as long to close.
TEST(Mapper, AFileThatIsNoRegionHoldsNoRegionsUp) {
  const Fd large = test::sealed_file(kBytes);
  Mapper mapper;
  for (uint64_t token = 1; token <= 4; ++token)
    mapper.map_registered(kAlice, token, copy_of(large), kBytes);
  mapper.map_region(kAlice, 5, copy_of(large), 4096);
  const std::vector<uint64_t> tokens = await_tokens(mapper, 5);
  EXPECT_EQ(tokens.back(), 5u);
}

TEST(Mapper, GivesBackBeforeItTakesMore) {
  const Fd large = test::sealed_file(kBytes);
  Watched file;
  Mapper mapper;
  for (uint64_t token = 1; token <= 8; ++token)
    mapper.map_registered(kAlice, token, copy_of(large), kBytes);
  mapper.discard(kAlice, {}, std::move(file.far));
  EXPECT_TRUE(file.closes());
  size_t done = 0;
  while (mapper.next()) ++done;
  EXPECT_LT(done, 8u);
}

TEST(Mapper, WhatIsWithdrawnIsNotBegun) {
  const Fd large = test::sealed_file(kBytes);
  Watched file;
  Mapper mapper;
  mapper.map_registered(kAlice, 1, copy_of(large), kBytes);
  mapper.make(kAlice, 2, "test", kBytes);
  mapper.map_registered(kBob, 3, std::move(file.far), kBytes);
  mapper.map_registered(kAlice, 4, copy_of(large), kBytes);
  EXPECT_TRUE(mapper.withdraw(3));
  EXPECT_TRUE(mapper.withdraw(2));
  EXPECT_FALSE(mapper.withdraw(2)) << "it is gone";
  EXPECT_TRUE(file.closes());
  EXPECT_EQ(await_tokens(mapper, 2), (std::vector<uint64_t>{1, 4}));
  EXPECT_FALSE(mapper.withdraw(1)) << "it is done";
  EXPECT_FALSE(mapper.next());
}

TEST(Mapper, MapsWhatWorkersBring) {
  Mapper mapper;
  mapper.map_region(kAlice, 2, test::sealed_file(1 << 20), 1 << 20);
  const Mapper::Done mapped = await(mapper);
  ASSERT_TRUE(mapped.region) << mapped.region.error().text;
  EXPECT_GT(mapped.spent, 0);
  EXPECT_FALSE(mapped.region->fd);
  EXPECT_EQ(mapped.owner, kAlice);
  mapper.map_registered(kAlice, 3, test::sealed_file(1 << 20), 4096);
  const Mapper::Done refused = await(mapper);
  ASSERT_FALSE(refused.region);
  EXPECT_EQ(refused.region.error().text,
            "the registered memory has 1048576 bytes, agreed were 4096");
}

}  // namespace
}  // namespace ina::switchd
