// Traces about recovery: a worker misses a result, and the fallback learns its fate from the
// workers. Each runs with the rule that protects it, and again without, to prove that it can
// fail.
//
// The traces about parked fragments (deferred_ignores_parker_result, spill_restart_parker_part,
// park_duplicate_after_overflow, park_late_before_park, parked_slot_preempted_forwards,
// park_surrender_on_bind) belong to the straggler support, which the protocol does not have yet.
#include <gtest/gtest.h>

#include "tests/sim/script.h"

namespace ina::sim {
namespace {

using wire::Type;
using Values = std::vector<float>;

constexpr Match kGrad{.type = Type::kGrad};
constexpr Match kPart{.type = Type::kPart};
constexpr Match kResult{.type = Type::kResult};
constexpr Match kQuery{.type = Type::kQuery};
constexpr Match kPoll{.type = Type::kPoll};
constexpr Match kSent{.type = Type::kSent};
constexpr Match kHave{.type = Type::kHave};
constexpr Match kDefer{.type = Type::kDefer};
constexpr Match kRemind{.type = Type::kRemind};

constexpr float kBig = 1e8f;  // 1e8 - 1e8 + 1 = 1, 1e8 + 1 - 1e8 = 0

Script one_job(uint32_t workers) {
  Script script;
  script.jobs = {{.workers = workers}};
  return script;
}

/// Lets the worker's time-outs pass until it is done; at most a few.
void ask_until_done(Rack& rack, uint32_t rank) {
  for (int rounds = 0; rounds < 6 && !rack.done(rank); ++rounds) {
    rack.time_out(rank);
    rack.deliver_all();
  }
}

// ---- who is bound

/// The switch's result is late, all workers get bound, and the fallback adds in another order.
Values late_switch_result() {
  Rack rack(one_job(3));
  rack.submit_all({kBig, -kBig, 1});
  rack.deliver(kGrad);
  rack.hold(kResult);  // 1
  rack.time_out(0);
  rack.deliver_all();
  rack.time_out(0);
  rack.pass(kQuery);
  rack.deliver(kRemind);
  rack.pass(kPoll);
  rack.pass({.type = Type::kDefer, .of = 0});
  rack.pass({.type = Type::kDefer, .of = 2});
  rack.pass({.type = Type::kDefer, .of = 1});  // 0
  rack.release({.type = Type::kResult, .to = 1});
  rack.deliver({.type = Type::kResult, .to = 1});
  if (rule(Rule::kResultOrigin)) {
    EXPECT_FALSE(rack.done(1));
    EXPECT_EQ(rack.engine(1).counters().results_ignored, 1u);
  }
  rack.deliver_all();
  return rack.got_all();
}

TEST(Scenario, deferred_ignores_switch_result) {
  EXPECT_EQ(late_switch_result(), (Values{0, 0, 0}));
  const Without without(Rule::kResultOrigin);
  EXPECT_EQ(late_switch_result(), (Values{0, 1, 0})) << "no agreement";
}

// ---- what workers keep

/// Rank 1 misses result 0, rank 0 has it and all others of the window. Returns what rank 1 got.
Values ask_for_the_oldest_result_kept() {
  Rack rack(one_job(2));
  rack.submit(0, {1, 2, 3, 4, 5});
  rack.submit(1, {10, 20, 30, 40, 50});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 1, .seq = 0});
  rack.deliver(kResult);
  EXPECT_EQ(rack.engine(0).standing().results_end, Seq{4}) << "W results, 0 is the oldest";
  rack.duplicate({.type = Type::kGrad, .seq = 4});
  rack.time_out(1);
  rack.pass(kQuery);
  rack.deliver(kPoll);
  rack.duplicate({.type = Type::kPoll, .to = 0});
  rack.deliver_all();
  if (rack.done(1)) {
    // Result 4 has come, which proves that everyone has result 0: nobody answers for it any more.
    rack.release(kPoll);
    rack.deliver(kPoll);
    EXPECT_EQ(rack.count({}), 0u);
  }
  ask_until_done(rack, 1);
  return rack.got(1);
}

