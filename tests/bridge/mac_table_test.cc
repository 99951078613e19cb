#include "io/bridge/mac_table.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace ina::bridge {
namespace {

constexpr Nanos kAgeingNs = 1000;

wire::MacAddress mac(uint32_t number) {
  return {0x02,
          0,
          static_cast<uint8_t>(number >> 24),
          static_cast<uint8_t>(number >> 16),
          static_cast<uint8_t>(number >> 8),
          static_cast<uint8_t>(number)};
}

TEST(MacTable, FindsWhatItLearned) {
  MacTable table(1024, kAgeingNs, 1);
  for (uint32_t i = 0; i < 200; ++i) table.learn(mac(i), 0, static_cast<PortIndex>(i % 5), 0);
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(table.find(mac(i), 0, 1), i % 5);
  EXPECT_FALSE(table.find(mac(200), 0, 1));
  EXPECT_EQ(table.size(), 200u);
  EXPECT_EQ(table.counters().learned, 200u);
  EXPECT_EQ(table.counters().moved, 0u);
}

TEST(MacTable, AddressesThatNoHostHasAreNotLearned) {
  MacTable table(16, kAgeingNs, 1);
  table.learn({}, 0, 0, 0);
  table.learn({0x01, 0, 0x5e, 0, 0, 1}, 0, 0, 0);
  table.learn({0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0, 0, 0);
  table.learn(mac(1), 0, kMaxPorts, 0);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_FALSE(table.find({}, 0, 0));
}

TEST(MacTable, EachVlanHasItsOwn) {
  MacTable table(1024, kAgeingNs, 1);
  for (const VlanId vlan : {0, 1, 16, 4094}) table.learn(mac(7), vlan, vlan % 5, 0);
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(table.counters().moved, 0u);
  for (const VlanId vlan : {0, 1, 16, 4094}) EXPECT_EQ(table.find(mac(7), vlan, 0), vlan % 5);
  EXPECT_FALSE(table.find(mac(7), 17, 0));
  EXPECT_FALSE(table.find({}, 1, 0)) << "no address is none in any VLAN";
  table.forget(1);  // 1 and 16
  EXPECT_FALSE(table.find(mac(7), 16, 0));
  EXPECT_TRUE(table.find(mac(7), 4094, 0));
}

TEST(MacTable, TimesAfterYearsAreKept) {
  MacTable table(8, kAgeingNs, 1);
  constexpr Nanos kNow = Nanos{9} * 365 * 86'400 * 1'000'000'000;
  table.learn(mac(1), 0, kMaxPorts - 1, kNow);
  EXPECT_EQ(table.find(mac(1), 0, kNow + kAgeingNs - 1), kMaxPorts - 1);
  EXPECT_FALSE(table.find(mac(1), 0, kNow + kAgeingNs));
}

TEST(MacTable, EveryByteOfAnAddressCounts) {
  for (size_t byte = 0; byte < 6; ++byte) {
    MacTable table(8, kAgeingNs, 1);
    wire::MacAddress other = mac(7);
    other[byte] ^= 2;
    table.learn(mac(7), 0, 1, 0);
    EXPECT_FALSE(table.find(other, 0, 0)) << byte;
  }
}

TEST(MacTable, HostsMayMove) {
  MacTable table(16, kAgeingNs, 1);
  table.learn(mac(1), 0, 0, 0);
  table.learn(mac(1), 0, 3, 10);
  EXPECT_EQ(table.find(mac(1), 0, 10), 3);
  EXPECT_EQ(table.counters().moved, 1u);
  EXPECT_EQ(table.size(), 1u);
  // An entry that left a port does not count there: its new port is the one to forget.
  table.forget(0);
  EXPECT_EQ(table.size(), 1u);
  table.forget(3);
  EXPECT_EQ(table.size(), 0u);
}

TEST(MacTable, AddressesAgeUnlessSeenAgain) {
  MacTable table(16, kAgeingNs, 1);
  table.learn(mac(1), 0, 0, 0);
  table.learn(mac(2), 0, 0, 0);
  table.learn(mac(1), 0, 0, 500);
  EXPECT_EQ(table.find(mac(2), 0, kAgeingNs - 1), 0);
  EXPECT_FALSE(table.find(mac(2), 0, kAgeingNs));
  EXPECT_EQ(table.find(mac(1), 0, kAgeingNs), 0);
  for (uint32_t i = 0; i < table.sweeps(); ++i) table.sweep(kAgeingNs);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.counters().expired, 1u);
  EXPECT_EQ(table.find(mac(1), 0, kAgeingNs), 0);
}

TEST(MacTable, SweepReachesEverySet) {
  MacTable table(4096, kAgeingNs, 1);
  for (uint32_t i = 0; i < 1500; ++i) table.learn(mac(i), 0, 0, 0);
  const uint32_t size = table.size();
  ASSERT_GT(size, 1400u);
  for (uint32_t i = 0; i < table.sweeps(); ++i) table.sweep(kAgeingNs);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.counters().expired, size);
}

