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

/// Of each collective, the traffic of the rank with the most overhead.
using Overheads = std::map<std::string, Traffic>;

/// Runs every collective; payload must be exact at each rank.
Overheads run_once(int world, uint64_t block_bytes) {
  // With slots for all windows, and nothing sent again because the machine is busy.
  TestSwitch sw({.slots = 1024,
                 .slot_bytes = kSlotBytes,
                 .slots_per_job = 512,
                 .conductor = [](switchd::ConductorConfig& config) {
                   config.recovery.rto_min_ns = config.recovery.rto_max_ns = 10'000'000'000;
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

/// Runs of bare results end when they have waited for a time, so that their length depends on how
/// busy the machine is. `most` is ten times the largest overhead of an idle one
/// (docs/collectives.md), and about a quarter of a gather's without joining.
void expect_joined(double most, const Overheads& overheads) {
  for (const auto& [collective, traffic] : overheads) {
    testing::Test::RecordProperty(collective,
                                  std::to_string(static_cast<double>(traffic.packets) /
                                                 static_cast<double>(traffic.payload_packets())) +
                                      " packets for each of payload, " +
                                      std::to_string(100 * traffic.overhead()) + " % more bytes");
    EXPECT_LE(traffic.overhead(), most) << traffic.text();
  }
}

TEST(CollectiveTraffic, EightRanks) {
#ifdef INA_SLOW_BUILD
  expect_joined(0.05, run_once(8, 16 * kSlotBytes));  // first and last messages weigh more
#else
  expect_joined(0.03, run_once(8, 64 * kSlotBytes));
#endif
}

#ifndef INA_SLOW_BUILD
TEST(CollectiveTraffic, SixtyFourRanks) {
  expect_joined(0.2, run_once(64, 16 * kSlotBytes));
}
#endif

}  // namespace
}  // namespace ina