TEST(Scenario, result_retained_W_then_dropped) {
  EXPECT_EQ(ask_for_the_oldest_result_kept(), (Values{11, 22, 33, 44, 55}));
  const Without without(Rule::kRetainResults);
  EXPECT_EQ(ask_for_the_oldest_result_kept(), Values{}) << "the question is never answered";
}

/// Result s + W is enough to drop result s, even if results between are still missing.
TEST(Scenario, result_dropped_though_newer_ones_are_missing) {
  Rack rack(one_job(2));
  rack.submit(0, {1, 2, 3, 4, 5});
  rack.submit(1, {10, 20, 30, 40, 50});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 0, .seq = 3});
  rack.hold({.type = Type::kResult, .to = 1, .seq = 0});
  rack.deliver(kResult);
  rack.time_out(1);
  rack.pass(kQuery);
  rack.deliver({.type = Type::kPoll, .to = kSwitch});
  rack.hold({.type = Type::kPoll, .to = 0});
  rack.release(kResult);
  rack.deliver(kResult);
  rack.deliver(kGrad);
  rack.deliver(kResult);
  EXPECT_EQ(rack.engine(0).low(), Seq{3});
  EXPECT_EQ(rack.engine(0).standing().results_end, Seq{5});
  rack.drop(kPoll);  // rank 1's
  rack.release(kPoll);
  rack.deliver(kPoll);
  EXPECT_EQ(rack.count({}), 0u) << "nobody can need result 0";
}

TEST(Scenario, inplace_overwrite_then_poll) {
  Rack rack(one_job(2));
  rack.submit(0, {1, 2}, 0, true);
  rack.submit(1, {10, 20}, 0, true);
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 1});
  rack.deliver(kResult);
  EXPECT_EQ(rack.got(0), (Values{11, 22}));
  rack.scribble(0);
  ask_until_done(rack, 1);
  EXPECT_EQ(rack.got(1), (Values{11, 22})) << "not what the user made of the buffer";
}

/// The half of an operation in place is overwritten by results when the other half is asked for.
TEST(Scenario, inplace_half_done_then_bind) {
  Rack rack(one_job(2));
  rack.submit(0, {1, 2}, 0, true);
  rack.submit(1, {10, 20}, 0, true);
  rack.drop({.type = Type::kGrad, .of = 1, .seq = 1});
  rack.deliver(kGrad);
  rack.deliver(kResult);
  ask_until_done(rack, 0);
  EXPECT_EQ(rack.got(0), (Values{11, 22}));
  EXPECT_EQ(rack.got(1), (Values{11, 22}));
}

// ---- what the fallback keeps

/// Another job keeps the only slot: all goes by the fallback.
Script no_slot(Home home) {
  Script script = one_job(2);
  script.home = home;
  script.slots = 1;
  script.policy.decay = scheduler::Decay::kNone;
  script.jobs.push_back({.workers = 2, .priority = 20});
  return script;
}

/// Rank 1 misses result 0 while rank 0 runs ahead as far as it may.
Values ask_at_the_edge_of_memory() {
  Rack rack(no_slot(Home::kDedicated));
  rack.submit(0, {1}, 1);
  rack.deliver({.type = Type::kGrad, .job = 1});  // keeps the only slot
  rack.submit(0, {1, 2, 3, 4, 5, 6, 7, 8});
  rack.submit(1, {10, 20, 30, 40, 50, 60, 70, 80});
  rack.deliver(kGrad);
  for (int seq = 0; seq < 4; ++seq) rack.deliver({.type = Type::kPart, .seq = seq});
  rack.deliver({.type = Type::kResult, .to = kSwitch});
  rack.drop({.type = Type::kResult, .to = 1, .seq = 0});
  rack.deliver(kResult);
  rack.deliver({.type = Type::kGrad, .of = 0});  // 4..7
  rack.deliver(kPart);
  rack.time_out(1);
  rack.deliver_all();
  EXPECT_EQ(rack.fallback().counters().polls, 0u) << "it knew the result, or nothing at all";
  return rack.got(1);
}

