// Traces about restarts: of the switch, and of a fallback server. Messages of or for one life must
// not be taken for the next life's. Each runs with the rule that protects it, and again without, to
// prove that it can fail.
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
constexpr Match kStale{.type = Type::kStale};

// 1e8 - 1e8 + 1 = 1, but 1e8 + 1 - 1e8 = 0: the sum tells in which order it was made.
constexpr float kBig = 1e8f;
const Values kInputs{kBig, -kBig, 1};

Script one_job(scheduler::PolicyKind kind = scheduler::PolicyKind::kEsa) {
  Script script;
  script.policy.kind = kind;
  script.jobs = {{.workers = 3}};
  return script;
}

void ask_until_done(Rack& rack, uint32_t rank) {
  for (int rounds = 0; rounds < 6 && !rack.done(rank); ++rounds) {
    rack.time_out(rank);
    rack.deliver_all();
  }
}

/// Each of the three contributions is alone in its PART, because another job holds the only slot.
/// They are left in flight to the fallback.
void bypass_all(Rack& rack) {
  rack.submit(0, {1}, 1);
  rack.deliver({.type = Type::kGrad, .job = 1});
  rack.submit_all(kInputs);
  rack.duplicate(kGrad);
  rack.deliver(kGrad);
  EXPECT_EQ(rack.count(kPart), 3u);
}

Script two_jobs_one_slot(Home home) {
  Script script = one_job();
  script.home = home;
  script.slots = 1;
  script.policy.decay = scheduler::Decay::kNone;
  script.jobs.push_back({.workers = 2, .priority = 20});
  return script;
}

/// The fallback adds 0, 2, 1 and says 0.
void decide_zero(Rack& rack) {
  for (const int of : {0, 2, 1}) rack.deliver({.type = Type::kPart, .of = of});
}

// ---- of the switch

/// The fallback has decided before the restart; rank 2 missed it. Late copies of the contributions
/// reach the new switch.
Values old_grads() {
  Rack rack(two_jobs_one_slot(Home::kWorkers));
  bypass_all(rack);
  decide_zero(rack);
  rack.deliver({.type = Type::kResult, .to = kSwitch});
  rack.drop({.type = Type::kResult, .to = 2});
  rack.deliver(kResult);
  rack.restart_switch();
  rack.release(kGrad);
  rack.deliver(kGrad);
  if (rule(Rule::kEpochCheck)) {
    EXPECT_EQ(rack.dropped(), DropReason::kStaleEpoch);
    EXPECT_EQ(rack.counters().slots_used, 0u);
    EXPECT_EQ(rack.count(kStale), 3u);
  }
  rack.deliver_all();
  if (rule(Rule::kEpochCheck)) {
    EXPECT_EQ(rack.engine(1).config().epoch, rack.epoch()) << "the notice told it";
  }
  ask_until_done(rack, 2);
  return rack.got_all();
}

TEST(Scenario, old_epoch_grads_after_restart) {
  EXPECT_EQ(old_grads(), (Values{0, 0, 0}));
  const Without without(Rule::kEpochCheck);
  EXPECT_EQ(old_grads(), (Values{0, 0, 1})) << "no agreement";
}

/// The fallback's result is lost for ranks 0 and 1 and late for rank 2; then the switch restarts
/// and all join again.
Values rejoined() {
  Rack rack(two_jobs_one_slot(Home::kWorkers));
  bypass_all(rack);
  decide_zero(rack);
  rack.deliver({.type = Type::kResult, .to = kSwitch});
  rack.drop({.type = Type::kResult, .to = 0});
  rack.drop({.type = Type::kResult, .to = 1});
  rack.hold({.type = Type::kResult, .to = 2});
  rack.restart_switch();
  for (const uint32_t rank : {0u, 1u, 2u}) rack.rejoin(rank);
  for (const uint32_t rank : {0u, 1u, 2u}) rack.time_out(rank);
  EXPECT_EQ(rack.count(kGrad), rule(Rule::kOneEpoch) ? 0u : 3u);
  EXPECT_EQ(rack.count(kQuery), rule(Rule::kOneEpoch) ? 3u : 0u);
  rack.release({.type = Type::kResult, .to = 2});
  rack.deliver({.type = Type::kResult, .to = 2});
  rack.deliver_all();
  return rack.got_all();
}

