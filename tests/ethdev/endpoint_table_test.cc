#include "io/ethdev/endpoint_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace ina::io {
namespace {

constexpr JobId kJob{1};

Endpoint endpoint(uint32_t ip, uint16_t port, uint8_t mac = 1, JobId job = kJob,
                  JobId family = kJob) {
  Endpoint e;
  e.job_id = job;
  e.family = family;
  e.address = {{2, 0, 0, 0, 0, mac}, ip, port};
  return e;
}

TEST(EndpointTable, FindsByAddressAndPortAndMac) {
  EndpointTable table(4);
  EndpointTable::Refusal refusal{};
  const auto index = table.insert(endpoint(10, 1), refusal);
  ASSERT_TRUE(index);
  EXPECT_EQ(table.find(endpoint(10, 1).address, kJob), &table[*index]);
  EXPECT_EQ(table.find(endpoint(10, 2).address, kJob), nullptr);
  EXPECT_EQ(table.find(endpoint(11, 1).address, kJob), nullptr);
  EXPECT_EQ(table.find(endpoint(10, 1, 2).address, kJob), nullptr)
      << "MAC addresses are compared too";
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

TEST(EndpointTable, AJobAndItsGroupsMayHaveTheSameAddress) {
  EndpointTable table(8);
  EndpointTable::Refusal refusal{};
  std::vector<EndpointIndex> bound;
  for (uint32_t job = 1; job <= 4; ++job) {
    const auto index = table.insert(endpoint(1, 1, 1, JobId{job}), refusal);
    ASSERT_TRUE(index);
    bound.push_back(*index);
  }
  EXPECT_FALSE(table.insert(endpoint(1, 1, 1, JobId{3}), refusal)) << "once each";
  EXPECT_EQ(refusal, EndpointTable::Refusal::kTaken);
  EXPECT_FALSE(table.insert(endpoint(1, 1, 1, JobId{9}, JobId{9}), refusal)) << "another job";
  EXPECT_EQ(refusal, EndpointTable::Refusal::kTaken);
  for (uint32_t job = 1; job <= 4; ++job)
    EXPECT_EQ(table.find(endpoint(1, 1).address, JobId{job}), &table[bound[job - 1]]);
  table.erase(bound[0]);
  EXPECT_EQ(table.find(endpoint(1, 1).address, JobId{1}), nullptr);
  EXPECT_EQ(table.find(endpoint(1, 1).address, JobId{4}), &table[bound[3]]);
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
    const Endpoint* const found = table.find(endpoint(ip, port).address, kJob);
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
