#include "fragments/deadlines.h"

#include <gtest/gtest.h>

namespace ina::client {
namespace {

constexpr Nanos kRto = 1'000'000;

EngineConfig config() {
  EngineConfig config;
  config.window = 16;
  config.slot_bytes = 256;
  config.rules.policy = scheduler::PolicyKind::kFcfs;
  config.rules.home = Home::kDedicated;
  config.lossy_link = true;
  config.rules.rto_min_ns = kRto;
  config.rules.rto_max_ns = 8 * kRto;
  return config;
}

class DeadlinesTest : public testing::Test {
 protected:
  DeadlinesTest() {
    operation_.spec = {.elements = 64 * 16, .dtype = DType::kInt32};
    operation_.cut(256, Rank{});
  }
  Fragment& send(Nanos now) {
    const Seq seq = flow_.ring.next();
    Fragment& fragment = flow_.ring.start_next();
    deadlines_.mark_sent(seq, operation_, now);
    return fragment;
  }

  Flow flow_{config()};
  Deadlines deadlines_{flow_};
  Operation operation_;
};

TEST_F(DeadlinesTest, TheFirstOneCounts) {
  EXPECT_EQ(deadlines_.next(), Deadlines::kNever);
  Fragment& first = send(5);
  send(9);
  EXPECT_EQ(first.deadline, 5 + kRto);
  EXPECT_EQ(deadlines_.next(), 5 + kRto);
  deadlines_.bring_forward(first, 7 + kRto);
  EXPECT_EQ(first.deadline, 5 + kRto) << "it was earlier";
}

TEST_F(DeadlinesTest, ALinkThatLosesMakesImpatientForSomeWindows) {
  flow_.timeouts.round_trip.sample(1000, 0);
  Fragment& before = send(0);
  EXPECT_EQ(before.deadline, kRto);
  deadlines_.link_loses(Seq{0});
  EXPECT_TRUE(deadlines_.loses_now(Seq{63}));
  EXPECT_FALSE(deadlines_.loses_now(Seq{64})) << "four windows later";
  EXPECT_LT(send(0).deadline, kRto);
}

TEST_F(DeadlinesTest, WithSlotsOfItsOwnNothingIsAskedSooner) {
  EngineConfig fixed = config();
  fixed.rules.policy = scheduler::PolicyKind::kStatic;
  flow_.play_by(fixed.rules);
  deadlines_.link_loses(Seq{0});
  EXPECT_TRUE(deadlines_.lost_lately(Seq{0}));
  EXPECT_FALSE(deadlines_.loses_now(Seq{0}));
}

TEST_F(DeadlinesTest, PatienceIsForgottenWithTheSwitch) {
  Fragment& fragment = send(0);
  fragment.timeouts = 5;
  deadlines_.set(fragment, 8 * kRto);
  deadlines_.forget_patience(kRto);
  EXPECT_EQ(fragment.timeouts, 0);
  EXPECT_EQ(fragment.deadline, 2 * kRto);
}

}  // namespace
}  // namespace ina::client
