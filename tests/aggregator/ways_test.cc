// Sets of slots (PolicyOptions::ways): a fragment may lie in any slot of its set, and when the set
// is full the one that is worth least leaves.
#include "aggregator/slot_tags.h"
#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

class WaysTest : public PolicyTest, public testing::WithParamInterface<uint32_t> {
 protected:
  static constexpr uint32_t kJobs = 4;

  struct Fragment {
    JobIndex job = 0;
    uint64_t seq = 0;
  };

  uint32_t ways() const { return GetParam(); }
  /// Jobs of two workers over an array that is one set, unless told otherwise.
  void start_jobs(PolicyKind kind = PolicyKind::kEsa, uint32_t slots = 0) {
    start(slots == 0 ? ways() : slots, {.kind = kind, .decay = Decay::kNone, .ways = ways()});
    for (uint32_t i = 0; i < kJobs; ++i) add_job(2);
  }
  /// More than a set holds of them have a place in their jobs' windows.
  static Fragment fragment(uint32_t i) { return {static_cast<JobIndex>(i / kWindow), i % kWindow}; }
  Verdict add(Fragment of, uint32_t rank, int32_t value, uint8_t priority = 20) {
    return grad(of.job, rank, of.seq, value, priority);
  }
};

TEST_P(WaysTest, ASetHoldsAsManyFragmentsAsItHasSlots) {
  start_jobs();
  for (uint32_t i = 0; i < ways(); ++i) {
    expect_held(add(fragment(i), 0, static_cast<int32_t>(i)));
    EXPECT_EQ(counters().slots_used, i + 1);
  }
  expect_bypass(add(fragment(ways()), 0, 9));
  for (uint32_t i = ways(); i-- != 0;)
    expect_result(add(fragment(i), 1, 10).emission[0], fragment(i).seq,
                  {static_cast<int32_t>(10 + i)});
  EXPECT_EQ(counters().slots_used, 0u);
  expect_held(add(fragment(ways() + 1), 0, 9));
}

TEST_P(WaysTest, ABurstOfNewFragmentsSpreadsOverItsSet) {
  start_jobs();
  const uint32_t fragments = std::min(ways(), kBurst);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    std::vector<Said> said;
    for (uint32_t i = 0; i < fragments; ++i)
      said.push_back({.job = fragment(i).job, .rank = rank, .seq = fragment(i).seq, .values = {1}});
    for (const Verdict& verdict : burst(said)) EXPECT_EQ(verdict.fate, Fate::kAbsorbed);
  }
  EXPECT_EQ(counters().results, fragments);
  EXPECT_EQ(counters().slots_used_peak, fragments);
}

TEST_P(WaysTest, TheLeastUrgentOfASetGoes) {
  start_jobs();
  const uint32_t least = ways() / 2;
  for (uint32_t i = 0; i < ways(); ++i)
    add(fragment(i), 0, static_cast<int32_t>(i), i == least ? 5 : 50);
  const Fragment newcomer = fragment(ways());
  expect_part(add(newcomer, 0, 7, 6).emission[0], fragment(least).job, fragment(least).seq,
              0b1_workers, {static_cast<int32_t>(least)});
  expect_result(add(newcomer, 1, 70, 1).emission[0], newcomer.seq, {77});
}

TEST_P(WaysTest, WhatMayNotBeTakenIsNoVictim) {
  start(ways(), {.kind = PolicyKind::kEsa, .decay = Decay::kNone, .ways = ways()});
  const JobIndex kept = add_job(2, {.floor = 1});
  for (uint32_t i = 0; i + 1 < kJobs; ++i) add_job(2);
  add({kept, 0}, 0, 1, 1);  // least of all, but within its floor
  for (uint32_t i = 0; i + 1 < ways(); ++i) add(fragment(kWindow + i), 0, 2, 50);
  ASSERT_EQ(counters().slots_used, ways());
  const Verdict verdict = add(fragment(kWindow + ways()), 0, 7, 60);
  ASSERT_EQ(verdict.emissions, 1);
  EXPECT_NE(verdict.emission[0].job, kept);
  expect_result(add({kept, 0}, 1, 10).emission[0], 0, {11});
}

TEST_P(WaysTest, AJobBelowItsFloorTakesSomebodyElsesSlot) {
  start(ways(), {.kind = PolicyKind::kEsa, .decay = Decay::kNone, .ways = ways()});
  const JobIndex entitled = add_job(2, {.floor = 2});
  for (uint32_t i = 0; i + 1 < kJobs; ++i) add_job(2);
  add({entitled, 0}, 0, 1, 1);
  // Others fill what they may, at a high priority.
  for (uint32_t i = 0; i < ways(); ++i) add(fragment(kWindow + i), 0, 2, 200);
  const Verdict verdict = add({entitled, 1}, 0, 5, 3);
  EXPECT_EQ(verdict.fate, Fate::kAbsorbed);
  expect_result(add({entitled, 0}, 1, 10).emission[0], 0, {11});
  expect_result(add({entitled, 1}, 1, 10).emission[0], 1, {15});
}

