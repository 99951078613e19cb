// The jobs that a switch restores, and the reasons against the others. No lane runs.
#include "switchd/jobs/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/captured_log.h"
#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint32_t kLanes = 2;
constexpr Nanos kSecondNs = 1'000'000'000;
const Moment kNow{.monotonic = 50 * kSecondNs, .utc_s = 1'700'000'000};

class RestoreTest : public testing::Test {
 protected:
  RestoreTest() {
    config_.aggregator.slots = 256;
    config_.aggregator.slot_bytes = 1024;
    config_.static_pools.slots_per_job = 64;
    config_.control.rejoin_timeout_ns = 20 * kSecondNs;
    config_.aggregator.policy.kind = scheduler::PolicyKind::kStatic;
  }
  /// As a switch with this configuration has granted it.
  static SavedJob sample(uint32_t id, uint32_t root = 0) {
    SavedJob saved;
    saved.name = root == 0 ? "train" + std::to_string(id) : "group" + std::to_string(id);
    saved.id = id;
    saved.key = 7;
    saved.uid = 1000;
    saved.workers = 2;
    saved.epoch = 1;
    saved.lanes = kLanes;
    saved.slot_bytes = 1024;
    saved.window = 32;
    saved.slots_per_lane = 32;
    saved.first_slot = 32 * (id - 1);
    saved.root = root;
    if (root != 0) saved.root_ranks = {1, 0};
    return saved;
  }
  /// Names of the jobs that are there after a start with `saved`, in their order.
  std::vector<std::string> restore(std::vector<SavedJob> saved) {
    auto state = StateFile::open(folder_ / "state");
    if (!state) return {state.error().text};
    if (auto put = state->replace(std::move(saved)); !put) return {put.error().text};
    resources_.emplace(config_, rules_);
    lost_ = Restore(config_, rules_, *state, *resources_, jobs_).run(kNow);
    std::vector<std::string> names;
    for (const Job& job : jobs_) names.push_back(job.name);
    kept_ = state->jobs();
    return names;
  }
  test::TempDir folder_;
  ConductorConfig config_;
  JobRules rules_{config_, kLanes};
  test::CapturedLog log_;
  std::optional<Resources> resources_;
  JobTable jobs_{8};
  std::vector<SavedJob> kept_;
  std::vector<LostJob> lost_;
};

TEST_F(RestoreTest, AJobThatRanWaitsForItsWorkers) {
  EXPECT_THAT(restore({sample(1)}), ElementsAre("train1"));
  const Job& job = *jobs_.find(JobId{1});
  EXPECT_EQ(job.state, Job::State::kRejoining);
  EXPECT_EQ(job.rejoin_deadline, kNow.monotonic + config_.control.rejoin_timeout_ns);
  EXPECT_EQ(job.reserved_until, 0);
  EXPECT_EQ(job.grant.window, 32u);
  EXPECT_GT(job.epoch, 1u) << "what the switch before sent must not be taken for this one's";
  EXPECT_THAT(kept_, ElementsAre(saved_of(job, kNow))) << "the epoch is on disk before it is used";
}

TEST_F(RestoreTest, AJobThatIsReservedWaitsForTheRestOfItsTime) {
  SavedJob reserved = sample(1);
  reserved.reserved_until = kNow.utc_s + 60;
  reserved.ticket = "0123";
  EXPECT_THAT(restore({reserved}), ElementsAre("train1"));
  const Job& job = *jobs_.find(JobId{1});
  EXPECT_EQ(job.state, Job::State::kJoining);
  EXPECT_EQ(job.reserved_until, kNow.monotonic + 60 * kSecondNs);
  EXPECT_EQ(job.ticket, "0123");
}

TEST_F(RestoreTest, JobsComeBeforeTheirGroups) {
  EXPECT_THAT(restore({sample(2, 1), sample(1)}), ElementsAre("train1", "group2"));
  EXPECT_THAT(log_.text(), Not(HasSubstr("not restored")));
}

TEST_F(RestoreTest, AGroupOfNoJobIsDropped) {
  SavedJob stray = sample(3, 1);
  stray.root_ranks = {1, 2};  // the job has two workers
  EXPECT_THAT(restore({sample(1), sample(2, 9), stray}), ElementsAre("train1"));
  EXPECT_THAT(log_.text(), HasSubstr("group2"));
  EXPECT_THAT(log_.text(), HasSubstr("group3"));
  EXPECT_THAT(log_.text(), HasSubstr("it is a group of a job that does not come back"));
  EXPECT_EQ(kept_.size(), 1u) << "it is not looked at again";
  ASSERT_EQ(lost_.size(), 2u);
  EXPECT_EQ(lost_.front().id, JobId{2});
}

TEST_F(RestoreTest, WhatASwitchWithOtherLanesOrSlotsGrantedIsDropped) {
  SavedJob lanes = sample(1);
  lanes.lanes = 4;
  SavedJob slots = sample(2);
  slots.slot_bytes = 2048;
  SavedJob window = sample(3);
  window.window = 31;
  SavedJob policy = sample(4);
  policy.slots_per_lane = 8;
  EXPECT_THAT(restore({lanes, slots, window, policy}), IsEmpty());
  EXPECT_THAT(log_.text(), HasSubstr("it ran with switch.lcores 4 and aggregator.slot_bytes 1024"));
  EXPECT_THAT(log_.text(), HasSubstr("it ran with switch.lcores 2 and aggregator.slot_bytes 2048"));
  EXPECT_THAT(log_.text(), HasSubstr("its window of 31 fragments is none that a switch with 2 "
                                     "lanes grants"));
  EXPECT_THAT(log_.text(), HasSubstr("its pool of 16 slots is none for its window of 32 "));
}

/// The job keeps the window that its workers know.
TEST_F(RestoreTest, JobsOfSharedSlotsGetPools) {
  SavedJob shared = sample(1);
  shared.first_slot = shared.slots_per_lane = 0;
  shared.ceiling_per_lane = 128;
  shared.priority_max = 9;
  SavedJob large = shared;
  large.id = 2;
  large.name = "large";
  large.window = 256;
  SavedJob group = shared;
  group.id = 3;
  group.root = 1;
  group.root_ranks = {1, 0};
  config_.static_pools.slots_per_job = 8;
  EXPECT_THAT(restore({shared, large, group}), ElementsAre("train1", "train1"));
  const Job& job = *jobs_.find(JobId{1});
  EXPECT_EQ(job.grant.window, 32u);
  EXPECT_EQ(job.grant.slots_per_lane, 32u);
  EXPECT_EQ(job.grant.priority_max, 9);
  EXPECT_EQ(jobs_.find(JobId{3})->grant.slots_per_lane, 32u);
  EXPECT_THAT(log_.text(), HasSubstr("job=\"large\""));
}

TEST_F(RestoreTest, JobsOfPoolsShareSlots) {
  config_.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  config_.jobs.slots_ceiling = 100;
  EXPECT_THAT(restore({sample(1), sample(2)}), ElementsAre("train1", "train2"));
  const Job& job = *jobs_.find(JobId{2});
  EXPECT_EQ(job.grant.window, 32u);
  EXPECT_EQ(job.grant.slots_per_lane, 0u);
  EXPECT_EQ(job.grant.ceiling_per_lane, 50u);
}

TEST_F(RestoreTest, WhoLooksForTheFallbackElsewhereDoesNotComeBack) {
  config_.rules.home = Home::kSpill;
  SavedJob other = sample(1);
  other.home = "workers";
  SavedJob same = sample(2);
  same.home = "spill";
  const SavedJob unknown = sample(3);
  SavedJob reserved = sample(4);  // nobody has been told yet
  reserved.home = "workers";
  reserved.reserved_until = kNow.utc_s + 60;
  EXPECT_THAT(restore({other, same, unknown, reserved}), ElementsAre("train2", "train3", "train4"));
  EXPECT_THAT(log_.text(), HasSubstr("(fallback.home: workers), and now it is elsewhere (spill)"));
  EXPECT_EQ(kept_.front().home, "spill");
}

TEST_F(RestoreTest, MoreThanTheSwitchMayHaveAreDropped) {
  config_.switchd.max_jobs = 1;
  config_.switchd.max_groups = 1;
  EXPECT_THAT(restore({sample(1), sample(2), sample(3, 1), sample(4, 1)}),
              ElementsAre("train1", "group3"));
  EXPECT_THAT(log_.text(), HasSubstr("switch.max_jobs is smaller than it was"));
  EXPECT_THAT(log_.text(), HasSubstr("switch.max_groups is smaller than it was"));
}

TEST_F(RestoreTest, TwoThatClaimTheSameSlotsAreOne) {
  SavedJob twin = sample(2);
  twin.first_slot = 0;
  EXPECT_THAT(restore({sample(1), twin}), ElementsAre("train1"));
  EXPECT_THAT(log_.text(), HasSubstr("its slots are not there any more"));
}

}  // namespace
}  // namespace ina::switchd
