// Groups at the control socket, spoken by hand: access to groups, the answer to a worker that does
// not keep to the protocol, and its remains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/hand_driven.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::TestSwitch;
using testing::HasSubstr;

/// Worker by hand, of job "job" and of its groups.
class Hand : public test::HandDriven {
 public:
  explicit Hand(const TestSwitch& sw) : HandDriven(sw.socket_path()) {}
  Json join(int rank, int world) const {
    return ask({{"type", "join"},
                {"version", control::kControlVersion},
                {"job", "job"},
                {"rank", rank},
                {"world_size", world},
                {"transport", "shm"}});
  }
  Json split(int64_t colour, uint32_t number, int64_t channel = 0) const {
    Json message = {{"type", "split"}, {"colour", colour}, {"key", 0}, {"number", number}};
    if (channel != 0) message["channel"] = channel;
    return message;
  }
  static Json create(const Json& ranks, uint64_t tag) {
    return {{"type", "create_group"}, {"ranks", ranks}, {"tag", tag}};
  }
  static Json join_group(const Json& id) {
    return {{"type", "join"}, {"channel", id}, {"transport", "shm"}};
  }
};

TestSwitch::Options options() {
  TestSwitch::Options options;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = *value_in(scheduler::kPolicyNames, "esa");
    config.control.join_timeout_ns = 2'000'000'000;
  };
  return options;
}

/// Two workers of a job that runs.
struct Pair {
  explicit Pair(const TestSwitch& sw) : a(sw), b(sw) {
    a.attach(a.join(0, 2));
    b.attach(b.join(1, 2));
    EXPECT_EQ(a.receive()["type"], "ready");
    EXPECT_EQ(b.receive()["type"], "ready");
  }
  Hand a, b;
};

TEST(GroupsControl, EachColourIsAJobOfTheOwner) {
  TestSwitch sw(options());
  Pair pair(sw);
  pair.a.send(pair.a.split(5, 1));
  pair.b.send(pair.b.split(2, 1));
  const Json of_a = pair.a.receive();
  const Json of_b = pair.b.receive();
  EXPECT_EQ(of_a["type"], "split");
  EXPECT_EQ(of_a["world_size"], 1);
  EXPECT_NE(of_a["job_id"], of_b["job_id"]);
  const Json joined = pair.a.ask(Hand::join_group(of_a["job_id"]));
  EXPECT_EQ(joined["type"], "joined");
  EXPECT_EQ(joined["channel"], of_a["job_id"]);
  pair.a.attach(joined);
  const Json ready = pair.a.receive();
  EXPECT_EQ(ready["type"], "ready");
  EXPECT_EQ(ready["channel"], of_a["job_id"]);
  const Json status = sw.status();
  EXPECT_EQ(status["jobs"].size(), 3u);
  EXPECT_EQ(status["tenants"][0]["jobs"], 1);
  EXPECT_EQ(status["tenants"][0]["groups"], 2);
  pair.a.send({{"type", "leave"}, {"channel", of_a["job_id"]}});
  EXPECT_EQ(pair.a.receive()["type"], "left");
}

TEST(GroupsControl, OnlyMembersMayJoinAndOnlyTheirOwnPlace) {
  TestSwitch sw(options());
  Pair pair(sw);
  pair.a.send(pair.a.split(1, 1));
  pair.b.send(pair.b.split(-1, 1));
  const Json id = pair.a.receive()["job_id"];
  EXPECT_FALSE(pair.b.receive().contains("job_id"));
  // One of the job that is not in it, one of no job, and one of another job.
  EXPECT_EQ(pair.b.ask(Hand::join_group(id))["type"], "refused");
  const Hand stranger(sw);
  EXPECT_EQ(stranger.ask(Hand::join_group(id))["type"], "refused");
  Json by_name = {{"type", "join"},
                  {"version", control::kControlVersion},
                  {"job", "job/" + id.dump()},
                  {"rank", 0},
                  {"world_size", 1},
                  {"transport", "shm"}};
  const Json other = stranger.ask(by_name);
  EXPECT_EQ(other["type"], "joined");
  EXPECT_NE(other["job_id"], id) << "a group is found by its id alone";
  EXPECT_EQ(pair.a.ask(Hand::join_group(id))["type"], "joined");
  EXPECT_EQ(pair.a.ask(Hand::join_group(id))["type"], "refused") << "twice";
}

TEST(GroupsControl, DifferentNumbersOfSplitsEndTheJob) {
  TestSwitch sw(options());
  Pair pair(sw);
  pair.a.send(pair.a.split(0, 1));
  pair.b.send(pair.b.split(0, 2));
  for (const Hand* hand : {&pair.a, &pair.b}) {
    const Json end = hand->receive();
    EXPECT_EQ(end["status"], INA_ERR_MISMATCH);
    EXPECT_THAT(end["text"].get<std::string>(), HasSubstr("split 2"));
  }
}

