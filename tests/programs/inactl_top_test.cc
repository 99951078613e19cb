// `inactl top`: rates from two statuses, and the tables of them.
#include "programs/inactl/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/text_table.h"
namespace ina::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Two seconds apart.
constexpr const char* kBefore = R"({"uptime_s": 10.0,
  "aggregator": {"policy": "esa", "slots": 512, "slot_bytes": 1024, "slots_used": 3,
                 "drops": {"duplicate": 10}},
  "lcores": [{"lcore": 0, "busy_s": 4.0, "packets": 1000}],
  "ports": [{"name": "shm0", "rx_bytes": 1024, "tx_bytes": 0, "drops": {"crc": 1}}],
  "jobs": [{"name": "slow", "owner": "uid:1", "id": 1, "state": "running", "world_size": 4,
            "joined": [0, 1, 2, 3], "results": 100, "absorbed": 400, "bypassed": 0},
           {"name": "gone", "owner": "uid:1", "id": 9, "state": "running", "results": 5}]})";
constexpr const char* kNow = R"({"uptime_s": 12.0,
  "aggregator": {"policy": "esa", "slots": 512, "slot_bytes": 1024, "slots_used": 77,
                 "drops": {"duplicate": 30, "too_old": 2}},
  "lcores": [{"lcore": 0, "busy_s": 5.0, "packets": 5000}],
  "ports": [{"name": "shm0", "rx_bytes": 4195328, "tx_bytes": 2048, "drops": {"crc": 7}}],
  "jobs": [{"name": "slow", "owner": "uid:1", "id": 1, "state": "running", "world_size": 4,
            "joined": [0, 1, 2, 3], "results": 120, "absorbed": 430, "bypassed": 10,
            "slots_held": 7, "waiting_for": [2, 3]},
           {"name": "fast", "owner": "uid:1", "id": 2, "state": "running", "world_size": 2,
            "joined": [0, 1], "results": 1500, "fallback_results": 300, "parker_results": 200,
            "preempted": 50, "absorbed": 1000, "bypassed": 3000}]})";

Top sample() {
  return top(Json::parse(kBefore), Json::parse(kNow));
}

TEST(Top, RatesAreOfTheTimeBetween) {
  const Top found = sample();
  EXPECT_DOUBLE_EQ(found.seconds, 2);
  EXPECT_EQ(found.slots_used, 77u);
  EXPECT_DOUBLE_EQ(found.aggregator_drops, 11);
  ASSERT_EQ(found.lanes.size(), 1u);
  EXPECT_DOUBLE_EQ(found.lanes[0].busy, 0.5);
  EXPECT_DOUBLE_EQ(found.lanes[0].packets, 2000);
  ASSERT_EQ(found.ports.size(), 1u);
  EXPECT_DOUBLE_EQ(found.ports[0].rx_bytes, 2 << 20);
  EXPECT_DOUBLE_EQ(found.ports[0].drops, 3);
}

TEST(Top, TheBusiestJobIsFirstAndANewOneCountsFromNothing) {
  const Top found = sample();
  ASSERT_EQ(found.jobs.size(), 2u);
  EXPECT_EQ(found.jobs[0].name, "uid:1/fast");
  EXPECT_DOUBLE_EQ(found.jobs[0].fragments, 1000);
  EXPECT_DOUBLE_EQ(found.jobs[0].bytes, 1024000);
  EXPECT_DOUBLE_EQ(found.jobs[0].offload, 0.25);
  EXPECT_DOUBLE_EQ(found.jobs[0].preempted, 25);
  EXPECT_EQ(found.jobs[1].name, "uid:1/slow");
  EXPECT_DOUBLE_EQ(found.jobs[1].fragments, 10);
  EXPECT_DOUBLE_EQ(found.jobs[1].offload, 0.75);
  EXPECT_THAT(found.jobs[1].waiting_for, ::testing::ElementsAre(2, 3));
}

