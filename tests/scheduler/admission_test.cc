#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace ina::scheduler {
namespace {

TEST(StaticAdmission, GrantsTwiceTheWindowFromOnePiece) {
  StaticAdmission admission(100, 1);
  const auto grant = admission.admit(64, UINT64_MAX);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->window, 32u);
  EXPECT_EQ(grant->slots_per_lane, 64u);
  EXPECT_EQ(admission.slots_reserved(), 64u);
}

TEST(StaticAdmission, SmallerWindowWantedTakesFewerSlots) {
  StaticAdmission admission(100, 1);
  EXPECT_EQ(admission.admit(64, 5)->slots_per_lane, 10u);
  EXPECT_EQ(admission.admit(64, 0)->slots_per_lane, 2u) << "at least one fragment";
}

TEST(StaticAdmission, WindowIsAMultipleOfTheLanes) {
  StaticAdmission admission(64, 4);
  const auto grant = admission.admit(30, UINT64_MAX);
  EXPECT_EQ(grant->window, 12u);
  EXPECT_EQ(grant->slots_per_lane, 6u);
}

TEST(StaticAdmission, RefusalNamesNeedFreeAndShortfall) {
  StaticAdmission admission(100, 1);
  ASSERT_TRUE(admission.admit(64, UINT64_MAX));
  const auto refused = admission.admit(64, UINT64_MAX);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("needs 64 slots"), std::string::npos) << refused.error();
  EXPECT_NE(refused.error().find("36 of 100 are free"), std::string::npos);
  EXPECT_NE(refused.error().find("short by 28"), std::string::npos);
}

TEST(StaticAdmission, RangesNeverOverlapAndAllComesBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    StaticAdmission admission(256, 1);
    std::vector<Grant> held;
    std::vector<bool> used(256);
    for (int step = 0; step < 100; ++step) {
      if (!held.empty() && random() % 2) {
        const size_t which = random() % held.size();
        for (uint32_t i = 0; i < held[which].slots_per_lane; ++i)
          used[held[which].first_slot + i] = false;
        admission.release(held[which]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      } else if (const auto grant = admission.admit(2 + random() % 60, UINT64_MAX)) {
        for (uint32_t i = 0; i < grant->slots_per_lane; ++i) {
          ASSERT_LT(grant->first_slot + i, 256u);
          ASSERT_FALSE(used[grant->first_slot + i]) << "given out twice";
          used[grant->first_slot + i] = true;
        }
        held.push_back(*grant);
      }
    }
    for (const Grant& grant : held) admission.release(grant);
    EXPECT_EQ(admission.slots_reserved(), 0u);
    EXPECT_TRUE(admission.admit(256, UINT64_MAX)) << "the free ranges did not join again";
  }
}

TEST(StaticAdmission, ReservesWhatWasGrantedBefore) {
  StaticAdmission before(200, 2);
  std::vector<Grant> grants;
  for (int i = 0; i < 3; ++i) grants.push_back(*before.admit(60, UINT64_MAX));
  // In any order, after a restart.
  for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}}) {
    StaticAdmission after(200, 2);
    for (const int i : order) EXPECT_TRUE(after.reserve(grants[static_cast<size_t>(i)]));
    for (const Grant& grant : grants) EXPECT_FALSE(after.reserve(grant)) << "taken already";
    EXPECT_EQ(after.slots_reserved(), before.slots_reserved());
    EXPECT_EQ(after.admit(20, UINT64_MAX)->first_slot, 90u);
    for (const Grant& grant : grants) after.release(grant);
    EXPECT_TRUE(after.reserve(grants[1])) << "free again";
  }
  StaticAdmission smaller(100, 2);
  EXPECT_FALSE(smaller.reserve(grants[2]));
  EXPECT_FALSE(smaller.reserve({UINT32_MAX, 4, 1}));
  EXPECT_EQ(smaller.slots_reserved(), 0u);
}