TEST(GroupsControl, AGroupThatIsNotJoinedInTimeEnds) {
  TestSwitch sw(options());
  Pair pair(sw);
  pair.a.send(pair.a.split(0, 1));
  pair.b.send(pair.b.split(0, 1));
  const Json id = pair.a.receive()["job_id"];
  EXPECT_EQ(pair.a.ask(Hand::join_group(id))["type"], "joined");
  const Json end = pair.a.receive();
  EXPECT_EQ(end["type"], "abort");
  EXPECT_EQ(end["channel"], id);
  EXPECT_EQ(sw.status()["jobs"].size(), 1u);
}

TEST(GroupsControl, WhatComesForAGroupThatHasEndedIsIgnoredWithItsDescriptors) {
  TestSwitch sw(options());
  Pair pair(sw);
  pair.a.send(pair.a.split(0, 1));
  pair.b.send(pair.b.split(0, 1));
  const Json id = pair.a.receive()["job_id"];
  EXPECT_EQ(pair.b.receive()["job_id"], id);
  const Json joined = pair.a.ask(Hand::join_group(id));
  EXPECT_EQ(pair.b.ask(Hand::join_group(id))["type"], "joined");
  pair.b.send({{"type", "abort"}, {"channel", id}, {"text", "changed its mind"}});
  EXPECT_EQ(pair.a.receive()["type"], "abort");
  pair.a.attach(joined);
  pair.a.send({{"type", "leave"}, {"channel", id}});
  // The job goes on.
  EXPECT_EQ(pair.a.ask({{"type", "explain"}})["type"], "explain");
  EXPECT_EQ(sw.status()["jobs"].size(), 1u);
}

TEST(GroupsControl, GuessedChannelsLeaveNothingBehind) {
  TestSwitch sw(options());
  Pair pair(sw);
  const Json before = sw.status()["aggregator"];
  for (uint32_t channel = 1'000; channel < 1'300; ++channel) {
    EXPECT_EQ(pair.a.ask(Hand::join_group(channel))["type"], "refused");
    const Json rejoin = {{"type", "rejoin"},  {"channel", channel}, {"transport", "shm"},
                         {"job_id", channel}, {"job_key", 1},       {"rank", 0},
                         {"world_size", 1},   {"low", 0},           {"next", 0},
                         {"results_end", 0}};
    EXPECT_EQ(pair.a.ask(rejoin)["type"], "refused");
  }
  const Json after = sw.status()["aggregator"];
  EXPECT_EQ(after["memory_used_bytes"], before["memory_used_bytes"]);
  EXPECT_EQ(after["descriptors_used"], before["descriptors_used"]);
}

TEST(GroupsControl, MembersGetTheirPlacesInTheOrderOfTheRanks) {
  TestSwitch sw(options());
  Pair pair(sw);
  pair.a.send(Hand::create({1, 0}, 3));
  pair.b.send(Hand::create({1}, 4));
  EXPECT_EQ(pair.b.receive()["world_size"], 1);
  pair.b.send(Hand::create({1, 0}, 3));
  const Json of_a = pair.a.receive(), of_b = pair.b.receive();
  EXPECT_EQ(of_a["job_id"], of_b["job_id"]);
  EXPECT_EQ(of_a["rank"], 1);
  EXPECT_EQ(of_b["rank"], 0);
  EXPECT_EQ(pair.a.ask(Hand::join_group(of_a["job_id"]))["type"], "joined");
}

TEST(GroupsControl, RequestsOfMembersThatNoLibraryMakesAreRefused) {
  TestSwitch sw(options());
  for (const Json& ranks : {Json::array(), Json({1}), Json({0, 0}), Json({0, 2}), Json({0, 64}),
                            Json({0, 4294967295u})}) {
    Pair pair(sw);
    EXPECT_EQ(pair.a.ask(Hand::create(ranks, 1))["status"], INA_ERR_INVALID) << ranks;
  }
  Pair pair(sw);
  pair.a.send(Hand::create({0, 1}, 1));
  EXPECT_EQ(pair.a.ask(Hand::create({0, 1}, 1))["status"], INA_ERR_INVALID) << "the tag again";
}

TEST(GroupsControl, TheOwnersGroupsAreBounded) {
  TestSwitch::Options bounded = options();
  const auto before = bounded.conductor;
  bounded.conductor = [before](switchd::ConductorConfig& config) {
    before(config);
    config.switchd.max_groups_per_user = 3;
  };
  TestSwitch sw(bounded);
  Pair pair(sw);
  for (uint32_t number = 1; number <= 2; ++number) {
    pair.a.send(pair.a.split(0, number));
    pair.b.send(pair.b.split(1, number));
    const Json answer = pair.a.receive();
    EXPECT_EQ(pair.b.receive()["status"], answer["status"]);
    if (number == 1) {
      EXPECT_EQ(answer["status"], INA_OK);
      continue;
    }
    EXPECT_EQ(answer["status"], INA_ERR_REFUSED);
    EXPECT_THAT(answer["text"].get<std::string>(), HasSubstr("switch.max_groups_per_user"));
  }
  EXPECT_EQ(sw.status()["jobs"].size(), 3u)
      << "the group that was made of the second split is gone";
}

}  // namespace
}  // namespace ina
