// `inactl why`: what it says, and of which statuses it says nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/control/why_statuses.h"

namespace ina::diagnosis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WhyText, OneLookBlamesNobodyForBeingSlow) {
  const JobVerdict verdict =
      verdict_of([](size_t, Json& job, Json&) { job["waiting_for"] = {3}; }, 1);
  EXPECT_THAT(verdict.reasons,
              ::testing::Each(::testing::Field(&Reason::cause, "rank_waited_for")));
  const JobVerdict few =
      verdict_of([](size_t, Json& job, Json&) { job["waiting_for"] = {3}; }, kLooks - 1);
  EXPECT_TRUE(few.reasons.empty());
}

TEST(WhyText, WhatWaitingRanksSendAgainIsNoReasonForWaiting) {
  const Change resent = [](size_t i, Json&, Json& status) {
    status["aggregator"]["drops"] = {{"duplicate", 10 * i}};
  };
  const JobVerdict stands = verdict_of([&](size_t i, Json& job, Json& status) {
    resent(i, job, status);
    stand_still(job);
    job["waiting_for"] = {2};
  });
  ASSERT_EQ(stands.reasons.size(), 1u);
  EXPECT_EQ(stands.reasons[0].cause, "rank_waited_for");
  ASSERT_EQ(verdict_of(resent).reasons.size(), 1u);
  EXPECT_EQ(verdict_of(resent).reasons[0].cause, "drops");
}

TEST(WhyText, AnErrorSaysItOfOneMoment) {
  Json status = healthy(0);
  status["jobs"][0].update({{"waiting_for", {2}},
                            {"waiting_for_peers", {"pid 7"}},
                            {"waiting_for_processes", {"stopped"}}});
  EXPECT_EQ(why_text(Json::parse(status.dump()), 3),
            "fragment 900 (allreduce sum float32) waits for rank 2 (pid 7), and ranks 0, 1, 3 have "
            "contributed: its process is stopped, by SIGSTOP or a debugger; SIGCONT lets it go on");
  status["jobs"][0].erase("waiting_for");
  EXPECT_EQ(why_text(Json::parse(status.dump()), 3),
            "the switch holds no incomplete fragment of the job: its ranks compute, or wait for "
            "something else");
  EXPECT_EQ(why_text(Json::parse(status.dump()), 4), "the switch has no such job");
}

TEST(WhyText, ARankOfAGroupIsNamedAsThatOfTheJob) {
  const auto found = why(looks([](size_t, Json& job, Json& status) {
                           stand_still(job);
                           job.erase("waiting_for");
                           add_waiting_group(job, status);
                         }),
                         "vision/train");
  ASSERT_TRUE(found) << found.error().text;
  ASSERT_EQ(found->jobs.size(), 2u);
  EXPECT_EQ(found->jobs[1].job, "vision/train/5");
  EXPECT_THAT(found->jobs[1].reasons.front().text, HasSubstr("rank 1 (rank 3 of the job"));
}

TEST(WhyText, OffloadIsOfTheTimeBetweenTheLooksWhereThereIsEnough) {
  const JobVerdict now = verdict_of([](size_t i, Json& job, Json&) {
    job.update({{"absorbed", 4000 + 300 * i}, {"bypassed", 9000 + 100 * i}});
  });
  ASSERT_TRUE(now.offload);
  EXPECT_DOUBLE_EQ(*now.offload, 0.75);
  EXPECT_TRUE(now.recent);
  const JobVerdict all = verdict_of([](size_t, Json& job, Json&) {
    stand_still(job);
    job["bypassed"] = 1000u;
  });
  ASSERT_TRUE(all.offload);
  EXPECT_DOUBLE_EQ(*all.offload, 0.8);
  EXPECT_FALSE(all.recent);
}

TEST(WhyText, AJobThatIsNotThereIsRefusedWithWhatThereIs) {
  const auto found = why(looks([](size_t, Json&, Json& status) {
                           status["draining"] = true;
                           status["tenants"][0]["quota"]["jobs_max"] = 1u;
                         }),
                         "tune");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().status, INA_ERR_REFUSED);
  for (const char* text :
       {"no job 'tune'", "there is vision/train", "drained", "quota of vision is used up"})
    EXPECT_THAT(found.error().text, HasSubstr(text));
}

