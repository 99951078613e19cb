#include "fragments/fragment_ring.h"

#include <gtest/gtest.h>

namespace ina::client {
namespace {

constexpr uint32_t kWindow = 4;

TEST(FragmentRing, PassesWhatIsDoneInOrder) {
  FragmentRing ring(kWindow);
  for (int i = 0; i < 3; ++i) ring.start_next().state = Fragment::State::kSent;
  EXPECT_EQ(ring.next(), Seq{3});
  EXPECT_TRUE(ring.awaits(Seq{2}));
  EXPECT_FALSE(ring.awaits(Seq{3})) << "still to be sent";

  ring[Seq{1}].state = Fragment::State::kDone;
  ring.pass_done();
  EXPECT_EQ(ring.low(), Seq{0}) << "the oldest is not done";
  EXPECT_TRUE(ring.has_result(Seq{1}));
  EXPECT_FALSE(ring.has_result(Seq{0}));

  ring[Seq{0}].state = Fragment::State::kDone;
  ring.pass_done();
  EXPECT_EQ(ring.low(), Seq{2});
  EXPECT_TRUE(ring.has_result(Seq{0}));
  EXPECT_FALSE(ring.is_started(Seq{1})) << "below what is open";
}

TEST(FragmentRing, KeepsWhatIsDoneUntilItsPlaceIsNeeded) {
  FragmentRing ring(kWindow);
  for (uint64_t i = 0; i < 2 * kWindow; ++i) {
    Fragment& fragment = ring.start_next();
    fragment.state = Fragment::State::kDone;
    fragment.elements = static_cast<uint16_t>(1 + i);
    ring.pass_done();
  }
  EXPECT_EQ(ring[Seq{0}].elements, 1u);
  EXPECT_EQ(ring.start_next().elements, 0u) << "the place of fragment 0, as new";
  EXPECT_EQ(ring[Seq{1}].elements, 2u);
}

TEST(FragmentRing, ForgetsAnOperationsFragments) {
  FragmentRing ring(kWindow);
  Operation ended, next;
  ended.first_seq = Seq{0};
  ended.fragments = 2;
  for (int i = 0; i < 4; ++i) ring.start_next().operation = i < 2 ? &ended : &next;
  ring.forget(ended);
  EXPECT_EQ(ring[Seq{1}].operation, nullptr);
  EXPECT_EQ(ring[Seq{2}].operation, &next);
}

}  // namespace
}  // namespace ina::client
