#include "io/ethdev/endpoint_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ina::io {
namespace {

Endpoint endpoint(uint32_t ip, uint16_t port, uint8_t mac = 1) {
  Endpoint e;
  e.address = {{2, 0, 0, 0, 0, mac}, ip, port};
  return e;
}

TEST(EndpointTable, FindsByAddressAndPortAndMac) {
  EndpointTable table(4);
  EndpointTable::Refusal refusal{};
  const auto index = table.insert(endpoint(10, 1), refusal);
  ASSERT_TRUE(index);
  EXPECT_EQ(table.find(endpoint(10, 1).address), &table[*index]);
  EXPECT_EQ(table.find(endpoint(10, 2).address), nullptr);
  EXPECT_EQ(table.find(endpoint(11, 1).address), nullptr);
  EXPECT_EQ(table.find(endpoint(10, 1, 2).address), nullptr) << "MAC addresses are compared too";
}

TEST(EndpointTable, RefusesTakenAndFull) {
  EndpointTable table(2);
  EndpointTable::Refusal refusal{};
  ASSERT_TRUE(table.insert(endpoint(1, 1), refusal));
  EXPECT_FALSE(table.insert(endpoint(1, 1, 9), refusal));
  EXPECT_EQ(refusal, EndpointTable::Refusal::kTaken);
  ASSERT_TRUE(table.insert(endpoint(1, 2), refusal));
  EXPECT_FALSE(table.insert(endpoint(1, 3), refusal));
  EXPECT_EQ(refusal, EndpointTable::Refusal::kFull);
}

TEST(EndpointTable, AgreesWithAMapUnderRandomUse) {
  constexpr uint16_t kCapacity = 64;
  EndpointTable table(kCapacity);
  std::map<std::pair<uint32_t, uint16_t>, EndpointIndex> bound;
  std::mt19937 random(1);
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t ip = random() % 12;
    const auto port = static_cast<uint16_t>(random() % 12);
    const auto known = bound.find({ip, port});
    const Endpoint* const found = table.find(endpoint(ip, port).address);
    ASSERT_EQ(found != nullptr, known != bound.end());
    if (found != nullptr) {
      ASSERT_EQ(found, &table[known->second]);
      table.erase(known->second);
      bound.erase(known);
      continue;
    }
    EndpointTable::Refusal refusal{};
    const auto index = table.insert(endpoint(ip, port), refusal);
    ASSERT_EQ(index.has_value(), bound.size() < kCapacity);
    if (index) bound[{ip, port}] = *index;
  }
}

}  // namespace
}  // namespace ina::io
