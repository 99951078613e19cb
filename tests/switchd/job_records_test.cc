// The record of a job that outlives the switch, and the job that is made from it.
#include "switchd/jobs/job_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Nanos kSecondNs = 1'000'000'000;
const Moment kNow{.monotonic = 50 * kSecondNs, .utc_s = 1'700'000'000};

/// A group, which has all there is to write down.
Job sample() {
  Job job;
  job.name = "train/8";
  job.id = JobId{8};
  job.root = JobId{7};
  job.root_ranks = {3, 1};
  job.key = 0xfedcba9876543210;
  job.uid = 1000;
  job.tenant = "alice";
  job.ticket = "0123";
  job.workers = 2;
  job.epoch = 4097;
  job.geometry.lanes = 2;
  job.geometry.slot_bytes = 1024;
  job.grant.window = 32;
  job.grant.first_slot = 5;
  job.grant.slots_per_lane = 6;
  job.grant.floor_per_lane = 7;
  job.grant.ceiling_per_lane = 8;
  job.grant.priority_max = 9;
  job.grant.in_switch = 10;
  job.grant.park_room = 12;
  return job;
}

TEST(JobRecords, AJobComesBackAsItWas) {
  const Job job = sample();
  const SavedJob saved = saved_of(job, kNow);
  EXPECT_EQ(saved.lanes, 2u);
  EXPECT_EQ(saved.slot_bytes, 1024u);
  EXPECT_EQ(saved.reserved_until, 0);
  const auto back = job_of(saved, std::array<aggregator::JobIndex, 1>{3});
  EXPECT_EQ(back->index(), 3);
  EXPECT_EQ(back->state, Job::State::kJoining);
  EXPECT_EQ(back->members.size(), 2u);
  // Restore and Resources give it these: its grant and its geometry.
  back->grant = job.grant;
  back->geometry = job.geometry;
  EXPECT_EQ(saved_of(*back, kNow), saved);
  EXPECT_NE(back->payload_key.k0, job.payload_key.k0) << "keys of tags are as new as the process";
}

TEST(JobRecords, ASpreadJobComesBackWithItsSwitches) {
  Job job = sample();
  job.root = {};
  job.root_ranks.clear();
  job.spread = true;
  job.home = Home::kTree;
  job.state = Job::State::kRunning;
  job.workers = 6;
  job.members.resize(6);
  job.domains.resize(1);
  job.members[4].number = 1;
  job.below.push_back(std::make_unique<Job::Below>());
  job.below[0]->key = 77;
  RankSet below;
  for (const uint16_t rank : {0, 1, 3}) below.insert(Rank{rank});
  job.set_below(*job.below[0], below);
  job.above = std::make_unique<Above>(nullptr);
  job.above->joined.place.job_id = 5;
  job.above->joined.place.job_key = 6;
  for (const uint32_t rank : {2, 5})
    job.members[rank].elsewhere = job.members[rank].attached = true;
  ASSERT_TRUE(job.settle());
  const SavedJob saved = saved_of(job, kNow);
  const auto back = job_of(saved, std::array<aggregator::JobIndex, 1>{3});
  EXPECT_EQ(back->domains[0].member_of, job.domains[0].member_of);
  EXPECT_EQ(back->domains[0].members, 2u);
  ASSERT_EQ(back->below.size(), 1u);
  EXPECT_EQ(back->below[0]->ranks, below);
  EXPECT_EQ(back->below[0]->key, 77u);
  RankSet missing = below;
  missing.insert(Rank{4});
  EXPECT_EQ(back->missing(), missing) << "those at the switch above are its concern";
  EXPECT_EQ(saved.above_id, 5u);
  EXPECT_EQ(saved.above_key, 6u);
}

TEST(JobRecords, ASpreadJobOfMoreThan64MembersHasItsDomainsAgain) {
  SavedJob saved = saved_of(sample(), kNow);
  saved.workers = 90;
  saved.spread = true;
  EXPECT_EQ(domains_of(saved), 1u) << "nobody has come yet";
  // Ranks 0 to 63 and 70 are here, 80 to 89 at a switch below, the rest above.
  for (uint32_t rank = 0; rank < 64; ++rank)
    saved.tree_members.push_back({rank, {rank, rank + 1}, 0});
  EXPECT_EQ(domains_of(saved), 1u);
  saved.tree_members.push_back({64, {80, 90}, 77});
  saved.tree_members.push_back({65, {70, 71}, 0});
  ASSERT_EQ(domains_of(saved), 3u);
  const auto back = job_of(saved, std::array<aggregator::JobIndex, 3>{3, 5, 6});
  EXPECT_EQ(back->lane_place(Rank{63}).job, 3u);
  EXPECT_EQ(back->lane_place(Rank{70}).job, 5u);
  EXPECT_EQ(back->lane_place(Rank{70}).member, Rank{1});
  EXPECT_EQ(back->lane_place(Job::place_below(0)).job, 5u);
  EXPECT_EQ(back->ranks_of(5, WorkerSet::of(Rank{0})), RankSet::first(90) - RankSet::first(80));
  EXPECT_EQ(back->ranks_of(6, WorkerSet::of(Rank{0})), RankSet::first(64));
  EXPECT_EQ(back->ranks_of(6, WorkerSet::first(2)).size(), 75u);
  EXPECT_EQ(back->root_domain().members, 2u);
  back->state = Job::State::kRejoining;
  EXPECT_EQ(saved_of(*back, kNow).tree_members.size(), 66u);
}

TEST(JobRecords, AReservationGoesOnOverARestartOfTheMachine) {
  Job job = sample();
  job.reserved_until = kNow.monotonic + 30 * kSecondNs;
  const SavedJob saved = saved_of(job, kNow);
  EXPECT_EQ(saved.reserved_until, kNow.utc_s + 30);
  // The machine's clock has begun anew, ten seconds later.
  const Moment later{.monotonic = 2 * kSecondNs, .utc_s = kNow.utc_s + 10};
  EXPECT_EQ(reserved_until(saved, later), later.monotonic + 20 * kSecondNs);
}

TEST(JobRecords, AReservationThatHasPassedIsNoneThatIsNotThere) {
  Job job = sample();
  job.reserved_until = kNow.monotonic - 2 * kSecondNs;
  SavedJob saved = saved_of(job, {.monotonic = kNow.monotonic, .utc_s = 1});
  EXPECT_EQ(saved.reserved_until, 1) << "0 would mean that the job has begun";
  EXPECT_EQ(reserved_until(saved, kNow), kNow.monotonic);
  saved.reserved_until = 0;
  EXPECT_EQ(reserved_until(saved, kNow), 0);
  // One that somebody wrote by hand is no longer than a ticket may live.
  saved.reserved_until = kNow.utc_s + 1'000'000'000;
  EXPECT_EQ(reserved_until(saved, kNow), kNow.monotonic + 7 * 86'400 * kSecondNs);
}

TEST(JobRecords, AJobIsInTheFileUntilItIsForgotten) {
  const test::TempDir folder;
  auto state = StateFile::open(folder / "state");
  ASSERT_TRUE(state) << state.error().text;
  JobRecords records(*state, false);
  const SavedJob fresh = records.new_job("train", 4);
  EXPECT_EQ(fresh.name, "train");
  EXPECT_EQ(fresh.workers, 4u);
  EXPECT_NE(fresh.key, records.new_job("train", 4).key);
  EXPECT_THAT(state->jobs(), IsEmpty()) << "nothing is written before the job is there";
  const auto job = job_of(fresh, std::array<aggregator::JobIndex, 1>{0});
  records.save(*job);
  EXPECT_THAT(state->jobs(), ElementsAre(saved_of(*job, kNow)));
  records.forget(*job);
  EXPECT_THAT(state->jobs(), IsEmpty());
}

}  // namespace
}  // namespace ina::switchd
