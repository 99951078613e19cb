// The metrics of snapshots made by hand: values, labels, and state that lasts from one to the next.
#include "control/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <sstream>

#include "switchd/reports/counter_lists.h"

namespace ina::metrics {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr Nanos kSecond = 1'000'000'000;

Json job(uint64_t id, const std::string& name, uint64_t results, uint64_t absorbed) {
  return {{"id", id},           {"name", name},         {"owner", "uid:7"},  {"state", "running"},
          {"results", results}, {"slots_held", 3},      {"missing", {4, 5}}, {"absorbed", absorbed},
          {"bypassed", 0},      {"fallback_results", 0}};
}

Json status(Json jobs) {
  return {{"version", "1.2"},
          {"boots", 3},
          {"draining", true},
          {"uptime_s", 1.5},
          {"lcores",
           {{{"lcore", 0},
             {"polls", 10},
             {"packets", 7},
             {"sleeps", 1},
             {"busy_s", 0.25},
             {"idle_s", 0.5},
             {"bursts", {1, 0, 2}},
             {"burst_packets", 7}}}},
          {"ports",
           {{{"name", "shm0"}, {"rx_bytes", 100}, {"drops", {{"crc", 2}}}},
            {{"name", "eth0"}, {"rx_bytes", 200}, {"link", "up"}, {"drops", {{"crc", 3}}}}}},
          {"aggregator",
           {{"policy", "esa"},
            {"slots", 64},
            {"slots_used", 10},
            {"results", 5},
            {"fallback_results", 6},
            {"parker_results", 7},
            {"drops", {{"crc", 1}, {"duplicate", 9}}}}},
          {"jobs", std::move(jobs)},
          {"tenants", Json::array()}};
}

class FamiliesTest : public testing::Test {
 protected:
  std::string page(const Json& snapshot, Nanos now) {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_.collect(snapshot, now));
    return out.str();
  }

  Families families_{2, switchd::counter_lists()};
};