TEST(Scenario, fallback_memory_exactly_2W) {
  EXPECT_EQ(ask_at_the_edge_of_memory(), (Values{11, 22, 33, 44, 55, 66, 77, 88}));
  const Without without(Rule::kFallbackMemory);
  EXPECT_EQ(ask_at_the_edge_of_memory(), Values{}) << "forgotten too early: a hang";
}

/// A PART comes twice, before the decision or after it.
Values part_twice(bool before) {
  Rack rack(no_slot(Home::kWorkers));
  rack.submit(0, {1}, 1);
  rack.deliver({.type = Type::kGrad, .job = 1});
  rack.submit_all({1, 10});
  rack.deliver(kGrad);
  rack.duplicate({.type = Type::kPart, .of = 0});
  rack.deliver({.type = Type::kPart, .of = 0});
  if (before) {
    rack.release(kPart);
    rack.deliver({.type = Type::kPart, .of = 0});
  }
  rack.deliver(kPart);
  rack.deliver_all();
  if (!before) {
    rack.release(kPart);
    rack.deliver(kPart);
    EXPECT_EQ(rack.count({}), 0u) << "no second decision";
    EXPECT_EQ(rack.engine(0).fallback()->counters().decided, 1u);
  }
  EXPECT_EQ(rack.engine(0).fallback()->counters().dropped, rule(Rule::kDisjointMerge) ? 1u : 0u);
  return rack.got_all();
}

TEST(Scenario, duplicate_part_after_decide) {
  EXPECT_EQ(part_twice(false), (Values{11, 11}));
  EXPECT_EQ(part_twice(true), (Values{11, 11}));
  const Without without(Rule::kDisjointMerge);
  EXPECT_EQ(part_twice(true), (Values{12, 12}));
}

// ---- questions and answers

TEST(Scenario, duplicate_have_and_poll) {
  Rack rack(one_job(2));
  rack.submit_all({1, 10});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 1});
  rack.deliver(kResult);
  rack.time_out(1);
  rack.pass(kQuery);
  rack.deliver(kPoll);
  rack.duplicate(kPoll);
  rack.deliver(kPoll);
  rack.release(kPoll);
  rack.deliver(kPoll);
  EXPECT_EQ(rack.count(kHave), 2u) << "each question is answered";
  rack.duplicate(kHave);
  rack.release(kHave);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  const aggregator::FallbackCounters& fallback = rack.engine(0).fallback()->counters();
  EXPECT_EQ(fallback.decided, 1u);
  EXPECT_EQ(fallback.results, 1u);
}

/// A fragment of the second phase is bound twice, contributed twice and counted once.
TEST(Scenario, duplicate_bind_and_defer) {
  Rack rack(one_job(2));
  rack.submit_all({1, 10});
  rack.drop(kGrad);
  rack.time_out(0);
  rack.deliver_all();
  rack.time_out(0);
  rack.pass(kQuery);
  rack.deliver(kPoll);
  rack.duplicate(kPoll);
  rack.deliver(kPoll);
  rack.release(kPoll);
  rack.deliver(kPoll);
  rack.duplicate(kDefer);
  rack.release(kDefer);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  EXPECT_EQ(rack.engine(0).fallback()->counters().raws, 2u);
  EXPECT_EQ(rack.engine(0).fallback()->counters().decided, 1u);
}