TEST(SharedAdmission, WindowIsAMultipleOfTheLanesAndNotBoundToTheSlots) {
  SharedAdmission admission(64, 4);
  EXPECT_EQ(admission.admit(4099, 0, 0)->window, 4096u);
  EXPECT_EQ(admission.admit(0, 0, 0)->window, 4u) << "at least one fragment a lane";
  EXPECT_EQ(admission.admit(UINT64_MAX, 0, 0)->window % 4, 0u);
  EXPECT_LT(admission.admit(UINT64_MAX, 0, 0)->window, 1u << 31);
  EXPECT_EQ(admission.slots_reserved(), 0u) << "no floor, nothing promised";
}

TEST(SharedAdmission, FloorsOfAllJobsFitTheSlots) {
  SharedAdmission admission(64, 4);
  const auto first = admission.admit(16, 33, 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->floor_per_lane, 9u) << "rounded up, so that the floor holds";
  EXPECT_EQ(admission.slots_reserved(), 36u);
  const auto refused = admission.admit(16, 30, 0);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("floor needs 32 slots"), std::string::npos) << refused.error();
  EXPECT_NE(refused.error().find("28 of 64 are not promised"), std::string::npos);
  EXPECT_NE(refused.error().find("short by 4"), std::string::npos);
  EXPECT_EQ(admission.slots_reserved(), 36u) << "a refusal takes nothing";
  ASSERT_TRUE(admission.admit(16, 28, 0));
  admission.release(*first);
  EXPECT_TRUE(admission.admit(16, 36, 0));
}

TEST(SharedAdmission, CeilingIsNeverBelowTheFloor) {
  SharedAdmission admission(64, 4);
  EXPECT_EQ(admission.admit(16, 0, 0)->ceiling_per_lane, 16u) << "0: all";
  EXPECT_EQ(admission.admit(16, 0, 1000)->ceiling_per_lane, 16u);
  EXPECT_EQ(admission.admit(16, 8, 9)->ceiling_per_lane, 3u);
  const auto refused = admission.admit(16, 12, 4);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("ceiling of 4 slots is below its floor of 12"), std::string::npos)
      << refused.error();
}

TEST(MemoryBudget, RefusesWhatDoesNotFitAndNamesTheNumbers) {
  MemoryBudget budget(1000);
  ASSERT_TRUE(budget.take(700));
  const auto refused = budget.take(301);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("needs 301 bytes"), std::string::npos) << refused.error();
  EXPECT_NE(refused.error().find("300 of 1000 are free"), std::string::npos);
  EXPECT_NE(refused.error().find("short by 1"), std::string::npos);
  EXPECT_EQ(budget.used(), 700u);
  ASSERT_TRUE(budget.take(300));
  budget.give_back(700);
  EXPECT_EQ(budget.used(), 300u);
  EXPECT_FALSE(budget.take(UINT64_MAX));
}

TEST(StaticAdmission, AreasAreKeptForTheirOwn) {
  StaticAdmission admission(100, 1);
  const uint32_t first = admission.add_area(20);
  const uint32_t second = admission.add_area(30);
  EXPECT_EQ(admission.slots_reserved(), 50u);
  ASSERT_TRUE(admission.admit(50, UINT64_MAX)) << "the common area";
  EXPECT_FALSE(admission.admit(2, UINT64_MAX)) << "what is left is kept";
  const auto own = admission.admit(20, UINT64_MAX, first);
  const auto other = admission.admit(30, UINT64_MAX, second);
  ASSERT_TRUE(own && other);
  EXPECT_EQ(own->first_slot, 80u);
  EXPECT_EQ(other->first_slot, 50u);
  EXPECT_EQ(admission.slots_reserved(), 100u);
  admission.release(*own);
  EXPECT_FALSE(admission.admit(2, UINT64_MAX, second));
  EXPECT_FALSE(admission.reserve(*own, second)) << "it lies in another's area";
  EXPECT_TRUE(admission.reserve(*own, first));
}

