// Traces about slots: allocation, sums that leave, and contributions that must not count twice.
// Each runs with the rule that protects it, and again without, to prove that it can fail.
#include <gtest/gtest.h>

#include "tests/sim/script.h"

namespace ina::sim {
namespace {

using wire::Type;
using Values = std::vector<float>;

constexpr Match kGrad{.type = Type::kGrad};
constexpr Match kPart{.type = Type::kPart};
constexpr Match kResult{.type = Type::kResult};

// Float sums that tell the order of their making: of 1e8, -1e8 and 1, the last addend survives.
constexpr float kBig = 1e8f;
constexpr float kBigsFirst = 1;
constexpr float kOneLost = 0;

/// One slot for all; job 0 is urgent for nobody, job 1 takes the slot from it.
Script one_slot(uint32_t workers, uint32_t urgent_workers = 1, bool residual = true) {
  Script script;
  script.slots = 1;
  script.policy.residual = residual;
  script.jobs = {{.workers = workers, .priority = 10}, {.workers = urgent_workers, .priority = 20}};
  return script;
}

/// The urgent job's one worker takes the slot and is through at once: the slot is empty again.
void hammer(Rack& rack) {
  rack.submit(0, {1}, 1);
  rack.deliver({.type = Type::kGrad, .job = 1});
  rack.deliver({.type = Type::kResult, .job = 1});
}

// ---- partial sums

Values base_complete() {
  Rack rack(one_slot(2));
  rack.submit_all({1, 10});
  rack.deliver({.type = Type::kGrad, .of = 0});
  hammer(rack);
  EXPECT_EQ(rack.counters().preemptions, 1u);
  EXPECT_EQ(rack.count(kPart), 1u) << "the victim is on its way to the fallback";
  rack.deliver({.type = Type::kGrad, .of = 1});  // with the residual's bits that is all of them
  rack.deliver_all();
  EXPECT_EQ(rack.engine(0).counters().queries + rack.engine(1).counters().queries, 0u);
  EXPECT_EQ(rack.counters().slots_used, 0u);
  return rack.got_all();
}

TEST(Scenario, base_complete_goes_to_fallback) {
  EXPECT_EQ(base_complete(), (Values{11, 11}));
  const Without without(Rule::kPartialTest);
  EXPECT_EQ(base_complete(), (Values{10, 10})) << "the partial sum was sent as the result";
}

/// Two bypass while others hold the slot; the third finds it empty.
void bypass_two(Rack& rack) {
  rack.submit_all({1, 10}, 1);
  rack.deliver({.type = Type::kGrad, .of = 0, .job = 1});
  rack.submit_all({1, 10, 100});
  rack.deliver({.type = Type::kGrad, .of = 0});
  rack.deliver({.type = Type::kGrad, .of = 1});
  EXPECT_EQ(rack.counters().bypassed, 2u);
  rack.deliver({.type = Type::kGrad, .of = 1, .job = 1});
  rack.deliver({.type = Type::kGrad, .of = 2});
  rack.deliver_all();
}

TEST(Scenario, residual_or_bypassed) {
  Rack rack(one_slot(3, 2));
  bypass_two(rack);
  EXPECT_EQ(rack.got_all(), (Values{111, 111, 111})) << "nobody had to time out";
  EXPECT_EQ(rack.got_all(1), (Values{11, 11}));
  EXPECT_EQ(rack.counters().slots_used, 0u);

  Rack forgetful(one_slot(3, 2, false));
  bypass_two(forgetful);
  EXPECT_EQ(forgetful.got_all(), (Values{-1, -1, -1})) << "the last one waits in the slot";
  EXPECT_EQ(forgetful.counters().slots_used, 1u);
}

/// Leaves one of three contributions late; the others are flushed.
void flush_two(Rack& rack) {
  rack.submit_all({1, 10, 100});
  rack.hold({.type = Type::kGrad, .of = 2});
  rack.deliver(kGrad);
  rack.time_out(0);
  rack.deliver_all();  // QUERY, POLL, three times SENT, REMIND, PART
  EXPECT_EQ(rack.counters().reminders, 1u);
  EXPECT_EQ(rack.counters().slots_used, 0u);
  EXPECT_EQ(rack.engine(0).fallback()->counters().parts, 1u);
}

TEST(Scenario, residual_after_remind) {
  Rack rack({.jobs = {{.workers = 3}}});
  flush_two(rack);
  rack.release(kGrad);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{111, 111, 111})) << "the residual knew that two had gone";
  EXPECT_EQ(rack.engine(0).fallback()->counters().raws, 0u);

  Script forgetful{.jobs = {{.workers = 3}}};
  forgetful.policy.residual = false;
  Rack other(forgetful);
  flush_two(other);
  other.release(kGrad);
  other.deliver_all();
  EXPECT_EQ(other.got_all(), (Values{-1, -1, -1}));
  EXPECT_EQ(other.counters().slots_used, 1u) << "until somebody asks again";
}