TEST(WhyText, SaysItForPeopleAndPrograms) {
  const auto found = why(looks([](size_t, Json& job, Json&) {
                           stand_still(job);
                           job["waiting_for"] = {2};
                         }),
                         "");
  ASSERT_TRUE(found);
  const std::string text = format_verdict(*found);
  EXPECT_THAT(text, ::testing::StartsWith("job vision/train (id 3): running, does not advance, "
                                          "100.0 % of its contributions have so far been added in "
                                          "slots\n  - for 0.6 s at least"));
  const Json json = verdict_json(*found);
  EXPECT_GT(json["seconds"], 0.0);
  EXPECT_EQ(json["jobs"][0]["advances"], false);
  EXPECT_EQ(json["jobs"][0]["reasons"][0]["cause"], "rank_waited_for");
  EXPECT_EQ(json["jobs"][0]["reasons"][0]["ranks"], Json::array({2}));
  EXPECT_EQ(json["jobs"][0]["reasons"][0]["peers"], Json::array({"pid 103"}));
  const auto healthy_one = why(looks([](size_t, Json&, Json&) {}), "train");
  EXPECT_THAT(
      format_verdict(*healthy_one),
      HasSubstr("running, 700 fragments in 0.6 s, 100.0 % of its contributions were added in "
                "slots\n  nothing is wrong that the switch could see\n"));
}

TEST(WhyText, ABlockedPortConcernsAllAlsoWhereThereIsNoJob) {
  const auto blocked = [](size_t, Json&, Json& status) {
    status["ports"][0]["blocked"] = {{"text", "rack1 is blocked"}, {"for_s", 12.4}};
  };
  auto found = why(looks(blocked), "train");
  ASSERT_TRUE(found);
  EXPECT_THAT(format_verdict(*found),
              ::testing::StartsWith("switch:\n  - rack1 is blocked, for 12 s so far\n\njob "));
  EXPECT_EQ(verdict_json(*found)["switch"][0]["cause"], "port_blocked");
  EXPECT_TRUE(verdict_json(*found)["jobs"][0]["reasons"].empty());
  found = why(looks([&](size_t i, Json& job, Json& status) {
                blocked(i, job, status);
                status["jobs"] = Json::array();
              }),
              "");
  ASSERT_TRUE(found);
  EXPECT_EQ(format_verdict(*found),
            "switch:\n  - rack1 is blocked, for 12 s so far\nno job: no worker has joined\n");
  EXPECT_EQ(verdict_json(*why(looks([](size_t, Json&, Json&) {}), ""))["switch"], Json::array());
}

TEST(WhyText, ForeignOrBrokenStatusIsNoCrash) {
  for (const char* text : {"{}", "[]", "null", "3", R"({"jobs": [1, {"state": 5, "unheard": 3}]})",
                           R"({"jobs": [{"state": "running", "waiting_for": "x", "results": -1,
                               "unheard": [1]}], "lcores": 3, "ports": [1], "tenants": {}})"}) {
    const std::vector<Json> odd(kLooks, Json::parse(text));
    EXPECT_TRUE(why(odd, "")) << text;
    EXPECT_FALSE(format_verdict(*why(odd, "")).empty());
    EXPECT_FALSE(why(odd, "train")) << text;
  }
  EXPECT_FALSE(why({}, ""));
}

TEST(WhyText, NamesCannotDriveTheTerminal) {
  const auto found = why(looks([](size_t, Json& job, Json&) {
                           job["name"] = "a\x1b[2Jb";
                           job["unheard"] = {{{"rank", 1u}, {"reason", "x"}, {"text", "\x1b[2J"}}};
                           stand_still(job);
                         }),
                         "");
  ASSERT_TRUE(found);
  EXPECT_THAT(format_verdict(*found), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace ina::diagnosis
