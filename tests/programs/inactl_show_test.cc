// The output of `inactl job show`, `port show`, `aggregator --heat` and `trace`.
#include "programs/inactl/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "common/text_table.h"
#include "programs/inactl/heat.h"
#include "programs/inactl/trace_format.h"

namespace ina::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Json status() {
  return Json::parse(R"({
    "aggregator": {"policy": "esa", "slots": 8, "preemptions": 12, "bypassed": 1300},
    "ports": [
      {"name": "shm0", "type": "shm", "rx_packets": 1234, "rx_bytes": 2048, "tx_packets": 5,
       "tx_bytes": 0, "drops": {}},
      {"name": "uplink", "type": "ethdev", "rx_packets": 7, "rx_bytes": 1, "tx_packets": 0,
       "tx_bytes": 0, "link": "down", "forwarded": 3, "flooded": 4, "bridged_sent": 5,
       "bridged_sent_bytes": 1024, "bridged_lost": 6, "delivered": 8, "answered": 9,
       "handed_over": 10, "tx_handed_over": 11, "drops": {"crc": 2, "vlan": 0}}],
    "jobs": [
      {"name": "train", "owner": "uid:1000", "id": 7, "epoch": 3, "world_size": 4,
       "joined": [0, 1, 2], "missing": [3], "state": "running", "window": 512,
       "slots_floor": 16, "slots_ceiling": 64, "slots_held": 20, "memory_bytes": 1048576,
       "priority_max": 255, "absorbed": 9900, "bypassed": 100, "preempted": 12, "results": 2000,
       "fallback_results": 30, "parked": 5, "parked_now": 1, "parked_now_peak": 2,
       "parker_results": 4, "waiting_for": [3], "oldest_fragment": 17,
       "oldest_operation": "operation 7: allreduce of 1000 float32 sum",
       "unheard": [{"rank": 3, "dropped": 9, "text": "frames of rank 3 are dropped"}]},
      {"name": "train", "owner": "vision", "id": 8, "world_size": 1, "joined": [0], "missing": [],
       "state": "joining"},
      {"name": "rest", "owner": "vision", "id": 9, "world_size": 2, "joined": [], "missing": [0, 1],
       "state": "joining", "reserved_s": 60, "bypassed": 1200}]})");
}

TEST(ShowJob, IsFoundByNameOrWithItsOwnerAndNamesTheOthers) {
  EXPECT_EQ(find_job(status(), "rest")->at("id"), 9);
  EXPECT_EQ(find_job(status(), "vision/train")->at("id"), 8);
  EXPECT_EQ(find_job(status(), "train").error().text,
            "2 jobs are named 'train': say which is meant, uid:1000/train or vision/train");
  EXPECT_EQ(find_job(status(), "other").error().text,
            "there is no job 'other'; there are uid:1000/train, vision/train, vision/rest");
  EXPECT_EQ(find_job(Json::object(), "x").error().text, "there is no job 'x'; there is no job");
}