// ---- duplicates

/// A fragment decided by the fallback, whose result one worker missed, met by late duplicates of
/// all its contributions. Returns what the three got: they must agree.
Values late_duplicates(bool older_than_half_a_window) {
  Rack rack(one_slot(3, 1, false));
  rack.submit(0, {kBig, 0, 0, 0});
  rack.submit(1, {-kBig, 0, 0, 0});
  rack.submit(2, {1, 0, 0, 0});
  rack.duplicate({.type = Type::kGrad, .seq = 0});
  // (1e8) + (-1e8 + 1)
  rack.deliver({.type = Type::kGrad, .of = 0, .seq = 0});
  hammer(rack);
  rack.deliver({.type = Type::kGrad, .of = 1, .seq = 0});
  rack.deliver({.type = Type::kGrad, .of = 2, .seq = 0});
  hammer(rack);
  rack.deliver(kPart);
  rack.deliver({.type = Type::kResult, .to = kSwitch});
  rack.drop({.type = Type::kResult, .to = 2});
  if (older_than_half_a_window) {
    rack.deliver({.type = Type::kGrad, .of = 0, .seq = 3});
    hammer(rack);
    rack.hold(kPart);
  }
  rack.hold({.type = Type::kGrad, .seq = 1});
  rack.hold({.type = Type::kGrad, .seq = 2});
  if (rack.count({.type = Type::kGrad, .seq = 3}) != 0) rack.hold({.type = Type::kGrad, .seq = 3});
  rack.release({.type = Type::kGrad, .seq = 0});
  rack.deliver({.type = Type::kGrad, .of = 0, .seq = 0});  // 1e8 - 1e8 + 1
  rack.deliver({.type = Type::kGrad, .of = 1, .seq = 0});
  rack.deliver({.type = Type::kGrad, .of = 2, .seq = 0});
  if (rule(Rule::kAntiReplay) && rule(Rule::kReplayTooOld)) {
    EXPECT_EQ(rack.dropped(), DropReason::kDuplicate);
  }
  rack.deliver_all();
  rack.release(kGrad);
  if (older_than_half_a_window) rack.release(kPart);
  rack.deliver_all();
  for (int rounds = 0; rounds < 4 && !rack.done(2); ++rounds) {
    rack.time_out(2);
    rack.deliver_all();
  }
  return rack.got_all();
}

TEST(Scenario, replay_window_too_old_dropped) {
  EXPECT_EQ(late_duplicates(true), (Values{kOneLost, kOneLost, kOneLost}));
  EXPECT_EQ(late_duplicates(false), (Values{kOneLost, kOneLost, kOneLost}));
  {
    const Without without(Rule::kReplayTooOld);
    EXPECT_EQ(late_duplicates(true), (Values{kOneLost, kOneLost, kBigsFirst})) << "no agreement";
    EXPECT_EQ(late_duplicates(false), (Values{kOneLost, kOneLost, kOneLost}))
        << "half a window is enough while nobody runs ahead";
  }
  const Without without(Rule::kAntiReplay);
  EXPECT_EQ(late_duplicates(false), (Values{kOneLost, kOneLost, kBigsFirst}));
}

/// A contribution arrives when the fallback has long decided without it. Returns the slots that it
/// holds.
uint64_t late_grad() {
  Script script;
  script.policy.residual = false;  // otherwise the slot knows that all others have gone
  script.jobs = {{.workers = 2}};
  Rack rack(script);
  rack.submit_all({1, 10});
  rack.hold({.type = Type::kGrad, .of = 1});
  rack.deliver(kGrad);
  rack.time_out(0);
  rack.deliver_all();  // all have sent; the slot is flushed
  rack.time_out(0);
  rack.deliver_all();  // all are bound; rank 1 contributes again
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  EXPECT_EQ(rack.engine(1).counters().raws_sent, 1u);
  EXPECT_EQ(rack.engine(0).counters().raws_sent, 0u);
  rack.release(kGrad);
  rack.deliver_all();
  if (rule(Rule::kAntiReplay)) {
    EXPECT_EQ(rack.dropped(), DropReason::kDuplicate);
  }
  return rack.counters().slots_used;
}

TEST(Scenario, zombie_late_grad_snooped) {
  EXPECT_EQ(late_grad(), 0u) << "the switch had seen the fallback's result pass";
  const Without without(Rule::kAntiReplay);
  EXPECT_EQ(late_grad(), 1u) << "a zombie: nobody will ever complete it";
}