TEST(Scenario, have_lost_then_repoll) {
  Rack rack(one_job(2));
  rack.submit_all({1, 10});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 1});
  rack.deliver(kResult);
  rack.time_out(1);
  rack.pass(kQuery);
  rack.pass(kPoll);
  rack.drop(kHave);
  rack.deliver_all();
  EXPECT_FALSE(rack.done(1));
  rack.time_out(1);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  EXPECT_EQ(rack.engine(0).fallback()->counters().polls, 2u);
  EXPECT_EQ(rack.engine(0).fallback()->counters().decided_by_have, 1u);
}

/// Rank 0 has all it wants when rank 1 still misses the last result.
Values last_result_missed() {
  Rack rack(one_job(2));
  rack.submit_all({1, 10});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 1});
  rack.deliver(kResult);
  if (!rule(Rule::kLeaveBarrier)) rack.leave(0);
  ask_until_done(rack, 1);
  return rack.got_all();
}

TEST(Scenario, last_worker_lingers) {
  EXPECT_EQ(last_result_missed(), (Values{11, 11}));
  const Without without(Rule::kLeaveBarrier);
  EXPECT_EQ(last_result_missed(), (Values{11, -1})) << "the leaver was home and only witness";
}

// ---- stragglers

TEST(Scenario, poll_unsent_worker_notyet) {
  Rack rack(one_job(2));
  rack.submit(0, {1});
  rack.deliver(kGrad);
  rack.time_out(0);
  rack.pass(kQuery);
  rack.pass(kPoll);
  EXPECT_EQ(rack.count(kSent), 1u);
  EXPECT_EQ(rack.count({.type = Type::kNotYet, .of = 1}), 1u);
  rack.deliver_all();
  rack.submit(1, {10});
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  EXPECT_EQ(rack.counters().results, 1u) << "by the switch, which nobody is barred from";
  EXPECT_EQ(rack.engine(0).counters().results_ignored, 0u);
}

TEST(Scenario, straggler_causes_no_flush) {
  Rack rack(one_job(3));
  rack.submit(0, {1});
  rack.submit(1, {10});
  rack.deliver(kGrad);
  for (int i = 0; i < 8; ++i) {
    rack.time_out(0);
    rack.time_out(1);
    rack.deliver_all();
  }
  EXPECT_EQ(rack.engine(0).counters().queries, 8u);
  const aggregator::FallbackCounters& fallback = rack.engine(0).fallback()->counters();
  EXPECT_EQ(fallback.reminds, 0u);
  EXPECT_EQ(rack.counters().slots_used, 1u) << "the slot keeps what it has";
  rack.submit(2, {100});
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{111, 111, 111}));
  EXPECT_EQ(rack.counters().results, 1u);
  EXPECT_EQ(rack.counters().parts, 0u);
  EXPECT_EQ(fallback.raws, 0u);
}

TEST(Scenario, home_worker_paused) {
  Rack rack(one_job(3));
  rack.submit(0, {1, 2});
  rack.submit(1, {10, 20});
  rack.submit(2, {100, 200});
  rack.deliver(kGrad);
  rack.drop({.type = Type::kResult, .to = 1});
  rack.deliver(kResult);
  // Rank 0, the home of fragment 0, hears nothing for a while; rank 1 is home to fragment 1.
  Match to_home;
  to_home.to = 0;
  for (int i = 0; i < 3; ++i) {
    rack.time_out(1);
    while (rack.count({}) != 0) {
      if (rack.count(to_home) != 0)
        rack.hold(to_home);
      else
        rack.deliver({});
    }
  }
  EXPECT_EQ(rack.engine(1).counters().results, 1u) << "fragment 1 came by rank 2's help";
  EXPECT_EQ(rack.engine(1).low(), Seq{0});
  rack.release({});
  rack.deliver_all();
  EXPECT_EQ(rack.got(1), (Values{111, 222}));
  EXPECT_EQ(rack.engine(0).fallback()->counters().queries, 3u);
  EXPECT_EQ(rack.engine(0).fallback()->counters().decided, 1u);
}

}  // namespace
}  // namespace ina::sim