TEST(Scenario, rejoin_does_not_resend) {
  EXPECT_EQ(rejoined(), (Values{0, 0, 0}));
  const Without without(Rule::kOneEpoch);
  EXPECT_EQ(rejoined(), (Values{1, 1, 0})) << "no agreement";
}

TEST(Scenario, stale_notice_lost) {
  Rack rack(one_job());
  rack.submit(0, {1, 2});
  rack.submit(1, {10, 20});
  rack.submit(2, {100, 200});
  rack.restart_switch();
  rack.deliver(kGrad);  // still of the old epoch
  EXPECT_EQ(rack.count(kStale), 6u);
  rack.drop(kStale);
  EXPECT_EQ(rack.engine(0).config().epoch, 1u);
  rack.time_out(0);
  rack.deliver_all();
  rack.time_out(0);
  rack.deliver_all();
  for (const uint32_t rank : {0u, 1u, 2u}) EXPECT_EQ(rack.got(rank), (Values{111, 222}));
  EXPECT_EQ(rack.engine(0).config().epoch, 1u) << "the fallback needs no epoch to help";

  // The next contributions are refused, too, and this time the notice arrives.
  rack.submit_all({1, 10, 100});
  rack.deliver_all();
  for (const uint32_t rank : {0u, 1u, 2u})
    EXPECT_EQ(rack.engine(rank).config().epoch, rack.epoch());
  ask_until_done(rack, 0);
  EXPECT_EQ(rack.got_all(), (Values{111, 111, 111}));
  EXPECT_EQ(rack.counters().results, 0u);
  rack.submit_all({2, 20, 200});
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{222, 222, 222}));
  EXPECT_EQ(rack.counters().results, 1u) << "from then on the switch sums again";
}

/// Static slots: the old switch's result is late for rank 0 and lost for the others.
Values static_restart() {
  Rack rack(one_job(scheduler::PolicyKind::kStatic));
  rack.submit_all(kInputs);
  rack.deliver(kGrad);  // 1
  rack.drop({.type = Type::kResult, .to = 1});
  rack.drop({.type = Type::kResult, .to = 2});
  rack.hold({.type = Type::kResult, .to = 0});
  rack.restart_switch();
  for (const uint32_t rank : {0u, 2u, 1u}) {
    rack.rejoin(rank);
    rack.time_out(rank);
  }
  if (rule(Rule::kOneEpoch)) {
    EXPECT_EQ(rack.count(kGrad), 0u) << "what was sent in another epoch is asked for";
    EXPECT_EQ(rack.count(kQuery), 3u);
    rack.pass(kQuery);
    rack.pass(kPoll);  // STATUS for the first who asked, BIND as soon as all had
    EXPECT_EQ(rack.count({.type = Type::kDefer}), 3u);
    for (const int of : {0, 2, 1}) rack.pass({.type = Type::kDefer, .of = of});
  } else {
    rack.deliver(kGrad);  // 0
    rack.hold({.type = Type::kResult, .to = 0});
  }
  rack.release({.type = Type::kResult, .to = 0});  // the late one comes first
  rack.deliver_all();
  return rack.got_all();
}

TEST(Scenario, static_restart_no_reuse) {
  EXPECT_EQ(static_restart(), (Values{0, 0, 0}));
  const Without without(Rule::kOneEpoch);
  EXPECT_EQ(static_restart(), (Values{1, 0, 0})) << "no agreement";
}

/// Nor is anything sent to the switch again once a worker is bound.
TEST(Scenario, static_bound_worker_only_asks) {
  Rack rack(one_job(scheduler::PolicyKind::kStatic));
  rack.submit_all(kInputs);
  rack.drop(kGrad);
  for (int i = 0; i < 3; ++i) {
    rack.time_out(0);
    EXPECT_EQ(rack.count(kGrad), 1u) << "static slots: what may be lost is sent again";
    rack.drop(kGrad);
  }
  rack.time_out(0);
  rack.pass(kQuery);
  rack.pass(kPoll);
  rack.pass({.type = Type::kSent});
  rack.pass(kPoll);
  rack.drop({.type = Type::kDefer});
  rack.time_out(0);
  EXPECT_EQ(rack.count(kGrad), 0u);
  EXPECT_EQ(rack.count(kQuery), 1u);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{1, 1, 1}));
}

// ---- of a fallback server