TEST_F(FamiliesTest, CountersOfTheSwitchAndItsLanes) {
  const std::string text = page(status(Json::array()), kSecond);
  EXPECT_THAT(text, HasSubstr("ina_build_info{version=\"1.2\",policy=\"esa\"} 1"));
  EXPECT_THAT(text, HasSubstr("ina_draining 1"));
  EXPECT_THAT(text, HasSubstr("ina_lane_busy_seconds_total{lane=\"0\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("ina_slots{state=\"free\"} 54"));
  EXPECT_THAT(text, HasSubstr("ina_fragments_total{decided_by=\"worker\"} 7"));
  EXPECT_THAT(text, HasSubstr("ina_port_up{port=\"eth0\"} 1"));
  EXPECT_THAT(text, Not(HasSubstr("ina_port_up{port=\"shm0\"}")));
}

/// Sets each of the counters to a number of its own.
void count_all(Json& object, const std::vector<CounterText>& counters) {
  for (size_t i = 0; i < counters.size(); ++i) object[counters[i].name] = 1000 + i;
}

/// Expects a sample of each counter that has a metric, with the labels and the number.
void expect_all(const std::string& page, const std::vector<CounterText>& counters,
                const std::string& label) {
  size_t metrics = 0;
  for (size_t i = 0; i < counters.size(); ++i) {
    const CounterMetric& metric = counters[i].metric;
    if (metric.name.empty()) continue;
    ++metrics;
    std::string labels = label;
    if (!metric.label.empty())
      labels += (label.empty() ? "" : ",") + std::string(metric.label) + "=\"" +
                std::string(metric.value) + "\"";
    if (!labels.empty()) labels = "{" + labels + "}";
    const std::string name(metric.name);
    EXPECT_THAT(page, HasSubstr("\n" + name + labels + " " + std::to_string(1000 + i) + "\n"));
    const bool grows = counters[i].kind == CounterKind::kTotal;
    EXPECT_THAT(page, HasSubstr("# TYPE " + name + (grows ? " counter\n" : " gauge\n")));
    EXPECT_EQ(page.find("# HELP " + name + " "), page.rfind("# HELP " + name + " "));
  }
  EXPECT_GT(metrics, 4U);
}

TEST_F(FamiliesTest, CountersHaveTheMetricsOfTheirTables) {
  const CounterLists counters = switchd::counter_lists();
  Json snapshot = status({job(1, "train", 0, 0)});
  count_all(snapshot["lcores"][0], counters.lanes);
  count_all(snapshot["ports"][1], counters.ports);
  count_all(snapshot["aggregator"], counters.aggregator);
  count_all(snapshot["jobs"][0], counters.jobs);
  const std::string text = page(snapshot, kSecond);
  expect_all(text, counters.lanes, "lane=\"0\"");
  expect_all(text, counters.ports, "port=\"eth0\"");
  expect_all(text, counters.aggregator, "");
  expect_all(text, counters.jobs, "job=\"uid:7/train\"");
}

TEST_F(FamiliesTest, AJobHasAnOffloadRatioFromItsFirstContributionOn) {
  const std::string series = "ina_job_offload_ratio{job=\"uid:7/train\"} ";
  Json train = job(1, "train", 0, 0);
  EXPECT_THAT(page(status({train}), kSecond), Not(HasSubstr("ina_job_offload_ratio")));
  train["bypassed"] = 1;
  EXPECT_THAT(page(status({train}), 2 * kSecond), HasSubstr(series + "0\n"));
  train["absorbed"] = 3;
  const std::string text = page(status({train, job(2, "idle", 0, 0)}), 3 * kSecond);
  EXPECT_THAT(text, HasSubstr(series + "0.75\n"));
  EXPECT_THAT(text, Not(HasSubstr("ina_job_offload_ratio{job=\"uid:7/idle\"}")));
}

TEST_F(FamiliesTest, TrafficOfOthersAndLoops) {
  Json snapshot = status(Json::array());
  Json& port = snapshot["ports"][1];
  port.update({{"forwarded_bytes", 10},
               {"bridged_sent_bytes", 11},
               {"bridged_lost", 12},
               {"learned", 13},
               {"moved", 14}});
  std::string text = page(snapshot, kSecond);
  EXPECT_THAT(text, HasSubstr("ina_port_forwarded_bytes_total{port=\"eth0\"} 10"));
  EXPECT_THAT(text, HasSubstr("ina_port_bridged_bytes_total{port=\"eth0\"} 11"));
  EXPECT_THAT(text, HasSubstr("ina_port_bridged_lost_frames_total{port=\"eth0\"} 12"));
  EXPECT_THAT(text, HasSubstr("ina_port_learned_addresses_total{port=\"eth0\"} 13"));
  EXPECT_THAT(text, HasSubstr("ina_port_moved_addresses_total{port=\"eth0\"} 14"));
  EXPECT_THAT(text, HasSubstr("ina_port_blocked{port=\"eth0\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("ina_port_blocked{port=\"shm0\"}")));
  port["blocked"] = Json::object();
  text = page(snapshot, 2 * kSecond);
  EXPECT_THAT(text, HasSubstr("ina_port_blocked{port=\"eth0\"} 1"));
}

TEST_F(FamiliesTest, BurstsAreAHistogramUpToTheirSizes) {
  const std::string text = page(status(Json::array()), kSecond);
  EXPECT_THAT(text, HasSubstr("ina_lane_burst_packets_bucket{lane=\"0\",le=\"1\"} 1"));
  EXPECT_THAT(text, HasSubstr("ina_lane_burst_packets_bucket{lane=\"0\",le=\"2\"} 1"));
  EXPECT_THAT(text, HasSubstr("ina_lane_burst_packets_bucket{lane=\"0\",le=\"4\"} 3"));
  EXPECT_THAT(text, HasSubstr("ina_lane_burst_packets_bucket{lane=\"0\",le=\"+Inf\"} 3"));
  EXPECT_THAT(text, HasSubstr("ina_lane_burst_packets_sum{lane=\"0\"} 7"));
}

TEST_F(FamiliesTest, DropsOfPortsAndAggregatorAddUp) {
  const std::string text = page(status(Json::array()), kSecond);
  EXPECT_THAT(text, HasSubstr("ina_drops_total{reason=\"crc\"} 6"));
  EXPECT_THAT(text, HasSubstr("ina_drops_total{reason=\"duplicate\"} 9"));
  EXPECT_THAT(text, HasSubstr("ina_port_drops_total{port=\"eth0\",reason=\"crc\"} 3"));
}

TEST_F(FamiliesTest, AJobThatCompletesNothingWaits) {
  const std::string series = "ina_job_waiting_seconds{job=\"uid:7/train\"} ";
  EXPECT_THAT(page(status({job(1, "train", 5, 10)}), 10 * kSecond), HasSubstr(series + "0\n"));
  EXPECT_THAT(page(status({job(1, "train", 5, 12)}), 13 * kSecond), HasSubstr(series + "3\n"));
  EXPECT_THAT(page(status({job(1, "train", 6, 12)}), 15 * kSecond), HasSubstr(series + "0\n"));
  Json idle = job(1, "train", 6, 12);
  idle["slots_held"] = 0;  // it asks for nothing
  EXPECT_THAT(page(status({idle}), 30 * kSecond), HasSubstr(series + "0\n"));
}

TEST_F(FamiliesTest, AWorkerThatIsLateInAllSnapshotsIsAStraggler) {
  const std::string series = "ina_job_straggler_seconds{job=\"uid:7/train\"} ";
  const auto found_at = [&](Nanos second, std::vector<uint64_t> late) {
    Json train = job(1, "train", 5 + static_cast<uint64_t>(second), 10);
    if (!late.empty()) train["waiting_for"] = std::move(late);
    return page(status({std::move(train)}), second * kSecond);
  };
  EXPECT_THAT(found_at(10, {1, 2}), HasSubstr(series + "0\n"));
  EXPECT_THAT(found_at(15, {2, 3}), HasSubstr(series + "5\n"));
  EXPECT_THAT(found_at(17, {2}), HasSubstr(series + "7\n"));
  EXPECT_THAT(found_at(19, {1, 3}), HasSubstr(series + "0\n")) << "rank 2 has caught up";
  EXPECT_THAT(found_at(20, {3}), HasSubstr(series + "1\n"));
  EXPECT_THAT(found_at(21, {}), HasSubstr(series + "0\n"));
  EXPECT_THAT(found_at(22, {3}), HasSubstr(series + "0\n"));
}

TEST_F(FamiliesTest, SwitchesThatAreAwayAreCounted) {
  const std::string series = "ina_job_away_switches{job=\"uid:7/train\"} ";
  Json train = job(1, "train", 5, 10);
  EXPECT_THAT(page(status({train}), kSecond), HasSubstr(series + "0\n"));
  train["tree"] = {{"above", nullptr}, {"below", {{{"state", "away"}}, {{"state", "running"}}}}};
  EXPECT_THAT(page(status({train}), kSecond), HasSubstr(series + "1\n"));
  train["tree"]["above"] = {{"state", "away"}};
  EXPECT_THAT(page(status({train}), kSecond), HasSubstr(series + "2\n"));
}

TEST_F(FamiliesTest, AStragglerInAGroupIsOneOfItsJob) {
  const std::string series = "ina_job_straggler_seconds{job=\"uid:7/train\"} ";
  Json train = job(1, "train", 5, 10);
  Json group = job(9, "train/9", 1, 2);
  group.update({{"group_of", 1}, {"root_ranks", {4, 4095}}, {"waiting_for", {1}}});
  page(status({train, group}), kSecond);
  group.erase("waiting_for");
  train["waiting_for"] = {4095};
  EXPECT_THAT(page(status({train, group}), 3 * kSecond), HasSubstr(series + "2\n"));
  train["waiting_for"] = {1};
  EXPECT_THAT(page(status({train, group}), 4 * kSecond), HasSubstr(series + "0\n"));
}

TEST_F(FamiliesTest, AGroupCountsForItsJob) {
  Json group = job(9, "train/9", 100, 200);
  group["group_of"] = 1;
  const std::string text = page(status({job(1, "train", 5, 10), group}), kSecond);
  EXPECT_THAT(text,
              HasSubstr("ina_job_fragments_total{job=\"uid:7/train\",decided_by=\"slot\"} 105"));
  EXPECT_THAT(text, Not(HasSubstr("train/9")));
  EXPECT_THAT(text, HasSubstr("ina_jobs{state=\"running\"} 1"));
}

TEST_F(FamiliesTest, WhatOthersCountNeverShrinks) {
  const auto jobs = [](uint64_t small) {
    return Json{job(1, "a", 50, 100), job(2, "b", 40, 90), job(3, "c", 7, 20),
                job(4, "d", small, small)};
  };
  const std::string other = "ina_job_fragments_total{job=\"other\",decided_by=\"slot\"} ";
  EXPECT_THAT(page(status(jobs(3)), kSecond), HasSubstr(other + "10\n"));
  // d becomes the busiest and has a series of its own; b has none any more.
  const std::string after = page(status(jobs(500)), 2 * kSecond);
  EXPECT_THAT(after, HasSubstr("{job=\"uid:7/d\",decided_by=\"slot\"} 500"));
  EXPECT_THAT(after, HasSubstr(other + "10\n"));
  // All but the two busiest end: their counts stay.
  EXPECT_THAT(page(status({job(1, "a", 50, 100)}), 3 * kSecond), HasSubstr(other + "10\n"));
}

TEST_F(FamiliesTest, ANameOfAnyBytesIsAValidLabel) {
  const std::string text = page(status({job(1, "a\"\\\n\xff", 1, 1)}), kSecond);
  EXPECT_THAT(text, HasSubstr("ina_job_slots{job=\"uid:7/a\\\"\\\\\\\\x0a\\\\xff\"} 3"));
}

TEST_F(FamiliesTest, TenantsBeyondTheMostAreOne) {
  Json snapshot = status(Json::array());
  for (uint64_t i = 1; i <= 4; ++i)
    snapshot["tenants"].push_back({{"name", "t" + std::to_string(i)},
                                   {"jobs", i},
                                   {"memory_bytes", 100 * i},
                                   {"quota", {{"jobs_max", i == 4 ? 8 : 0}}}});
  const std::string text = page(snapshot, kSecond);
  EXPECT_THAT(text, HasSubstr("ina_tenant_jobs{tenant=\"t4\"} 4"));
  EXPECT_THAT(text, HasSubstr("ina_tenant_jobs{tenant=\"other\"} 3"));
  EXPECT_THAT(text, Not(HasSubstr("t1")));
  EXPECT_THAT(text, HasSubstr("ina_tenant_jobs_limit{tenant=\"t4\"} 8"));
  EXPECT_THAT(text, Not(HasSubstr("ina_tenant_jobs_limit{tenant=\"t3\"}")));
}

}  // namespace
}  // namespace ina::metrics
