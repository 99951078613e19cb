#include "plans/redistribution/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "plans/redistribution/problem.h"

namespace ina::redistribution {
namespace {

Mesh mesh(const char* text) {
  return *Mesh::parse(text);
}

/// The layout in its own notation, or the error.
std::string again(const char* mesh_text, const char* layout) {
  const Mesh on = mesh(mesh_text);
  const auto parsed = parse_layout(on, layout);
  return parsed ? layout_text(on, *parsed) : parsed.error();
}

TEST(RedistributionMesh, RanksAreInRowMajorOrder) {
  const Mesh m = mesh("x=4,y=6");
  EXPECT_EQ(m.ranks(), 24u);
  EXPECT_EQ(m.text(), "x=4,y=6");
  for (uint32_t rank = 0; rank < m.ranks(); ++rank) {
    Stack x, y;
    for (const PrimeId axis : m.primes_of(0)) x.push(axis);
    for (const PrimeId axis : m.primes_of(1)) y.push(axis);
    EXPECT_EQ(part_index(m, x, rank), rank / 6);
    EXPECT_EQ(part_index(m, y, rank), rank % 6);
  }
}

TEST(RedistributionMesh, RefusesWhatIsNone) {
  EXPECT_EQ(Mesh::parse("x=4,x=2").error(), "the mesh names the axis x twice");
  EXPECT_EQ(Mesh::parse("x=0").error(), "the mesh axis x has no rank");
  EXPECT_EQ(Mesh::parse("x=4;y=2").error(),
            "'x=4;y=2' is no mesh axis; a mesh is written as x=4,y=2");
  EXPECT_EQ(Mesh::parse("4").error(), "'4' is no mesh axis; a mesh is written as x=4,y=2");
  EXPECT_EQ(Mesh::parse("2x=4").error(),
            "'2x' is no name of a mesh axis; names have letters, digits and _");
  EXPECT_EQ(Mesh::parse("x=65536,y=2").error(), "the mesh has more than 65536 ranks");
  EXPECT_EQ(Mesh::parse("x=99999999999").error(), "the mesh has more than 65536 ranks");
  EXPECT_EQ(check_ranks(mesh("x=4,y=2"), 6).error(),
            "the mesh x=4,y=2 has 8 positions, but the job has 6 ranks");
  EXPECT_TRUE(check_ranks(mesh("x=4,y=2"), 8));
}

TEST(RedistributionLayout, TheFirstAxisIsMajor) {
  const Mesh m = mesh("x=4,y=2");
  const Layout layout = *parse_layout(m, "x*y");
  const Shape shape{16};
  EXPECT_EQ(tile_shape(m, layout, shape), Shape{2});
  // rank = 2 i(x) + i(y): the tiles are in the order of the ranks.
  for (uint32_t rank = 0; rank < 8; ++rank) EXPECT_EQ(part_index(m, layout[0], rank), rank);
  const Layout other = *parse_layout(m, "y*x");
  std::set<uint64_t> seen;
  for (uint32_t rank = 0; rank < 8; ++rank) seen.insert(part_index(m, other[0], rank));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(part_index(m, other[0], 1), 4u);  // i(y) = 1
  EXPECT_EQ(part_index(m, other[0], 2), 1u);  // i(x) = 1
}

TEST(RedistributionLayout, IsPrintedAsItIsRead) {
  EXPECT_EQ(again("x=4,y=6", "y,-,x"), "y,-,x");
  EXPECT_EQ(again("x=4,y=6", "-,x*y,-"), "-,x*y,-");
  EXPECT_EQ(again("x=4,y=6", "y.0,x*y.1"), "y.0,x*y.1");
  EXPECT_EQ(again("x=4,y=6", "x.1*x.0,-"), "x,-");
  EXPECT_EQ(again("x=4,y=6", "x.0*x.1,-"), "x.0*x.1,-");
  EXPECT_EQ(again("x=4,one=1", "one*x"), "x");
}

TEST(RedistributionLayout, PartsOfAnAxisAreItsPrimesTheLeastFirstAndMinorMost) {
  const Mesh m = mesh("x=6");
  const Layout parts = *parse_layout(m, "x.0,x.1");
  for (uint32_t rank = 0; rank < m.ranks(); ++rank) {
    EXPECT_EQ(part_index(m, parts[0], rank), rank % 2);
    EXPECT_EQ(part_index(m, parts[1], rank), rank / 2);
  }
  EXPECT_EQ(again("x=6", "x.2"),
            "layout x.2: the axis x of 6 ranks has no part 'x.2'; it has x.0 of 2 ranks, x.1 of 3 "
            "ranks");
}

TEST(RedistributionLayout, RefusesWhatItCannotMean) {
  EXPECT_EQ(again("x=4,y=2", "x,x"), "layout x,x: a layout may use the axis x once, not twice");
  EXPECT_EQ(again("x=4,y=2", "x.0,x"), "layout x.0,x: a layout may use the axis x once, not twice");
  EXPECT_EQ(again("x=4,one=1", "one,one"),
            "layout one,one: a layout may use the axis one once, not twice");
  EXPECT_EQ(again("x=4,y=2", "z"), "layout z: the mesh x=4,y=2 has no axis 'z'");
  EXPECT_EQ(again("x=4,y=2", "x,"), "layout x,: the mesh x=4,y=2 has no axis ''");
  EXPECT_EQ(again("x=4,y=2", "x.2"),
            "layout x.2: the axis x of 4 ranks has no part 'x.2'; it has x.0 of 2 ranks, x.1 of 2 "
            "ranks");
  EXPECT_EQ(again("x=4", "-,-,-,-,-,-,-,-,-"),
            "the layout -,-,-,-,-,-,-,-,- has 9 dimensions; at most 8 are taken");
}

std::string refusal(const char* from, const char* to, Shape shape, uint32_t element_bytes = 4) {
  const Mesh m = mesh("x=4,y=2");
  Problem problem{
      m, std::move(shape), element_bytes, *parse_layout(m, from), *parse_layout(m, to), {}, 0};
  const auto checked = check_problem(problem);
  return checked ? "" : checked.error();
}

TEST(RedistributionProblem, LayoutsMustFitTheArray) {
  EXPECT_EQ(refusal("x,-", "-,x", {16, 16}), "");
  EXPECT_EQ(refusal("x,-", "-,x", {16, 18}),
            "layout -,x: dimension 1 of 18 elements does not divide into 4 parts; pad it to 20");
  EXPECT_EQ(refusal("x,-", "x", {16, 16}),
            "the layout x has 1 dimensions, the array 16 x 16 has 2");
  EXPECT_EQ(refusal("x", "-", {}), "an array has 1 to 8 dimensions, not 0");
  EXPECT_EQ(refusal("x", "-", {0}), "the array 0 has no elements");
  EXPECT_EQ(refusal("x,-", "-,x", {1 << 30, 1 << 30}),
            "the array 1073741824 x 1073741824 has more than 2^48 elements");
  EXPECT_EQ(refusal("x", "-", {16}, 0), "an element has 1 to 4096 bytes, not 0");
}

}  // namespace
}  // namespace ina::redistribution
