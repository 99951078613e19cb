#include "switchd/config/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "switchd/config/keys.h"

namespace ina::config {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Config load(std::string_view text) {
  const auto config = load_config(text, "x.yaml");
  EXPECT_TRUE(config) << config.error().front().to_string();
  return config.value_or(Config{});
}

/// "+ text" for changes in place, "- text" for the rest.
std::vector<std::string> between(std::string_view before, std::string_view after) {
  std::vector<std::string> texts;
  for (const Change& change : changes(load(before), load(after)))
    texts.push_back((change.in_place ? "+ " : "- ") + change.to_string());
  return texts;
}

TEST(Changes, OfTheSameAreNone) {
  EXPECT_THAT(between("", ""), IsEmpty());
  EXPECT_THAT(between(sample_config(), ""), IsEmpty());
  EXPECT_THAT(between("jobs: {memory: 1GiB}", "jobs: {memory: 1024MiB}"), IsEmpty());
}

TEST(Changes, AreNamedByKeyInTheFilesOwnTerms) {
  EXPECT_THAT(between("aggregator: {policy: static}",
                      "aggregator: {policy: esa}\njobs: {memory: 2GiB}\nlog: {level: error}"),
              ElementsAre("- aggregator.policy: static -> esa", "+ jobs.memory: 1 GiB -> 2 GiB",
                          "+ log.level: info -> error"));
}

TEST(Changes, OfPortsAreByName) {
  const std::string shm = "{name: shm0, type: shm}";
  const std::string nic = "{name: nic, type: ethdev, device: \"01:00.0\", ip: 10.0.0.1}";
  EXPECT_THAT(between("ports: [" + shm + "]", "ports: [" + shm + ", " + nic + "]"),
              ElementsAre("- ports.nic: is new"));
  EXPECT_THAT(between("ports: [" + shm + ", " + nic + "]", "ports: [" + shm + "]"),
              ElementsAre("- ports.nic: is no more"));
  EXPECT_THAT(between("ports: [" + shm + ", " + nic + "]", "ports: [" + nic + ", " + shm + "]"),
              ElementsAre("- ports: in one order -> in another"));
  std::string other = nic;
  other.replace(other.find("10.0.0.1"), 8, "10.0.0.2");
  EXPECT_THAT(between("ports: [" + nic + "]", "ports: [" + other + "]"),
              ElementsAre("- ports.nic.ip: 10.0.0.1 -> 10.0.0.2"));
}

TEST(Changes, OfTenantsAreInPlaceUnlessTheArrayIsDividedAnew) {
  const std::string esa = "aggregator: {policy: esa}\n";
  EXPECT_THAT(between(esa, esa + "tenants: [{name: vision, slots_floor: 8}]"),
              ElementsAre("+ tenants.vision: is new"));
  EXPECT_THAT(
      between("tenants: [{name: vision, jobs_max: 2}]", "tenants: [{name: vision, jobs_max: 3}]"),
      ElementsAre("+ tenants.vision.jobs_max: 2 -> 3"));
  EXPECT_THAT(between("tenants: [{name: vision}]", "tenants: [{name: vision, slots_floor: 8}]"),
              ElementsAre("- tenants.vision.slots_floor: 0 -> 8"));
  EXPECT_THAT(between("tenants: [{name: vision, slots_floor: 8}]", ""),
              ElementsAre("- tenants.vision: is no more"));
}

/// Or a key that was given another name would need a restart from then on, unnoticed.
TEST(Changes, WhatIsSaidToChangeInPlaceIsAKey) {
  for (const std::string_view name : keys_in_place())
    EXPECT_TRUE(std::ranges::any_of(keys(), [&](const Key& key) {
      return std::string(key.section) + "." + std::string(key.name) == name;
    })) << name;
}

}  // namespace
}  // namespace ina::config