// ---- tenants

AdmissionConfig fixed(std::vector<TenantQuota> tenants = {}) {
  return {.fixed_slots = true,
          .slots = 256,
          .lanes = 2,
          .memory_bytes = 1000,
          .slots_per_job = 64,
          .tenants = std::move(tenants)};
}

AdmissionConfig shared(std::vector<TenantQuota> tenants = {}) {
  AdmissionConfig config = fixed(std::move(tenants));
  config.fixed_slots = false;
  return config;
}

JobRequest job_of(const std::string& tenant, uint32_t workers = 2, uint32_t floor = 0,
                  uint32_t ceiling = 0) {
  return {.tenant = tenant,
          .workers = workers,
          .window = 1 << 20,
          .slots_floor = floor,
          .slots_ceiling = ceiling};
}

void expect_refused(const tl::expected<Grant, std::string>& answer, const std::string& text) {
  ASSERT_FALSE(answer) << "not refused: " << text;
  EXPECT_NE(answer.error().find(text), std::string::npos) << answer.error();
}

TEST(Admission, WhoHasNoQuotaHasWhatTheSwitchGives) {
  Admission admission(fixed());
  const auto grant = admission.admit(job_of("red"));
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->window, 32u);
  EXPECT_EQ(grant->slots_per_lane, 32u);
  EXPECT_EQ(grant->priority_max, 255);
  EXPECT_EQ(admission.tenants(), std::vector<std::string>{"red"});
  EXPECT_EQ(admission.use("red").slots_floor, 64u);
  admission.release("red", 2, *grant);
  EXPECT_TRUE(admission.tenants().empty()) << "a tenant without jobs is forgotten";
}

TEST(Admission, JobsAndWorkersAreLimitedAndTheRefusalSaysByHowMuch) {
  Admission admission(fixed({{.name = "red", .jobs_max = 2, .workers_max = 10}}));
  const auto first = admission.admit(job_of("red", 8));
  ASSERT_TRUE(first);
  expect_refused(admission.admit(job_of("red", 5)),
                 "it has 5 workers, tenant 'red' has 2 of 10 places left: short by 3");
  ASSERT_TRUE(admission.admit(job_of("red", 1)));
  expect_refused(admission.admit(job_of("red", 1)), "tenant 'red' has 2 of 2 jobs: short by 1");
  EXPECT_TRUE(admission.admit(job_of("blue", 64))) << "others are not concerned";
  admission.release("red", 8, *first);
  EXPECT_EQ(admission.use("red").workers, 1u);
  EXPECT_TRUE(admission.admit(job_of("red", 9)));
}

TEST(Admission, TheQuotaOfOthersHoldsForEachOfThem) {
  Admission admission(fixed({{.name = "red"}, {.name = "*", .jobs_max = 1}}));
  ASSERT_TRUE(admission.admit(job_of("blue")));
  expect_refused(admission.admit(job_of("blue")), "tenant 'blue' has 1 of 1 jobs");
  ASSERT_TRUE(admission.admit(job_of("green")));
  ASSERT_TRUE(admission.admit(job_of("red")));
  ASSERT_TRUE(admission.admit(job_of("red"))) << "listed: no limit";
}

TEST(Admission, MemoryOfATenantIsLimited) {
  Admission admission(fixed({{.name = "red", .memory_bytes = 300}}));
  auto red = admission.admit(job_of("red"));
  auto blue = admission.admit(job_of("blue"));
  ASSERT_TRUE(admission.take_memory("red", *red, 200));
  const auto refused = admission.take_memory("red", *red, 101);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("needs 101 bytes of memory, tenant 'red' has 100 of 300 left: "
                                 "short by 1"),
            std::string::npos)
      << refused.error();
  ASSERT_TRUE(admission.take_memory("blue", *blue, 700));
  EXPECT_FALSE(admission.take_memory("red", *red, 101)) << "nor has the switch so much";
  admission.give_back_memory("red", *red, 50);
  EXPECT_EQ(red->memory_bytes, 150u);
  admission.release("red", 2, *red);
  admission.release("blue", 2, *blue);
  EXPECT_EQ(admission.memory().used(), 0u);
}