TEST(Top, FitsATerminalAndIsWholeWithoutOne) {
  Top found = sample();
  found.jobs[1].name = "uid:1000/" + std::string(60, 'n');
  std::istringstream lines(format_top(found, 10, 80));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 80u) << line;
  const std::string text = format_top(found, 10, 80);
  EXPECT_THAT(text, HasSubstr("nnn…  "));
  EXPECT_THAT(text, HasSubstr("WAITS FOR"));
  EXPECT_THAT(text, HasSubstr("ranks 2, 3\n"));
  EXPECT_THAT(format_top(found, 10), Not(HasSubstr("…")));
}

TEST(Top, ASwitchThatWasRestartedHasNoNegativeRates) {
  const Top found = top(Json::parse(kNow), Json::parse(kBefore));
  EXPECT_EQ(found.seconds, 0);
  EXPECT_EQ(found.jobs[0].fragments, 0);
  EXPECT_EQ(found.lanes[0].busy, 0);
}

TEST(Top, TablesHaveALineForEachAndSayWhatIsLeftOut) {
  const std::string text = format_top(sample(), 10);
  EXPECT_THAT(text,
              HasSubstr("policy esa, 77 of 512 slots in use, 11 drops/s of the aggregator\n"));
  EXPECT_THAT(text, HasSubstr("shm0  2.0 MiB/s  1.0 KiB/s        3\n"));
  EXPECT_THAT(text, HasSubstr("ranks 2, 3\n"));
  std::istringstream lines(text);
  std::string heading;
  while (std::getline(lines, heading) && !heading.starts_with("JOB")) {
  }
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(line.find("running"), heading.find("STATE")) << text;
  EXPECT_THAT(text, Not(HasSubstr("more\n")));
  const std::string cut = format_top(sample(), 1);
  EXPECT_THAT(cut, Not(HasSubstr("uid:1/slow")));
  EXPECT_THAT(cut, ::testing::EndsWith("and 1 more\n"));
  EXPECT_THAT(format_top(top(Json::object(), Json::object()), 5), HasSubstr("no job"));
}

TEST(Top, JsonHasTheSameFigures) {
  const Json json = top_json(sample());
  EXPECT_EQ(json["jobs"][0]["fragments_per_s"], 1000);
  EXPECT_EQ(json["ports"][0]["drops_per_s"], 3);
}

TEST(Top, TrafficOfOthersHasATableOfItsOwn) {
  Json before = Json::parse(kBefore);
  Json now = Json::parse(kNow);
  before["ports"].push_back({{"name", "rack1"}, {"link", "up"}, {"forwarded", 0u}});
  now["ports"].push_back({{"name", "rack1"},
                          {"link", "up"},
                          {"forwarded", 2000u},
                          {"forwarded_bytes", 2u << 20},
                          {"flooded", 20u},
                          {"bridged_sent_bytes", 4096u},
                          {"bridged_lost", 4u},
                          {"learned", 6u},
                          {"moved", 8u},
                          {"blocked", Json::object()}});
  EXPECT_THAT(format_top(top(before, now), 3), Not(HasSubstr("BRIDGED"))) << "it does not forward";
  now["bridge"] = Json::object();
  const std::string text = format_top(top(before, now), 3);
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "BRIDGED .*\nrack1 +blocked +1.0 MiB/s +10 +2.0 KiB/s +2 +4\n"));
  const Json json = top_json(top(before, now))["ports"];
  EXPECT_FALSE(json[0].contains("forwarded_per_s"));
  EXPECT_EQ(json[1]["link"], "blocked");
  EXPECT_EQ(json[1]["forwarded_per_s"], 1000);
  EXPECT_EQ(json[1]["forwarded_bytes_per_s"], 1 << 20);
  EXPECT_EQ(json[1]["flooded_per_s"], 10);
  EXPECT_EQ(json[1]["bridged_sent_bytes_per_s"], 2048);
  EXPECT_EQ(json[1]["bridged_lost_per_s"], 2);
  EXPECT_EQ(json[1]["learned_per_s"], 3);
  EXPECT_EQ(json[1]["moved_per_s"], 4);
}

TEST(Top, ForeignOrBrokenStatusIsNoCrash) {
  for (const char* text : {"{}", "[]", "null", "3", R"({"ports": 1, "lcores": [2], "jobs": [3]})"})
    EXPECT_FALSE(format_top(top(Json::parse(text), Json::parse(text)), 3).empty()) << text;
}

}  // namespace
}  // namespace ina::cli
