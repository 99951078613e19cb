// Bytes and packets of every collective, as the library counts them, over the shm port.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tests/support/client_ranks.h"
#include "tests/support/collective_traffic.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::on_ranks;
using test::TestSwitch;
using test::Traffic;
using test::TrafficCount;

constexpr uint32_t kSlotBytes = 8192;
constexpr uint32_t kWindow = 256;

/// By collective, the traffic of the rank with the most overhead.
using Overheads = std::map<std::string, Traffic>;

/// Runs every collective; payload must be exact at each rank.
Overheads run_once(int world, uint64_t block_bytes) {
  // With slots for all windows, and nothing sent again because the machine is busy.
  TestSwitch sw({.slots = 1024,
                 .slot_bytes = kSlotBytes,
                 .slots_per_job = 2 * kWindow,
                 .conductor = [](switchd::ConductorConfig& config) {
                   config.rules.rto_min_ns = config.rules.rto_max_ns = 10'000'000'000;
                 }});
  std::mutex mutex;
  Overheads overheads;
  on_ranks(sw, world, [&](Context& context, int rank) {
    for (const Traffic& traffic : TrafficCount(context, block_bytes, kSlotBytes).run()) {
      SCOPED_TRACE("rank " + std::to_string(rank) + ", " + traffic.text());
      EXPECT_EQ(traffic.up, traffic.up_wanted);
      EXPECT_EQ(traffic.down, traffic.down_wanted);
      EXPECT_LE(traffic.bare_packets(), traffic.most_bare_packets());
      if (traffic.collective == "barrier") {
        EXPECT_EQ(traffic.packets, 2u);
      }
      if (traffic.collective == "all-reduce") {
        EXPECT_EQ(traffic.bare_packets(), 0u);
      }
      if (traffic.payload_bytes() == 0) continue;
      const std::lock_guard lock(mutex);
      Traffic& most = overheads.try_emplace(traffic.collective, traffic).first->second;
      if (traffic.overhead() > most.overhead()) most = traffic;
    }
  });
  return overheads;
}

double packets_of_payload(const Traffic& traffic) {
  return static_cast<double>(traffic.packets) / static_cast<double>(traffic.payload_packets());
}

/// The limits of docs/collectives.md: of all bytes beside the payload, and of messages for each of
/// a rank's fragments. The first and last messages of an operation weigh more in a short one.
struct Limits {
  double overhead;
  double packets;
};

Limits limits_of(int world, double overhead) {
  return {overhead, 1 + 8.0 * world / kWindow};
}

bool is_within(const Traffic& traffic, const Limits& limits) {
  return traffic.overhead() <= limits.overhead && packets_of_payload(traffic) <= limits.packets;
}

/// Runs of bare results end when they have waited for a time, so that their length depends on how
/// busy the machine is: one of a few runs must be within the limits.
void expect_joined(int world, uint64_t block_bytes, const Limits& limits) {
  constexpr int kAttempts = 4;
  for (int attempt = 1; attempt <= kAttempts && !testing::Test::HasFailure(); ++attempt) {
    const Overheads overheads = run_once(world, block_bytes);
    const bool joined = std::ranges::all_of(
        overheads, [&](const auto& one) { return is_within(one.second, limits); });
    if (!joined && attempt != kAttempts) continue;
    for (const auto& [collective, traffic] : overheads) {
      testing::Test::RecordProperty(collective, std::to_string(packets_of_payload(traffic)) +
                                                    " packets for each of payload, " +
                                                    std::to_string(100 * traffic.overhead()) +
                                                    " % more bytes");
      EXPECT_LE(traffic.overhead(), limits.overhead) << traffic.text();
      EXPECT_LE(packets_of_payload(traffic), limits.packets) << traffic.text();
    }
    return;
  }
}

TEST(CollectiveTraffic, EightRanks) {
#ifdef INA_SLOW_BUILD
  expect_joined(8, 16 * kSlotBytes, {0.05, 3});
#else
  expect_joined(8, 64 * kSlotBytes, limits_of(8, 0.03));
#endif
}

#ifndef INA_SLOW_BUILD
TEST(CollectiveTraffic, SixtyFourRanks) {
  expect_joined(64, 16 * kSlotBytes, limits_of(64, 0.06));
}
#endif

}  // namespace
}  // namespace ina