/// Has all three bound by rank 0's questions, and their contributions added in this order.
void bind_and_add(Rack& rack, std::initializer_list<int> order) {
  rack.time_out(0);
  rack.deliver_all();  // STATUS
  rack.time_out(0);
  rack.pass(kQuery);
  rack.deliver({.type = Type::kRemind});
  rack.pass(kPoll);
  for (const int of : order) rack.pass({.type = Type::kDefer, .of = of});
}

/// The first life of the fallback decides 0, the second 1; the first's result is late.
Values late_result_of_the_first_life(bool late_before_the_switch) {
  Script script = one_job();
  script.home = Home::kDedicated;
  Rack rack(script);
  rack.submit_all(kInputs);
  rack.drop(kGrad);
  bind_and_add(rack, {0, 2, 1});
  if (!late_before_the_switch) {
    rack.deliver({.type = Type::kResult, .to = kSwitch});
    rack.drop({.type = Type::kResult, .to = 0});
    rack.drop({.type = Type::kResult, .to = 2});
  }
  rack.hold(kResult);
  rack.restart_fallback();
  bind_and_add(rack, {0, 1, 2});
  if (late_before_the_switch) {
    rack.hold(kResult);
    rack.release(kResult);  // the old one comes first
    rack.deliver({.type = Type::kResult, .to = kSwitch});
    EXPECT_EQ(rack.counters().drops[DropReason::kOldInstance], 1u);
  } else {
    rack.release({.type = Type::kResult, .to = 1});
    rack.deliver({.type = Type::kResult, .to = 1});
  }
  rack.deliver_all();
  return rack.got_all();
}

TEST(Scenario, result_of_old_fallback_instance) {
  EXPECT_EQ(late_result_of_the_first_life(false), (Values{1, 1, 1}));
  EXPECT_EQ(late_result_of_the_first_life(true), (Values{1, 1, 1}));
  const Without without(Rule::kInstance);
  EXPECT_EQ(late_result_of_the_first_life(false), (Values{1, 0, 1})) << "no agreement";
}

/// A late POLL of the first life does not loosen what binds to the second.
TEST(Scenario, bind_of_old_fallback_instance) {
  Script script = one_job();
  script.home = Home::kDedicated;
  Rack rack(script);
  rack.submit_all(kInputs);
  rack.drop(kGrad);
  rack.time_out(0);
  rack.deliver_all();  // STATUS
  rack.time_out(0);
  rack.pass(kQuery);
  rack.deliver({.type = Type::kPoll, .to = kSwitch});
  rack.hold({.type = Type::kPoll, .to = 1});
  rack.deliver(kPoll);
  rack.drop({.type = Type::kDefer});
  rack.drop({.type = Type::kRemind});
  rack.restart_fallback();
  bind_and_add(rack, {0, 1, 2});
  rack.hold(kResult);
  rack.release(kPoll);
  rack.deliver(kPoll);
  EXPECT_EQ(rack.count({.type = Type::kDefer}), 0u) << "not answered";
  rack.release(kResult);
  rack.deliver_all();
  EXPECT_EQ(rack.got_all(), (Values{1, 1, 1}));
}

/// The first life of the fallback has decided 0, which only rank 0 got. Copies of the partial sums
/// that it was sent reach the second life in another order.
Values old_parts() {
  Rack rack(two_jobs_one_slot(Home::kDedicated));
  bypass_all(rack);
  rack.duplicate(kPart);
  decide_zero(rack);
  rack.deliver({.type = Type::kResult, .to = kSwitch});
  rack.drop({.type = Type::kResult, .to = 1});
  rack.drop({.type = Type::kResult, .to = 2});
  rack.deliver(kResult);
  rack.restart_fallback();
  rack.release(kPart);
  rack.deliver(kPart);
  if (rule(Rule::kEpochBump)) {
    EXPECT_EQ(rack.fallback().counters().dropped, 3u);
    EXPECT_EQ(rack.fallback().counters().parts, 0u);
  }
  rack.deliver_all();
  ask_until_done(rack, 1);
  ask_until_done(rack, 2);
  return rack.got_all();
}

TEST(Scenario, dedicated_restart_old_parts) {
  EXPECT_EQ(old_parts(), (Values{0, 0, 0})) << "rank 0 had the first decision";
  const Without without(Rule::kEpochBump);
  EXPECT_EQ(old_parts(), (Values{0, 1, 1})) << "no agreement";
}

}  // namespace
}  // namespace ina::sim
