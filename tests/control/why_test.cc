// `inactl why`: from statuses to causes, each of which has a table row, with the ranks that it
// names and those that it must not.
#include "control/diagnosis/why.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/control/why_statuses.h"

namespace ina::diagnosis {
namespace {

using ::testing::HasSubstr;

struct Row {
  const char* name;
  Change change;
  const char* cause;  ///< the first; nullptr: none
  std::vector<uint64_t> ranks;
  std::vector<const char*> texts;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.name;
}

class Why : public ::testing::TestWithParam<Row> {};

TEST_P(Why, NamesTheCauseAndItsRanksAlone) {
  const Row& row = GetParam();
  const JobVerdict verdict = verdict_of(row.change);
  if (row.cause == nullptr) {
    EXPECT_TRUE(verdict.reasons.empty()) << verdict.reasons.front().text;
    return;
  }
  ASSERT_FALSE(verdict.reasons.empty());
  const Reason& reason = verdict.reasons.front();
  EXPECT_EQ(reason.cause, row.cause) << reason.text;
  EXPECT_EQ(reason.ranks, row.ranks) << reason.text;
  for (const char* text : row.texts) EXPECT_THAT(reason.text, HasSubstr(text));
}

const Row kRows[] = {
    {"Healthy", [](size_t, Json&, Json&) {}, nullptr, {}, {}},
    {"RanksThatHaveNotJoined",
     [](size_t, Json& job, Json&) {
       job.erase("waiting_for");
       job.update({{"state", "joining"}, {"joined", {0, 1}}, {"missing", {2, 3}}});
     },
     "ranks_missing",
     {2, 3},
     {"ranks 2, 3 of 4 have not joined"}},
    {"AReservationThatEnds",
     [](size_t, Json& job, Json&) {
       job.erase("waiting_for");
       job.update({{"state", "joining"}, {"missing", {3}}, {"reserved_s", 90u}});
     },
     "ranks_missing",
     {3},
     {"rank 3 of 4 has not joined", "waits 90 s more"}},
    {"ASwitchThatWasRestarted",
     [](size_t, Json& job, Json&) {
       job.update({{"state", "rejoining"}, {"missing", {1}}});
     },
     "ranks_missing",
     {1},
     {"the switch was restarted, and rank 1 has not come back"}},
    {"AJobThatLeaves",
     [](size_t, Json& job, Json&) { job["state"] = "leaving"; },
     "leaving",
     {},
     {"some ranks have called ina_finalize"}},
    {"AJobThatSomeHaveNotLeft",
     [](size_t, Json& job, Json&) {
       job.erase("waiting_for");
       job.update({{"state", "leaving"}, {"left", {0, 1, 3}}, {"peers", {"", "", "pid 7", ""}}});
     },
     "leaving",
     {2},
     {"ranks 0, 1, 3 have called ina_finalize, and the job ends when all have: rank 2 (pid 7) has "
      "not"}},
    {"AJobThatAStoppedProcessHasNotLeft",
     [](size_t, Json& job, Json&) {
       job.erase("waiting_for");
       job.update({{"state", "leaving"}, {"left", {0, 1, 3}}, {"stopped", {2}}});
     },
     "process_stopped",
     {2},
     {"the process of rank 2 is stopped"}},
    {"AGroupThatARankHasNotReached",
     [](size_t, Json& job, Json& status) {
       add_waiting_group(job, status);
       Json& group = status["jobs"].back();
       group.update({{"name", "train"},
                     {"state", "joining"},
                     {"missing", {1u}},
                     {"peers", {"pid 1", "pid 4"}}});
       status["jobs"] = Json::array({group});
     },
     "ranks_missing",
     {1},
     {"rank 1 (rank 3 of the job, pid 4) of 2 has not joined: its process has called ina_split"}},
    {"ARankThatLeftWhileOthersWaitForIt",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"state", "leaving"}, {"left", {1}}, {"waiting_for", {1}}});
     },
     "left_early",
     {1},
     {"has waited for rank 1 (pid 103), which has called ina_finalize"}},
    {"AFallbackThatHasNotJoined",
     [](size_t, Json& job, Json&) {
       job.update({{"state", "joining"}, {"fallback_missing", true}});
     },
     "fallback_missing",
     {},
     {"ina-psd"}},
    {"AFallbackThatIsGone",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job["fallback_missing"] = true;
     },
     "fallback_missing",
     {},
     {"ina-psd"}},
    {"AStoppedRank",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}}, {"waiting_for_peers", {"pid 4711"}}});
     },
     "rank_waited_for",
     {2},
     {"for 0.6 s at least, fragment 900 (allreduce sum float32) has waited for rank 2 (pid 4711)",
      "ranks 0, 1, 3 have contributed"}},
    {"ARankThatTheFallbackAnswersAgain",
     [](size_t look, Json& job, Json&) {
       stand_still(job);
       job["waiting_for"] = {2};
       job["fallback_results"] = 100 + 20 * look;
     },
     "rank_waited_for",
     {2},
     {"has waited for rank 2"}},
    {"AStoppedProcess",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}},
                   {"waiting_for_peers", {"pid 4711"}},
                   {"waiting_for_processes", {"stopped"}}});
     },
     "process_stopped",
     {2},
     {"rank 2 (pid 4711)", "its process is stopped"}},
    {"AFrozenProcess",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}},
                   {"waiting_for_peers", {"pid 4711"}},
                   {"waiting_for_processes", {"frozen"}},
                   {"frozen", {1}},
                   {"frozen_peers", {"pid 4712"}}});
     },
     "process_frozen",
     {1, 2},
     {"rank 2 (pid 4711)", "its process is frozen, and so is that of rank 1 (pid 4712)",
      "by its control group; `systemctl thaw UNIT`"}},
    {"AFrozenProcessBesideOneThatIsLate",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}},
                   {"waiting_for_processes", {"runs"}},
                   {"frozen", {0}},
                   {"frozen_peers", {"pid 4712"}}});
     },
     "process_frozen",
     {0},
     {"the process of rank 0 (pid 4712) is frozen by its control group"}},
    {"AProcessThatWaitsForADisk",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}}, {"waiting_for_processes", {"blocked"}}});
     },
     "process_blocked",
     {2},
     {"its process waits within the kernel (state D)"}},
    {"ASecondStoppedProcessThatHasContributed",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}},
                   {"waiting_for_peers", {"pid 4711"}},
                   {"waiting_for_processes", {"stopped"}},
                   {"stopped", {1}},
                   {"stopped_peers", {"pid 4712"}}});
     },
     "process_stopped",
     {1, 2},
     {"rank 2 (pid 4711)",
      "its process is stopped, and so is that of rank 1 (pid 4712), which has "
      "contributed, by SIGSTOP"}},
    {"AStoppedProcessBesideOneThatIsLate",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}},
                   {"waiting_for_processes", {"runs"}},
                   {"stopped", {0, 1}},
                   {"stopped_peers", {"pid 4712", "pid 4713"}}});
     },
     "process_stopped",
     {0, 1},
     {"the processes of ranks 0 (pid 4712), 1 (pid 4713) are stopped, by SIGSTOP"}},
    {"ALinkThatIsDown",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {2}},
                   {"waiting_for_peers", {"pid 4711"}},
                   {"waiting_for_processes", {"runs"}},
                   {"waiting_for_dead_links", {"port2"}}});
     },
     "link_down",
     {2},
     {"the link of port port2 is down"}},
    {"OfTwoRanksTheOneThatIsStopped",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {1, 2}},
                   {"waiting_for_peers", {"pid 1", "pid 2"}},
                   {"waiting_for_processes", {"runs", "stopped"}}});
     },
     "process_stopped",
     {2},
     {"ranks 0, 3 have contributed"}},
    {"ARankThatWaitsInAGroup",
     [](size_t, Json& job, Json& status) {
       stand_still(job);
       job["waiting_for"] = {1};
       add_waiting_group(job, status);
     },
     "waits_elsewhere",
     {},
     {"it waits itself in vision/train/5"}},
    {"ARankThatCameAlone",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"waiting_for", {0, 1, 3}}});
     },
     "rank_waited_for",
     {0, 1, 3},
     {"rank 2 has contributed", "they have not called"}},
    {"FramesThatAreDropped",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job["unheard"] = {{{"rank", 1u}, {"reason", "bad_tag"}, {"text", "the switch dropped 9"}}};
     },
     "frames_dropped",
     {1},
     {"the switch dropped 9"}},
    {"ARankThatIsWaitedForAndNotHeard",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job["waiting_for"] = {1};
       job["unheard"] = {{{"rank", 1u}, {"text", "no frame of rank 1"}},
                         {{"rank", 2u}, {"text", "no frame of rank 2"}}};
     },
     "rank_not_heard",
     {1},
     {"no frame of rank 1"}},
    {"RanksThatHaveHadNothingToSay",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.erase("waiting_for");
       job["unheard"] = {{{"rank", 2u}, {"text", "no frame of rank 2"}}};
     },
     "idle",
     {},
     {"no frame of rank 2"}},
    {"FramesThatWereDroppedOnce",
     [](size_t, Json& job, Json&) {
       job["unheard"] = {{{"rank", 1u}, {"reason", "bad_tag"}, {"text", "the switch dropped 9"}}};
     },
     nullptr,
     {},
     {}},
    {"ASplitThatSomeDidNotCall",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job["splitting"] = {0, 1, 2};
       job.erase("waiting_for");
     },
     "split_missing",
     {3},
     {"ranks 0, 1, 2 have called ina_split, and rank 3 has not"}},
    {"AGroupThatAMemberDidNotAskFor",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"creating", {0, 2}}, {"creating_lacks", {3}}});
       job.erase("waiting_for");
     },
     "group_missing",
     {3},
     {"ranks 0, 2 have called ina_create_group, and rank 3 has not"}},
    {"AResultBufferForWhichSomeDidNotAsk",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.update({{"sharing", {0, 1, 3}}, {"peers", {"", "", "10.0.0.3:4711", ""}}});
       job.erase("waiting_for");
     },
     "result_buffer_missing",
     {2},
     {"ranks 0, 1, 3 have called ina_alloc_result, and rank 2 (10.0.0.3:4711) has not"}},
    {"AJobThatComputes",
     [](size_t, Json& job, Json&) {
       stand_still(job);
       job.erase("waiting_for");
     },
     "idle",
     {},
     {"holds no incomplete fragment", "0.6 s"}},
    {"AStraggler",
     [](size_t, Json& job, Json&) { job["waiting_for"] = {3}; },
     "straggler",
     {3},
     {"each of 8 looks found it waiting for rank 3", "straggler.help"}},
    {"AStragglerOnTheSwitchsHost",
     [](size_t, Json& job, Json& status) {
       job.update({{"waiting_for", {3}}, {"peers", {"pid 1", "pid 2", "10.0.0.3:9", "pid 4711"}}});
       status["host"] = "node7";
     },
     "straggler",
     {3},
     {"waiting for rank 3 (pid 4711 on node7), slower"}},
    {"AStragglerOnAnotherHost",
     [](size_t, Json& job, Json& status) {
       job.update({{"waiting_for", {2}}, {"peers", {"pid 1", "pid 2", "10.0.0.3:9", "pid 4711"}}});
       status["host"] = "node7";
     },
     "straggler",
     {2},
     {"waiting for rank 2 (10.0.0.3:9), slower"}},
    {"AStragglerAmongOthers",
     [](size_t i, Json& job, Json&) {
       job["waiting_for"] = {i % 3, 3u};
     },
     "straggler",
     {3},
     {}},
    {"AStragglerOfWhomHelpIsOn",
     [](size_t, Json& job, Json&) {
       job.update({{"waiting_for", {3}}, {"in_switch", 64u}});
     },
     "straggler",
     {3},
     {"waiting for rank 3"}},
    {"AWindowThatIsFull",
     [](size_t, Json& job, Json&) {
       job.erase("slots_ceiling");
       job.update({{"window", 64u}, {"slots_held", 60u}});
     },
     "window_full",
     {},
     {"window of 64 fragments", "static.slots_per_job"}},
    {"ACeilingThatIsReached",
     [](size_t i, Json& job, Json&) {
       job.update({{"slots_ceiling", 64u}, {"slots_held_peak", 64u}, {"bypassed", 400 * i}});
     },
     "slots_ceiling",
     {},
     {"held 64 slots at once, and may hold 64", "512 fragments"}},
    {"AQuota",
     [](size_t i, Json& job, Json& status) {
       job.update({{"slots_ceiling", 64u}, {"slots_held_peak", 64u}, {"bypassed", 400 * i}});
       status["tenants"][0]["quota"]["slots_ceiling"] = 128u;
     },
     "quota",
     {},
     {"tenants.slots_ceiling: 128"}},
    {"Preemptions",
     [](size_t i, Json& job, Json&) {
       job.update({{"preempted", 100 * i}, {"bypassed", 400 * i}, {"priority_max", 9u}});
     },
     "preempted",
     {},
     {"took 700 of its slots", "at most 9"}},
    {"AnArrayThatIsFull",
     [](size_t i, Json& job, Json& status) {
       job["bypassed"] = 400 * i;
       status["aggregator"]["slots_used"] = 500u;
       status["jobs"].push_back(
           {{"name", "big"}, {"owner", "audio"}, {"id", 4u}, {"slots_held", 450u}});
     },
     "array_full",
     {},
     {"500 of 512 slots are in use, 50 by this job, 450 by audio/big"}},
    {"Collisions",
     [](size_t i, Json& job, Json&) { job["bypassed"] = 400 * i; },
     "collisions",
     {},
     {"window is 512 fragments, the array has 512 slots"}},
    {"Drops",
     [](size_t i, Json&, Json& status) { status["ports"][0]["drops"]["crc"] = 7 + i; },
     "drops",
     {},
     {"7 packets, of any job, were dropped at port rack1 meanwhile: crc: CRC32C"}},
    {"DropsOfTheAggregator",
     [](size_t i, Json&, Json& status) {
       status["aggregator"]["drops"]["outside_window"] = 10 * i;
     },
     "drops",
     {},
     {"by the aggregator", "outside_window"}},
    {"ABusyLoop",
     [](size_t i, Json&, Json& status) {
       status["lcores"][0]["busy_s"] = kInterval * static_cast<double>(i);
     },
     "lane_busy",
     {},
     {"packet loop 0 was busy 100 %"}},
};

INSTANTIATE_TEST_SUITE_P(, Why, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ina::diagnosis