TEST(Admission, ThePriorityIsTheLowestThatAnybodySet) {
  AdmissionConfig config = fixed({{.name = "red", .priority_max = 100}});
  config.priority_max = 200;
  Admission admission(config);
  EXPECT_EQ(admission.admit(job_of("red"))->priority_max, 100);
  EXPECT_EQ(admission.admit(job_of("blue"))->priority_max, 200);
  JobRequest modest = job_of("red");
  modest.priority_max = 5;
  EXPECT_EQ(admission.admit(modest)->priority_max, 5);
}

TEST(Admission, FixedSlotsAreKeptForAnAbsentTenant) {
  Admission admission(fixed({{.name = "red", .slots_floor = 128}}));
  EXPECT_EQ(admission.slots_reserved(), 128u);
  ASSERT_TRUE(admission.admit(job_of("blue")));
  ASSERT_TRUE(admission.admit(job_of("blue")));
  expect_refused(admission.admit(job_of("blue")), "needs 64 slots in one piece, 0 of 256 are free");
  ASSERT_TRUE(admission.admit(job_of("red")));
  ASSERT_TRUE(admission.admit(job_of("red")));
  expect_refused(admission.admit(job_of("red")), "short by 64");
}

TEST(Admission, AJobMayAskForAPoolOfAnotherSize) {
  Admission admission(fixed());
  EXPECT_EQ(admission.admit(job_of("red", 2, 98))->slots_per_lane, 50u)
      << "rounded up to whole windows";
  EXPECT_EQ(admission.admit(job_of("red", 2, 0, 10))->slots_per_lane, 4u) << "rounded down";
  expect_refused(admission.admit(job_of("red", 2, 4096)),
                 "needs 4096 slots in one piece, 148 of 256 are free and the largest piece is 148: "
                 "short by 3948");
  expect_refused(admission.admit(job_of("red", 2, 0, 3)),
                 "its ceiling of 3 slots is below the 4 that it needs");
  expect_refused(admission.admit(job_of("red", 2, 20, 10)),
                 "its ceiling of 10 slots is below the 20 that it needs");
}

TEST(Admission, TheCeilingCapsTheSumOfPools) {
  Admission admission(fixed({{.name = "red", .slots_ceiling = 100, .jobs_max = 2}}));
  EXPECT_EQ(admission.admit(job_of("red"))->slots_per_lane, 24u)
      << "half of 50 a lane, in two equal halves";
  expect_refused(admission.admit(job_of("red", 2, 64)),
                 "it needs 64 slots, tenant 'red' has 52 of 100 left: short by 12");
  EXPECT_TRUE(admission.admit(job_of("red", 2, 52)));
}

TEST(Admission, SharedFloorsAreKeptForAnAbsentTenant) {
  Admission admission(shared({{.name = "red", .slots_floor = 100, .jobs_max = 4}}));
  EXPECT_EQ(admission.slots_reserved(), 100u);
  expect_refused(admission.admit(job_of("blue", 2, 200)),
                 "its floor needs 200 slots, 156 of 256 are not promised to others: short by 44");
  ASSERT_TRUE(admission.admit(job_of("blue", 2, 156)));
  const auto share = admission.admit(job_of("red"));
  ASSERT_TRUE(share);
  EXPECT_EQ(share->floor_per_lane, 12u) << "a quarter of 50, without asking";
  EXPECT_EQ(admission.slots_reserved(), 256u) << "taken from what was kept";
  ASSERT_TRUE(admission.admit(job_of("red", 2, 76)));
  expect_refused(admission.admit(job_of("red", 2, 2)), "0 of 256 are not promised to others");
  EXPECT_EQ(admission.admit(job_of("red"))->floor_per_lane, 0u) << "nothing is left";
  admission.release("red", 2, *share);
  EXPECT_EQ(admission.slots_reserved(), 256u) << "kept again, and for nobody else";
  EXPECT_FALSE(admission.admit(job_of("blue", 2, 2)));
  EXPECT_TRUE(admission.admit(job_of("red", 2, 24)));
}