/// A duplicate of fragment 0 comes back when fragment 64 is being summed. Returns the sum of that.
float zombie_of_last_wrap() {
  constexpr int kFragments = 65;
  Rack rack({.jobs = {{.workers = 2}}});
  Values ours(kFragments, 1);
  ours[0] = 500;
  rack.submit(0, ours);
  rack.duplicate({.type = Type::kGrad, .of = 0, .seq = 0});
  rack.submit(1, Values(kFragments, 10));
  while (rack.engine(0).low() < Seq{64} || rack.engine(1).low() < Seq{64}) {
    rack.deliver({.type = Type::kGrad, .seq = static_cast<int>(rack.engine(0).low().value)});
    rack.deliver(kResult);
    if (testing::Test::HasFailure()) return -1;
  }
  rack.release({.type = Type::kGrad, .seq = 0});
  rack.deliver({.type = Type::kGrad, .seq = 0});
  if (rule(Rule::kWideKey)) {
    EXPECT_EQ(rack.dropped(), DropReason::kTooOld);
  }
  rack.deliver_all();
  return rack.done(1) ? rack.got(1)[64] : -1;
}

TEST(Scenario, zombie_across_seq_wrap) {
  EXPECT_EQ(zombie_of_last_wrap(), 11.0f);
  // The simulator's narrow numbers repeat every 64 fragments, as those on the wire do every 2^32.
  const Without without(Rule::kWideKey);
  EXPECT_EQ(zombie_of_last_wrap(), 510.0f);
}

// ---- fcfs

TEST(Scenario, fcfs_zombie_reaped) {
  Script script;
  script.policy.kind = scheduler::PolicyKind::kFcfs;
  script.policy.residual = false;  // otherwise the slot knows that all others have gone
  script.slots = 1;
  Rack rack(script);
  const auto round = [&] {
    rack.submit_all({1, 10});
    rack.deliver_all();
    EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  };
  rack.submit_all({1, 10});
  rack.duplicate({.type = Type::kGrad, .of = 0});
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  EXPECT_EQ(rack.counters().slots_used, 0u) << "the fallback's result is the acknowledgement";
  {
    // Anti-replay would keep it out.
    const Without without(Rule::kAntiReplay);
    rack.release(kGrad);
    rack.deliver_all();
  }
  EXPECT_EQ(rack.counters().slots_used, 1u);
  for (int i = 0; i < 7; ++i) round();
  EXPECT_EQ(rack.counters().bypassed, 14u) << "under fcfs nobody can preempt it";
  EXPECT_EQ(rack.counters().slots_used, 1u);
  round();  // fragment 8 = 2W proves that everyone has fragment 0
  EXPECT_EQ(rack.counters().bypassed, 14u);
  EXPECT_EQ(rack.counters().slots_used, 0u);
  EXPECT_EQ(rack.counters().contributions_discarded, 1u);
}

Script fcfs() {
  Script script;
  script.policy.kind = scheduler::PolicyKind::kFcfs;
  return script;
}

TEST(Scenario, fcfs_frozen_part_resent) {
  Rack rack(fcfs());
  rack.submit_all({1, 10});
  rack.deliver(kGrad);
  EXPECT_EQ(rack.count(kPart), 1u);
  rack.drop(kPart);
  EXPECT_EQ(rack.counters().slots_used, 1u) << "frozen until it is acknowledged";
  rack.time_out(0);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{11, 11}));
  EXPECT_EQ(rack.counters().parts, 2u) << "the same one twice";
  EXPECT_EQ(rack.counters().reminders, 1u);
  EXPECT_EQ(rack.engine(0).fallback()->counters().raws, 0u);
  EXPECT_EQ(rack.counters().slots_used, 0u);
}

// ---- REMIND

/// Delivers one REMIND three times. Returns the sum at each worker.
Values reminded_thrice(const Script& script) {
  Rack rack(script);
  rack.submit_all({1, 10, 100});
  rack.hold({.type = Type::kGrad, .of = 2});
  rack.deliver(kGrad);
  rack.time_out(0);
  rack.pass({.type = Type::kQuery});
  rack.pass({.type = Type::kPoll});
  rack.pass({.type = Type::kSent});
  const Match remind{.type = Type::kRemind};
  rack.duplicate(remind);
  rack.duplicate(remind);
  rack.deliver(remind);
  rack.deliver(kPart);
  rack.release(remind);
  rack.deliver(remind);  // both
  if (rack.count(kPart) != 0) rack.deliver(kPart);
  rack.release(kGrad);
  rack.deliver_all();
  EXPECT_EQ(rack.engine(0).fallback()->counters().raws, 0u);
  return rack.got_all();
}

TEST(Scenario, duplicate_remind_harmless) {
  Script esa;
  esa.jobs = {{.workers = 3}};
  EXPECT_EQ(reminded_thrice(esa), (Values{111, 111, 111}));
  Script frozen = fcfs();
  frozen.jobs = {{.workers = 3}};
  EXPECT_EQ(reminded_thrice(frozen), (Values{111, 111, 111}));
  const Without without(Rule::kDisjointMerge);
  EXPECT_EQ(reminded_thrice(frozen), (Values{133, 133, 133})) << "fcfs sends the same PART again";
}

}  // namespace
}  // namespace ina::sim
