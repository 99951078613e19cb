#include "bench/redistribute/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ina::redistribution {
namespace {

constexpr int kTries = 400;

Mesh mesh_of(const std::vector<uint32_t>& sizes) {
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); ++i)
    axes.push_back({std::string(1, static_cast<char>('a' + i)), sizes[i]});
  return *Mesh::create(std::move(axes));
}

Case users_case(const char* name, const char* mesh, Shape shape, const char* from, const char* to) {
  Problem problem{*Mesh::parse(mesh), std::move(shape), 1, {}, {}, {}, 0};
  problem.from = *parse_layout(problem.mesh, from);
  problem.to = *parse_layout(problem.mesh, to);
  return {name, problem};
}

}  // namespace

Shape Cases::shape(size_t dimensions, uint64_t ranks) {
  constexpr uint64_t kMostMultiples[] = {1, 4000, 16, 3, 1};
  Shape shape;
  for (size_t d = 0; d < dimensions; ++d) {
    uint64_t size = (below(2) == 0 ? 48 : 72) * (1 + below(kMostMultiples[dimensions]));
    // Large meshes need sizes that divide by them at all; several dimensions share them.
    for (uint64_t covered = dimensions < 3 ? 64 : 512; covered < ranks; covered *= 2) size *= 2;
    shape.push_back(size);
  }
  return shape;
}

Layout Cases::layout(const Mesh& mesh, size_t dimensions, bool with_all_axes) {
  std::vector<uint32_t> axes(mesh.axes().size());
  for (uint32_t i = 0; i < axes.size(); ++i) axes[i] = i;
  for (size_t i = axes.size(); i > 1; --i) std::swap(axes[i - 1], axes[below(i)]);
  Layout layout;
  layout.dimensions = static_cast<uint8_t>(dimensions);
  for (const uint32_t axis : axes) {
    if (!with_all_axes && below(5) < 2) continue;
    Stack& stack = layout[below(dimensions)];
    for (const PrimeId prime : mesh.primes_of(axis)) stack.push(prime);
  }
  return layout;
}

bool Cases::draw_layouts(Kind kind, Problem& problem) {
  const auto& [mesh, shape, element_bytes, from, to, costs, limit] = problem;
  const bool all = kind == Kind::kSharded || (kind == Kind::kOrder && below(2) == 0);
  problem.from = layout(mesh, shape.size(), all);
  problem.to = layout(mesh, shape.size(), all);
  if (!check_layout(mesh, from, shape) || !check_layout(mesh, to, shape) || from == to)
    return false;
  return kind != Kind::kOrder || tile_shape(mesh, from, shape) == tile_shape(mesh, to, shape);
}

Case Cases::on_mesh(const std::vector<uint32_t>& sizes, uint64_t most_elements,
                    uint64_t least_elements) {
  Problem problem{mesh_of(sizes), {}, 4, {}, {}, {}, 0};
  const uint64_t ranks = problem.mesh.ranks();
  for (;;) {
    const auto kind = static_cast<Kind>(below(3));
    problem.shape = shape(1 + below(4), ranks);
    for (int i = 0; i < kTries; ++i) {
      if (!draw_layouts(kind, problem)) continue;
      const auto tile = [&] {
        return std::max(problem.source_elements(), problem.target_elements());
      };
      if (tile() > most_elements / ranks) break;
      while (tile() < least_elements / ranks) problem.shape[0] *= 2;
      return {fmt::format("{} {} {} -> {}", problem.mesh.text(), shape_text(problem.shape),
                          layout_text(problem.mesh, problem.from),
                          layout_text(problem.mesh, problem.to)),
              problem};
    }
  }
}

Case Cases::small(uint64_t most_elements) {
  static const std::vector<std::vector<uint32_t>> kMeshes = {
      {4}, {2, 2}, {2, 3}, {4, 2}, {2, 2, 2}, {2, 2, 3}, {2, 2, 2, 2}, {2, 3, 2, 3}};
  return on_mesh(kMeshes[below(kMeshes.size())], most_elements);
}

std::vector<Case> users_cases() {
  return {users_case("jax issue 21562", "x=4,y=2", {16, 16, 16}, "y,-,x", "-,x*y,-"),
          users_case("pytorch issue 132751", "x=2,y=2", {16, 16}, "x,y", "y,x")};
}

}  // namespace ina::redistribution