TEST(Admission, WithoutALimitOfJobsTheFirstGetsTheFloor) {
  Admission admission(shared({{.name = "red", .slots_floor = 100}}));
  EXPECT_EQ(admission.admit(job_of("red"))->floor_per_lane, 50u);
  EXPECT_EQ(admission.admit(job_of("red"))->floor_per_lane, 0u);
}

TEST(Admission, TheCeilingCapsTheSumOfCeilings) {
  Admission admission(shared({{.name = "red", .slots_ceiling = 100, .jobs_max = 3}}));
  EXPECT_EQ(admission.admit(job_of("red"))->ceiling_per_lane, 16u) << "a third of 50";
  expect_refused(admission.admit(job_of("red", 2, 0, 70)),
                 "it needs 70 slots, tenant 'red' has 68 of 100 left: short by 2");
  const auto most = admission.admit(job_of("red", 2, 0, 66));
  EXPECT_EQ(most->ceiling_per_lane, 33u);
  EXPECT_EQ(admission.admit(job_of("red"))->ceiling_per_lane, 1u);
  admission.release("red", 2, *most);
  ASSERT_TRUE(admission.admit(job_of("red", 2, 0, 66)));
  EXPECT_EQ(admission.admit(job_of("blue"))->ceiling_per_lane, 128u);

  Admission narrow(shared({{.name = "red", .slots_ceiling = 100}}));
  EXPECT_EQ(narrow.admit(job_of("red"))->ceiling_per_lane, 50u) << "all that is left";
  expect_refused(narrow.admit(job_of("red")),
                 "it needs 2 slots, tenant 'red' has 0 of 100 left: short by 2");
}

TEST(Admission, ReadmitsWhatItGrantedInAnyOrder) {
  for (const AdmissionConfig& config :
       {fixed({{.name = "red", .slots_floor = 100, .slots_ceiling = 150, .jobs_max = 3}}),
        shared({{.name = "red", .slots_floor = 100, .slots_ceiling = 150, .jobs_max = 3}})}) {
    Admission before(config);
    std::vector<std::pair<JobRequest, Grant>> jobs;
    for (const char* tenant : {"red", "blue", "red", "red"})
      jobs.emplace_back(job_of(tenant), *before.admit(job_of(tenant)));
    std::mt19937 random(3);
    for (int round = 0; round < 20; ++round) {
      std::ranges::shuffle(jobs, random);
      Admission after(config);
      for (const auto& [request, grant] : jobs) {
        const auto again = after.readmit(request, grant);
        ASSERT_TRUE(again) << again.error();
        EXPECT_EQ(again->first_slot, grant.first_slot);
        EXPECT_EQ(again->floor_per_lane, grant.floor_per_lane);
        EXPECT_EQ(again->ceiling_per_lane, grant.ceiling_per_lane);
        EXPECT_EQ(again->window, grant.window);
      }
      EXPECT_EQ(after.slots_reserved(), before.slots_reserved());
      const auto red = std::ranges::find(jobs, "red", [](auto& job) { return job.first.tenant; });
      expect_refused(after.readmit(red->first, red->second), "tenant 'red' has 3 of 3 jobs");
    }
  }
}

