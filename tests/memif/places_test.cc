// Who may have a control connection of the bridge, and who gives one up.
#include "programs/memif/places.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::memif {
namespace {

constexpr uint64_t kAlice = 1000, kBob = 1001, kCarol = 1002;
constexpr bool kWorking = true;

TEST(Places, AUserHasHalfOfThem) {
  EXPECT_EQ(places_per_user(72), 36u);
  const std::vector<Place> places = {{kAlice}, {kBob}, {kAlice, kWorking}};
  EXPECT_EQ(places_of(places, kAlice), 2u);
  EXPECT_EQ(places_of(places, kCarol), 0u);
}

TEST(Places, TheOldestWithoutAWorkerOfTheGreediestUserIsGivenUp) {
  const std::vector<Place> places = {{kBob},  {kAlice, kWorking}, {kAlice}, {kAlice}, {kBob},
                                     {kAlice}};
  EXPECT_EQ(place_to_give_up(places, kCarol), 2u);
  EXPECT_EQ(place_to_give_up(places, kBob), std::nullopt) << "it would have as many";
  EXPECT_EQ(place_to_give_up(places, kAlice), std::nullopt);
}

TEST(Places, WorkersKeepTheirs) {
  const std::vector<Place> places = {
      {kAlice, kWorking}, {kAlice, kWorking}, {kAlice, kWorking}, {kAlice}, {kBob}, {kBob}};
  EXPECT_EQ(place_to_give_up(places, kCarol), 4u) << "Alice has one that may go, Bob has two";
  EXPECT_EQ(place_to_give_up(std::vector<Place>(4, {kAlice, kWorking}), kCarol), std::nullopt);
}

TEST(Places, NobodyGivesUpTheOnlyOne) {
  EXPECT_EQ(place_to_give_up(std::vector<Place>{{kAlice}, {kBob}}, kCarol), std::nullopt);
  EXPECT_EQ(place_to_give_up({}, kCarol), std::nullopt);
}

}  // namespace
}  // namespace ina::memif
