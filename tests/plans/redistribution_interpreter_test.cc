#include "plans/redistribution/interpreter.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plans/redistribution/planner.h"
#include "plans/redistribution/routes.h"

namespace ina::redistribution {
namespace {

Problem problem_of(const char* mesh, Shape shape, const char* from, const char* to) {
  Problem problem{*Mesh::parse(mesh), std::move(shape), 2, {}, {}, {}, 0};
  problem.from = *parse_layout(problem.mesh, from);
  problem.to = *parse_layout(problem.mesh, to);
  return problem;
}

TEST(RedistributionInterpreter, MovesElementsToTheirPlaces) {
  // A matrix by rows becomes one by columns.
  const Problem problem = problem_of("x=2", {2, 4}, "x,-", "-,x");
  Observation seen;
  const auto moved = interpret(*plan_by(problem, Method::kSynthesised),
                               {{10, 11, 12, 13}, {20, 21, 22, 23}}, seen);
  ASSERT_TRUE(moved);
  EXPECT_EQ((*moved)[0], (Tile{10, 11, 20, 21}));
  EXPECT_EQ((*moved)[1], (Tile{12, 13, 22, 23}));
  EXPECT_EQ(seen.sent_bytes, (std::vector<uint64_t>{4, 4}));
  EXPECT_EQ(seen.peak_bytes, 16u);  // in and out, of 4 elements of 2 bytes each
}

TEST(RedistributionInterpreter, NoticesAWrongPlan) {
  // verify() compares tiles with a layout, as is done here with the right and with the wrong one.
  const Problem problem = problem_of("x=2,y=2", {4}, "x*y", "y*x");
  EXPECT_EQ(verify(*plan_by(problem, Method::kSynthesised))->wrong_elements, 0u);
  Observation seen;
  std::vector<Tile> tiles;
  for (uint32_t rank = 0; rank < 4; ++rank) tiles.push_back({rank});
  const auto moved = interpret(*plan_by(problem, Method::kSynthesised), tiles, seen);
  for (uint32_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ((*moved)[rank], index_tile(problem.mesh, problem.to, problem.shape, rank));
  EXPECT_NE((*moved)[1], index_tile(problem.mesh, problem.from, problem.shape, 1));
}

TEST(RedistributionInterpreter, RefusesTilesOfAnotherSize) {
  const Problem problem = problem_of("x=2", {2, 4}, "x,-", "-,x");
  const Plan plan = *plan_by(problem, Method::kSynthesised);
  Observation seen;
  EXPECT_EQ(interpret(plan, {{1, 2, 3, 4}}, seen).error(), "1 tiles were given for 2 ranks");
  EXPECT_EQ(interpret(plan, {{1, 2, 3, 4}, {1}}, seen).error(),
            "rank 1 has 1 elements, its tile 4");
}

TEST(RedistributionInterpreter, PiecesHoldTheElementsThatThePlanSays) {
  // Tiles of 6 and 4 elements: the grain is 2, and every piece has one element of each pair.
  const Problem problem = problem_of("x=2,y=3", {12}, "x", "y");
  const Plan whole = *plan_by(problem, Method::kDirect);
  const Pieces pieces = *whole.pieces_for(18);
  EXPECT_EQ(pieces, (Pieces{0, 2, 2}));
  const Observation seen = *verify(whole.cut(pieces));
  EXPECT_EQ(seen.wrong_elements, 0u);
  EXPECT_EQ(seen.peak_bytes, whole.peak_bytes(2));
  EXPECT_EQ(seen.peak_bytes, 16u);
}

TEST(RedistributionRoutes, APermutationMovesEachTileOnce) {
  const Mesh mesh = *Mesh::parse("x=4,y=2,z=3");
  const Layout from = *parse_layout(mesh, "x,y"), to = *parse_layout(mesh, "x.1*y,x.0");
  const auto sources = permutation(mesh, from, to);
  std::vector<int> sends(mesh.ranks());
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) ++sends[sources[rank]];
  EXPECT_EQ(std::accumulate(sends.begin(), sends.end(), 0), 24);
  for (const int count : sends) EXPECT_EQ(count, 1);
}

TEST(RedistributionRoutes, WhoHasItsTileKeepsIt) {
  const Problem problem = problem_of("x=2,y=2", {16, 16}, "x,y", "y,x");
  EXPECT_EQ(permutation(problem.mesh, problem.from, problem.to),
            (std::vector<uint32_t>{0, 2, 1, 3}));
  const Observation seen = *verify(*plan_by(problem, Method::kSynthesised));
  EXPECT_EQ(seen.sent_bytes, (std::vector<uint64_t>{0, 128, 128, 0}));
  // Replicas: odd ranks have the second half, the last four want it.
  const Problem halves = problem_of("x=2,y=4", {16}, "y.0", "x");
  EXPECT_EQ(permutation(halves.mesh, halves.from, halves.to),
            (std::vector<uint32_t>{0, 4, 2, 6, 1, 5, 3, 7}));
}

TEST(RedistributionRoutes, NobodyAsksAnotherForWhatItHas) {
  const Mesh mesh = *Mesh::parse("x=4,y=2");
  const Layout from = *parse_layout(mesh, "y,-");
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(holder(mesh, from, {part_index(mesh, from[0], rank), 0}, rank), rank);
    // The other half comes from the rank of the same x.
    EXPECT_EQ(holder(mesh, from, {1 - part_index(mesh, from[0], rank), 0}, rank), rank ^ 1);
  }
  const Load load = exchange_load(mesh, {8, 8}, from, *parse_layout(mesh, "-,x"));
  EXPECT_EQ(load.received_elements, 8u);
  EXPECT_EQ(load.sent_elements, 8u);
  EXPECT_EQ(load.messages, 1u);
}

}  // namespace
}  // namespace ina::redistribution