TEST(Admission, WhatANewConfigurationKeepsForOthersIsNotGivenBack) {
  Admission before(fixed());
  std::vector<Grant> grants;
  for (int i = 0; i < 4; ++i) grants.push_back(*before.admit(job_of("blue")));
  Admission after(fixed({{.name = "red", .slots_floor = 64}}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(after.readmit(job_of("blue"), grants[i]));
  expect_refused(after.readmit(job_of("blue"), grants[3]), "not there any more");
  EXPECT_TRUE(after.admit(job_of("red")));
}

TEST(Admission, OtherLimitsHoldForWhatIsAskedForFromThenOn) {
  Admission admission(shared({{.name = "red", .slots_floor = 100, .jobs_max = 2}}));
  const auto first = admission.admit(job_of("red"));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->floor_per_lane, 25u);
  ASSERT_TRUE(admission.admit(job_of("blue", 2, 100)));
  EXPECT_EQ(admission.slots_reserved(), 200u);

  admission.set_limits(shared({{.name = "red", .slots_floor = 60, .jobs_max = 1},
                               {.name = "blue", .jobs_max = 1},
                               {.name = "*", .workers_max = 1}}));
  EXPECT_EQ(admission.slots_reserved(), 160u) << "of the floor the job has its part still";
  expect_refused(admission.admit(job_of("red")), "tenant 'red' has 1 of 1 jobs");
  expect_refused(admission.admit(job_of("blue")), "tenant 'blue' has 1 of 1 jobs");
  expect_refused(admission.admit(job_of("green")), "1 of 1 places left");

  admission.set_limits(shared({}));
  EXPECT_EQ(admission.slots_reserved(), 150u) << "what jobs have, and nothing is kept";
  EXPECT_TRUE(admission.admit(job_of("green")));
  admission.release("red", 2, *first);
  EXPECT_EQ(admission.slots_reserved(), 100u);
  EXPECT_THAT(admission.tenants(), testing::ElementsAre("blue", "green"));
  EXPECT_TRUE(admission.admit(job_of("red", 2, 156)));
}

TEST(Admission, LessMemoryThanIsTakenStopsNewJobsOnly) {
  AdmissionConfig config = shared();
  config.memory_bytes = 1000;
  Admission admission(config);
  auto grant = admission.admit(job_of("red"));
  ASSERT_TRUE(admission.take_memory("red", *grant, 800));
  config.memory_bytes = 500;
  admission.set_limits(config);
  EXPECT_EQ(admission.memory().total(), 500u);
  EXPECT_EQ(admission.memory_left("red"), 0u);
  EXPECT_FALSE(admission.take_memory("red", *grant, 1));
  admission.release("red", 2, *grant);
  EXPECT_EQ(admission.memory_left("red"), 500u);
}

/// Tenants come and go at random. Throughout, no limit is exceeded, promised slots exist, and slots
/// kept for a tenant are there when it comes. In the end all is free again.
class AdmissionAtRandom : public ::testing::TestWithParam<bool> {};

TEST_P(AdmissionAtRandom, KeepsEveryPromise) {
  constexpr uint32_t kSlots = 256, kLanes = 2;
  const std::vector<TenantQuota> quotas = {
      {.name = "red", .slots_floor = 40, .jobs_max = 3, .workers_max = 20, .memory_bytes = 400},
      {.name = "green", .slots_floor = 61, .slots_ceiling = 90, .workers_max = 9},
      {.name = "blue", .slots_ceiling = 50, .jobs_max = 2},
      {.name = "*", .jobs_max = 4}};
  const AdmissionConfig config = GetParam() ? fixed(quotas) : shared(quotas);
  struct Held {
    JobRequest request;
    Grant grant;
  };
  uint64_t admitted = 0, refused = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    Admission admission(config);
    std::vector<Held> held;
    for (int step = 0; step < 200; ++step) {
      if (!held.empty() && random() % 2) {
        const auto which = held.begin() + static_cast<ptrdiff_t>(random() % held.size());
        admission.release(which->request.tenant, which->request.workers, which->grant);
        held.erase(which);
      } else {
        static const char* const kTenants[] = {"red", "green", "blue", "other", "another"};
        const uint32_t floor = random() % 3 ? 0 : random() % 100;
        JobRequest request = job_of(kTenants[random() % 5], 1 + random() % 8, floor,
                                    random() % 3 ? 0 : floor + random() % 50);
        request.window = random() % 100;
        auto grant = admission.admit(request);
        (grant ? admitted : refused) += 1;
        if (grant) {
          (void)admission.take_memory(request.tenant, *grant, random() % 300);
          held.push_back({request, *grant});
        } else {
          EXPECT_FALSE(grant.error().empty());
        }
      }
      // The books agree with the grants.
      std::map<std::string, TenantUse> uses;
      std::vector<bool> taken(kSlots / kLanes);
      for (const Held& job : held) {
        TenantUse& use = uses[job.request.tenant];
        ++use.jobs;
        use.workers += job.request.workers;
        use.memory_bytes += job.grant.memory_bytes;
        use.slots_floor +=
            kLanes * (GetParam() ? job.grant.slots_per_lane : job.grant.floor_per_lane);
        use.slots_ceiling +=
            kLanes * (GetParam() ? job.grant.slots_per_lane : job.grant.ceiling_per_lane);
        for (uint32_t i = 0; i < job.grant.slots_per_lane; ++i) {
          ASSERT_FALSE(taken[job.grant.first_slot + i]) << "given out twice";
          taken[job.grant.first_slot + i] = true;
        }
        if (!GetParam()) {
          ASSERT_GE(job.grant.floor_per_lane * kLanes, job.request.slots_floor);
          ASSERT_GE(job.grant.ceiling_per_lane, std::max(1u, job.grant.floor_per_lane));
        }
      }
      uint64_t promised = 0, memory = 0;
      for (const char* name : {"red", "green", "blue", "other", "another"}) {
        const TenantUse& use = uses[name];
        const TenantQuota& quota = admission.quota(name);
        const TenantUse said = admission.use(name);
        ASSERT_EQ(said.jobs, use.jobs);
        ASSERT_EQ(said.workers, use.workers);
        ASSERT_EQ(said.memory_bytes, use.memory_bytes);
        ASSERT_EQ(said.slots_floor, use.slots_floor);
        ASSERT_EQ(said.slots_ceiling, use.slots_ceiling);
        ASSERT_TRUE(quota.jobs_max == 0 || use.jobs <= quota.jobs_max) << name;
        ASSERT_TRUE(quota.workers_max == 0 || use.workers <= quota.workers_max) << name;
        ASSERT_TRUE(quota.memory_bytes == 0 || use.memory_bytes <= quota.memory_bytes) << name;
        ASSERT_TRUE(quota.slots_ceiling == 0 || use.slots_ceiling <= quota.slots_ceiling) << name;
        promised += std::max(use.slots_floor, GetParam() ? 0 : quota.slots_floor);
        memory += use.memory_bytes;
      }
      ASSERT_LE(promised, kSlots);
      ASSERT_LE(admission.slots_reserved(), kSlots);
      ASSERT_LE(memory, config.memory_bytes);
    }
    // Slots kept for a tenant are there when it comes, in one piece, beside any other tenants.
    for (auto job = held.begin(); job != held.end();) {
      if (job->request.tenant == "red") {
        admission.release("red", job->request.workers, job->grant);
        job = held.erase(job);
      } else {
        ++job;
      }
    }
    const auto promised = admission.admit(job_of("red", 20, 40));
    ASSERT_TRUE(promised) << promised.error();
    admission.release("red", 20, *promised);
    for (const Held& job : held)
      admission.release(job.request.tenant, job.request.workers, job.grant);
    EXPECT_EQ(admission.slots_reserved(), Admission(config).slots_reserved());
    EXPECT_EQ(admission.memory().used(), 0u);
    EXPECT_EQ(admission.tenants().size(), 3u);
  }
  EXPECT_GT(admitted, 1000u);
  EXPECT_GT(refused, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Slots, AdmissionAtRandom, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Fixed" : "Shared"; });

}  // namespace
}  // namespace ina::scheduler