TEST(ShowJob, SaysAllThatIsKnown) {
  const std::string text = format_job(*find_job(status(), "uid:1000/train"));
  EXPECT_THAT(text, StartsWith("job uid:1000/train (id 7)\n  state          running, epoch 3\n"));
  for (const char* part :
       {"fragment 17 waits for rank 3 (operation 7: allreduce of 1000 float32 sum)",
        "ranks joined   0, 1, 2 of 4\n", "ranks missing  3 of 4\n",
        "window         512 fragments\n", "slots          20 of 16..64, 1 parked\n",
        "memory         1.0 MiB\n", "10,000, 9,900 of them in slots (99.0 %), 100 found no slot\n",
        "preempted      12 slots\n",
        "2,000 completed in slots, 30 by the fallback, 4 by workers that kept a parked sum\n",
        "parked         1 now, 2 at most, 5 in all\n",
        "dropped frames frames of rank 3 are dropped\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const std::string reserved = format_job(*find_job(status(), "rest"));
  EXPECT_THAT(reserved, HasSubstr("ranks joined   none of 2\n"));
  EXPECT_THAT(reserved, HasSubstr("reserved       for its workers, for another 60 s\n"));
  // A switch of another version: nothing is assumed.
  EXPECT_THAT(format_job(Json::object()), StartsWith("job ? (id 0)\n"));
}

TEST(ShowPort, SaysTrafficAndDropsWithTheirMeaning) {
  const auto all = find_ports(status(), "");
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(format_port(all->at(0)),
            "port shm0\n  type           shm\n  received       1,234 packets, 2.0 KiB of payload\n"
            "  sent           5 packets, 0 B of payload\n  drops          none\n");
  const std::string uplink = format_port(find_ports(status(), "uplink")->at(0));
  EXPECT_THAT(uplink, HasSubstr("  link           down\n"));
  EXPECT_THAT(uplink, HasSubstr("3 frames forwarded, 4 flooded, from here\n"));
  EXPECT_THAT(uplink, HasSubstr("  drops:\n  crc            2 packets: CRC32C over header"));
  EXPECT_THAT(uplink, Not(HasSubstr("vlan")));
  EXPECT_EQ(find_ports(status(), "eth9").error().text,
            "there is no port 'eth9'; there are shm0, uplink");
}

Json slots() {
  // As it comes from a switch: numbers have no sign.
  const Json sent = {{"slots", 16},
                     {"lanes", 2},
                     {"cells", 8},
                     {"slots_per_cell", 2},
                     {"columns", {"cell", "state", "job", "age_us", "contributions"}},
                     {"used",
                      {{0, "filling", 7, 500, 1},
                       {1, "filling", 7, 2'000'000, 2},
                       {3, "frozen", 9, 5'000, 1},
                       {6, "filling", nullptr, 50'000, 1}}}};
  return Json::parse(sent.dump());
}

TEST(Heat, CountsCellsByJobAndState) {
  const Heat found = heat(slots(), status());
  EXPECT_EQ(found.cells.size(), 8u);
  EXPECT_EQ(found.used, 4u);
  EXPECT_EQ(found.preemptions, 12u);
  EXPECT_EQ(found.collisions, 1300u);
  ASSERT_EQ(found.jobs.size(), 4u);
  EXPECT_EQ(found.jobs[0].name, "uid:1000/train");
  EXPECT_EQ(found.jobs[0].cells, 2u);
  EXPECT_EQ(found.jobs[0].oldest_us, 2'000'000u);
  EXPECT_EQ(found.jobs[0].preempted, 12u);
  EXPECT_EQ(found.states[0].name, "empty");
  EXPECT_EQ(found.states[0].cells, 4u);
  const Json json = heat_json(found);
  EXPECT_EQ(json["states"], (Json{{"empty", 4}, {"filling", 3}, {"frozen", 1}}));
  EXPECT_EQ(json["used"].size(), 4u);
  EXPECT_EQ(json["used"][2], (Json{{"cell", 3}, {"state", "frozen"}, {"id", 9}, {"age_us", 5000}}));
}

TEST(Heat, MapHasACharacterForEachCell) {
  const Heat found = heat(slots(), status());
  const std::string by_state = format_heat(found, true, HeatBy::kState, 3, false);
  EXPECT_THAT(by_state, HasSubstr("lane 0:\nff.\nz\n\nlane 1:\n..f\n.\n"));
  EXPECT_THAT(by_state, HasSubstr(". empty  f filling  z frozen\n"));
  EXPECT_THAT(by_state, HasSubstr("16 slots in 2 lanes, policy esa: 50.0 % hold something\n"
                                  "looked at one of 2\n"
                                  "12 slots taken over, 1,300 contributions found no slot\n"));
  EXPECT_THAT(format_heat(found, true, HeatBy::kAge, 4, false),
              HasSubstr("lane 0:\n░█.▒\n\nlane 1:\n..▓.\n"));
  const std::string by_job = format_heat(found, true, HeatBy::kJob, 4, false);
  EXPECT_THAT(by_job, HasSubstr("lane 0:\nAA."));
  EXPECT_THAT(by_job, HasSubstr("  A uid:1000/train"));
  EXPECT_THAT(format_heat(found, true, HeatBy::kState, 4, true),
              HasSubstr("\x1b[38;5;33mf\x1b[0m"));
  const std::string tables = format_heat(found, false, HeatBy::kAge, 4, false);
  EXPECT_THAT(tables, Not(HasSubstr("lane 0")));
  EXPECT_THAT(tables,
              HasSubstr("uid:1000/train      4  25.0 %    2.0 s         12      100    99.0 %"));
}

TEST(Heat, ResultsThatAreKeptDoNotWait) {
  Json kept = slots();
  kept["used"] = {{0, "complete", 7, 9'000'000, 3},
                  {1, "answered", 7, 9'000'000, 3},
                  {2, "filling", 7, 5'000, 1},
                  {3, "frozen", 9, 2'000'000, 1}};
  const Heat found = heat(Json::parse(kept.dump()), status());
  EXPECT_THAT(format_heat(found, true, HeatBy::kAge, 4, false), HasSubstr("lane 0:\n--▒█\n"));
  EXPECT_EQ(found.jobs[0].name, "uid:1000/train");
  EXPECT_EQ(found.jobs[0].oldest_us, 5'000u) << "of what waits";
  kept["used"] = {{0, "complete", 7, 9'000'000, 3}};
  EXPECT_EQ(heat(Json::parse(kept.dump()), status()).jobs[0].oldest_us, 0u);
}

TEST(Heat, FitsATerminal) {
  Json long_name = status();
  long_name["jobs"][0]["name"] = std::string(90, 'n');
  for (const HeatBy by : {HeatBy::kAge, HeatBy::kJob, HeatBy::kState}) {
    std::istringstream lines(format_heat(heat(slots(), long_name), true, by, 80, false, 80));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 80u) << line;
  }
}

TEST(Heat, OfASwitchOfAnotherVersionIsEmpty) {
  EXPECT_TRUE(heat(Json::object(), Json::object()).cells.empty());
  Json odd = slots();
  odd["used"] = {{99, "filling", 7, 1, 1}, {"x", 1}, 4, {1, 2, 3, 4, 5}};
  EXPECT_EQ(heat(odd, status()).used, 0u);
  EXPECT_NE(format_heat(heat(odd, status()), true, HeatBy::kAge, 0, false), "");
}

TEST(Trace, HasALineForEachPacketAndOneForEachOperation) {
  const Json trace = Json::parse(R"({"job": "uid:0/train", "id": 1, "packets": [
      {"at_us": 1.5, "lane": 0, "port": "shm0", "rank": 2, "type": "GRAD", "seq": 40,
       "operation": 7, "operation_text": "operation 7: barrier", "bitmap": [2], "priority": 3,
       "verdict": "absorbed", "reason": null, "slot": 12, "slot_state": "filling",
       "held": [0, 2, 63], "sent": []},
      {"at_us": 2, "lane": 1, "port": "shm0", "rank": null, "type": "QUERY", "seq": 41,
       "operation": null, "operation_text": null, "bitmap": [], "priority": 0,
       "verdict": "dropped", "reason": "too_old", "slot": null, "slot_state": null,
       "held": [], "sent": [{"type": "RESULT", "to": "all"}]}]})");
  const std::string text = format_trace(trace);
  EXPECT_THAT(text, StartsWith("job uid:0/train (id 1)\n\nAT US  LANE  PORT"));
  EXPECT_THAT(text, HasSubstr("1.5     0  shm0         2  GRAD    40          7     0x4         3  "
                              "absorbed            12  filling  0x8000000000000005\n"));
  EXPECT_THAT(text,
              HasSubstr("dropped: too_old     -  -                         -  RESULT to all\n"));
  EXPECT_THAT(text, HasSubstr("fallback"));
  EXPECT_THAT(text, testing::EndsWith("\n\noperation 7: barrier\n"));
  EXPECT_EQ(format_trace(Json::object()), "job ? (id 0)\n");
}

}  // namespace
}  // namespace ina::cli
