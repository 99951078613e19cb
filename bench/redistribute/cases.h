// Seeded redistribution problems: random pairs of layouts on small meshes, and large meshes for the
// planner's time.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plans/redistribution/problem.h"

namespace ina::redistribution {

/// A pair of layouts is of one kind.
enum class Kind : uint8_t {
  kSharded,     ///< both use all axes
  kReplicated,  ///< each axis is left out of a layout by chance
  kOrder,       ///< the tiles have the same shape in both
};

struct Case {
  std::string name;
  Problem problem;
};

/// Draws problems; the same ones from the same seed on every machine.
class Cases {
 public:
  explicit Cases(uint64_t seed) : random_(seed) {}

  /// On one of the meshes {4} {2,2} {2,3} {4,2} {2,2,2} {2,2,3} {2,2,2,2} {2,3,2,3}: arrays of 1 to
  /// 4 dimensions, each a multiple of 48 or 72. `most_elements`: of the tiles of all ranks
  /// together.
  Case small(uint64_t most_elements);
  /// On a mesh of these axes. An array whose tiles have less than `least_elements` grows.
  Case on_mesh(const std::vector<uint32_t>& sizes, uint64_t most_elements,
               uint64_t least_elements = 0);

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  Shape shape(size_t dimensions, uint64_t ranks);
  Layout layout(const Mesh& mesh, size_t dimensions, bool with_all_axes);
  bool draw_layouts(Kind kind, Problem& problem);

  std::mt19937_64 random_;
};

/// Cases from users: jax issue 21562 and pytorch issue 132751. Elements of one byte.
std::vector<Case> users_cases();

}  // namespace ina::redistribution