TEST_P(WaysTest, ResultAndRemindFindTheFragmentWhereverItLies) {
  start_jobs();
  for (uint32_t i = 0; i < ways(); ++i) add(fragment(i), 0, 1);
  ASSERT_EQ(counters().slots_used, ways());
  for (uint32_t i = 0; i < ways(); ++i) {
    const Fragment of = fragment(i);
    const auto home = static_cast<uint32_t>(of.seq % 2);
    if (i % 2 == 0)
      EXPECT_EQ(say({.type = Type::kRemind, .job = of.job, .rank = home, .seq = of.seq}).emissions,
                1);
    else
      say({.type = Type::kResult, .job = of.job, .rank = home, .seq = of.seq, .values = {1}});
  }
  EXPECT_EQ(counters().slots_used, 0u);
}

TEST_P(WaysTest, FcfsPassesByOnlyWhenTheSetIsFull) {
  start_jobs(PolicyKind::kFcfs);
  for (uint32_t i = 0; i < ways(); ++i) expect_held(add(fragment(i), 0, 1));
  expect_bypass(add(fragment(ways()), 0, 1, 255));
}

TEST_P(WaysTest, TheLastSetMayBeSmaller) {
  const uint32_t slots = ways() + 1;
  start_jobs(PolicyKind::kEsa, slots);
  std::vector<Fragment> last;
  for (uint32_t i = 0; i < kJobs * kWindow; ++i) {
    const JobId id{100u + fragment(i).job};
    if (scheduler::hashed_slot(id, Seq{fragment(i).seq}, slots) == ways())
      last.push_back(fragment(i));
  }
  ASSERT_GE(last.size(), 2u) << "the hash has changed: more jobs";
  expect_held(add(last[0], 0, 1));
  expect_bypass(add(last[1], 0, 1));
}

TEST_P(WaysTest, AJobThatEndsLeavesItsSlotsEmpty) {
  start_jobs();
  for (uint32_t i = 0; i < ways(); ++i) add(fragment(i), 0, 1, 200);
  for (JobIndex job = 0; job < 2; ++job) aggregator_->remove_job(job);
  EXPECT_EQ(counters().slots_used, 0u);
  for (uint32_t i = 0; i < std::min(ways(), 2 * kWindow); ++i)
    expect_held(add(fragment(2 * kWindow + i), 0, 1, 1));
}

TEST_P(WaysTest, FragmentsOfTheSameTagAreToldApart) {
  start_jobs();
  const uint64_t far = 0x9e3779b1 / 2;  // tags of neighbouring jobs are so far apart
  ASSERT_EQ(SlotTags::tag_of(0, far + 1), SlotTags::tag_of(1, 1));
  JobSpec spec = aggregator_->spec(0);
  aggregator_->remove_job(0);
  spec.start = Seq{far};
  aggregator_->add_job(0, spec);
  expect_held(grad(0, 0, far + 1, 1));
  expect_held(grad(1, 0, 1, 2));
  EXPECT_EQ(counters().slots_used, 2u);
  expect_result(grad(1, 1, 1, 20).emission[0], 1, {22});
  expect_result(grad(0, 1, far + 1, 10).emission[0], far + 1, {11});
}

INSTANTIATE_TEST_SUITE_P(Sets, WaysTest, testing::Values(2u, 4u, 8u));

// ---- tags

TEST(SlotTags, FindTheSameAndEmptyOnes) {
  for (const uint32_t ways : {2u, 4u, 8u}) {
    SlotTags tags(24, ways);
    const uint32_t set = tags.set_of(17);
    for (uint32_t first = set; first < set + ways; ++first) {
      EXPECT_EQ(tags.empty_or(first), first) << "all are empty";
      tags.set(first, 7);
      EXPECT_EQ(tags.empty_or(first), set + (first - set + 1) % ways) << "the next one";
      EXPECT_EQ(tags.matches(set, 7), 1u << (first - set));
      tags.set(first, SlotTags::kEmpty);
    }
    for (uint32_t slot = set; slot < set + ways; ++slot) tags.set(slot, 9 + slot);
    for (uint32_t slot = set; slot < set + ways; ++slot) {
      EXPECT_EQ(tags.matches(set, 9 + slot), 1u << (slot - set));
      EXPECT_EQ(tags.matches(slot, 5), 0u);
      EXPECT_EQ(tags.empty_or(slot), slot) << "full";
    }
    tags.set(set + 1, 9 + set);
    EXPECT_EQ(tags.matches(set, 9 + set), 0b11u) << "both that may be meant";
  }
}

TEST(SlotTags, SlotsThatDoNotExistAreNotEmpty) {
  SlotTags tags(9, 4);
  tags.set(8, 3);
  EXPECT_EQ(tags.empty_or(8), 8u);
}

TEST(SlotTags, NoFragmentIsTakenForAnEmptySlotOrForNone) {
  for (uint64_t number = 0; number < 4; ++number)
    EXPECT_EQ(SlotTags(9, 4).matches(8, SlotTags::tag_of(0, number)), 0u);
  EXPECT_NE(SlotTags::tag_of(0, 1), SlotTags::tag_of(1, 1));
}

}  // namespace
}  // namespace ina::aggregator