TEST(MacTable, ForgetsAPort) {
  MacTable table(1024, kAgeingNs, 1);
  for (uint32_t i = 0; i < 100; ++i) table.learn(mac(i), 0, i % 2, 0);
  table.forget(1);
  EXPECT_EQ(table.size(), 50u);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(table.find(mac(i), 0, 0).has_value(), i % 2 == 0);
}

TEST(MacTable, AFullSetRefusesNewcomersUntilOneExpires) {
  MacTable table(8, kAgeingNs, 1);  // one set
  for (uint32_t i = 0; i < 8; ++i) table.learn(mac(i), 0, 0, i == 5 ? 0 : 500);
  table.learn(mac(8), 0, 1, 600);
  EXPECT_FALSE(table.find(mac(8), 0, 600));
  EXPECT_EQ(table.counters().refused, 1u);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(table.find(mac(i), 0, 600), 0);
  // Those that are there are still refreshed and may move.
  table.learn(mac(0), 0, 1, 600);
  EXPECT_EQ(table.find(mac(0), 0, 600), 1);
  // The place of 5 is free now.
  table.learn(mac(8), 0, 1, kAgeingNs);
  EXPECT_EQ(table.find(mac(8), 0, kAgeingNs), 1);
  EXPECT_EQ(table.size(), 8u);
  EXPECT_EQ(table.counters().expired, 1u);
}

TEST(MacTable, NoPortTakesMoreThanHalf) {
  MacTable table(1024, kAgeingNs, 1);
  // As somebody would who makes addresses up to have all traffic flooded.
  for (uint32_t i = 0; i < 100'000; ++i) table.learn(mac(i), 0, 0, 0);
  EXPECT_LE(table.size(), 512u);
  EXPECT_GT(table.size(), 400u);
  EXPECT_EQ(table.counters().learned + table.counters().refused, 100'000u);
  uint32_t found = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    table.learn(mac(1'000'000 + i), 0, 1, 0);
    found += table.find(mac(1'000'000 + i), 0, 0) == 1;
  }
  EXPECT_GT(found, 80u) << "hosts at other ports find room";
}

TEST(MacTable, TheSeedDecidesWhoMeets) {
  const auto refused = [](uint64_t seed) {
    MacTable table(4096, kAgeingNs, seed);
    std::vector<uint32_t> numbers;
    for (uint32_t number = 0; number < 1800; ++number) {
      table.learn(mac(number), 0, 0, 0);
      if (!table.find(mac(number), 0, 0)) numbers.push_back(number);
    }
    return numbers;
  };
  ASSERT_FALSE(refused(1).empty());
  EXPECT_NE(refused(1), refused(0x123456789));
}

TEST(MacTable, AgreesWithAMapUnderRandomUse) {
  // Far fewer addresses than places, so that nothing is refused.
  MacTable table(4096, kAgeingNs, 3);
  struct Seen {
    PortIndex port;
    Nanos at;
  };
  std::map<uint32_t, Seen> model;
  uint32_t state = 7;
  const auto random = [&state] { return state = state * 1664525 + 1013904223, state >> 8; };
  for (Nanos now = 0; now < 50'000; ++now) {
    const uint32_t number = random() % 300;
    const auto port = static_cast<PortIndex>(random() % 4);
    switch (random() % 8) {
      case 0:
        if (random() % 50 != 0) break;
        table.forget(port);
        std::erase_if(model, [&](const auto& entry) { return entry.second.port == port; });
        break;
      case 1:
        table.sweep(now);
        break;
      default:
        table.learn(mac(number), 0, port, now);
        model[number] = {port, now};
    }
    const uint32_t sought = random() % 300;
    const auto entry = model.find(sought);
    std::optional<PortIndex> expected;
    if (entry != model.end() && now - entry->second.at < kAgeingNs) expected = entry->second.port;
    ASSERT_EQ(table.find(mac(sought), 0, now), expected) << now;
  }
  EXPECT_EQ(table.counters().refused, 0u);
  EXPECT_GT(table.counters().moved, 0u);
}

}  // namespace
}  // namespace ina::bridge
