// How jobs and groups are found, and the state of the table when they go.
#include "switchd/jobs/job_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "switchd/jobs/job_records.h"

namespace ina::switchd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Code = AdminError::Code;

class JobTableTest : public testing::Test {
 protected:
  Job& add(uint32_t id, const std::string& owner, const std::string& name, uint32_t root = 0) {
    auto job = std::make_unique<Job>();
    job->domains.resize(1);
    job->domains[0].index = table_.free_places(1).value().front();
    job->id = JobId{id};
    job->root = JobId{root};
    job->tenant = owner;
    job->name = name;
    return table_.add(std::move(job));
  }
  std::vector<uint32_t> ids() const {
    std::vector<uint32_t> ids;
    for (const Job& job : table_) ids.push_back(value(job.id));
    return ids;
  }
  JobTable table_{4};
};

TEST_F(JobTableTest, ANameIsItsOwnersAndNoGroups) {
  Job& a = add(1, "alice", "train");
  Job& b = add(2, "bob", "train");
  add(3, "alice", "train/3", 1);
  EXPECT_EQ(table_.find("alice", "train"), &a);
  EXPECT_EQ(table_.find("bob", "train"), &b);
  EXPECT_EQ(table_.find("carol", "train"), nullptr);
  EXPECT_EQ(table_.find("alice", "train/3"), nullptr);
  EXPECT_EQ(value(table_.find(JobId{3})->root), 1u);
  EXPECT_EQ(table_.find(JobId{4}), nullptr);
  EXPECT_EQ(table_.jobs(), 2u);
  EXPECT_EQ(table_.groups(), 1u);
}

TEST_F(JobTableTest, AnAdministratorNamesAJobSoThatThereIsOneOnly) {
  add(1, "alice", "train");
  Job& b = add(2, "bob", "train");
  Job& c = add(3, "bob", "eval");
  EXPECT_EQ(table_.meant("eval", "").value(), &c);
  EXPECT_EQ(table_.meant("train", "bob").value(), &b);
  EXPECT_EQ(table_.meant("bob/train", "").value(), &b);
  const auto either = table_.meant("train", "");
  ASSERT_FALSE(either);
  EXPECT_EQ(either.error().code, Code::kInvalid);
  EXPECT_THAT(either.error().text, HasSubstr("2 jobs are named 'train', of alice, bob"));
  EXPECT_EQ(table_.meant("eval", "alice").error().code, Code::kNotFound);
}

TEST_F(JobTableTest, ATicketIsOneJobs) {
  add(1, "alice", "open");
  add(2, "alice", "closed").ticket = "ticket-of-two";
  EXPECT_EQ(value(table_.find_ticket("ticket-of-two")->id), 2u);
  EXPECT_EQ(table_.find_ticket("ticket-of-tw"), nullptr);
  EXPECT_EQ(table_.find_ticket(""), nullptr) << "a job without a ticket has none, not an empty one";
}

TEST_F(JobTableTest, AWideJobIsFoundByEachOfItsDomains) {
  const auto places = table_.free_places(Job::domains_for(65));
  ASSERT_TRUE(places) << places.error().text;
  EXPECT_EQ(places->size(), 3u) << "two for workers, and the root";
  SavedJob saved;
  saved.id = 1;
  saved.workers = 65;
  Job& wide = table_.add(job_of(saved, *places));
  for (const auto place : *places) EXPECT_EQ(table_.at(place), &wide);
  EXPECT_EQ(wide.lane_place(Rank{63}).job, (*places)[0]);
  EXPECT_EQ(wide.lane_place(Rank{64}).job, (*places)[1]);
  EXPECT_EQ(wide.lane_place(Rank{64}).member, Rank{0});
  EXPECT_EQ(wide.ranks_of((*places)[1], WorkerSet::first(1)), RankSet::of(Rank{64}));
  EXPECT_EQ(wide.ranks_of((*places)[2], WorkerSet::of(Rank{0})), RankSet::first(64));
  const auto too_many = table_.free_places(Job::domains_for(65));
  ASSERT_FALSE(too_many);
  EXPECT_THAT(too_many.error().text, HasSubstr("1 of them free; it needs 3"));
  table_.remove(wide);
  for (const auto place : *places) EXPECT_EQ(table_.at(place), nullptr);
}

TEST_F(JobTableTest, PlacesAreUsedAgain) {
  for (uint32_t id = 1; id <= 4; ++id) add(id, "alice", "job");
  const auto place = table_.find(JobId{2})->index();
  table_.remove(*table_.find(JobId{2}));
  EXPECT_EQ(table_.at(place), nullptr);
  EXPECT_THAT(table_.free_places(1).value(), ElementsAre(place));
  const Job& fifth = add(5, "alice", "job");
  EXPECT_EQ(&fifth, table_.at(place));
  EXPECT_THAT(ids(), ElementsAre(1, 5, 3, 4));
}

TEST_F(JobTableTest, TheLastPlacesAreWalkedThroughAgainWhenTheyHaveJobsAgain) {
  for (uint32_t id = 1; id <= 4; ++id) add(id, "alice", "job");
  for (const uint32_t id : {2u, 4u, 3u}) table_.remove(*table_.find(JobId{id}));
  EXPECT_THAT(ids(), ElementsAre(1));
  for (uint32_t id = 5; id <= 7; ++id) add(id, "alice", "job");
  EXPECT_THAT(ids(), ElementsAre(1, 5, 6, 7));
}

TEST_F(JobTableTest, JobsMayGoWhileTheTableIsWalkedThrough) {
  for (uint32_t id = 1; id <= 4; ++id) add(id, "alice", "job");
  std::vector<uint32_t> seen;
  for (Job& job : table_) {
    seen.push_back(value(job.id));
    // One that is ahead, as the end of a job ends its groups; and the one that is looked at.
    if (value(job.id) == 1) table_.remove(*table_.find(JobId{3}));
    table_.remove(job);
  }
  EXPECT_THAT(seen, ElementsAre(1, 2, 4));
  EXPECT_THAT(ids(), IsEmpty());
}

}  // namespace
}  // namespace ina::switchd
