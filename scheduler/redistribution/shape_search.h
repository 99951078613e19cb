// The search over local shapes: how far each dimension is cut, not by which axes. There are few
// such states even on large meshes, because an all-permute makes any layout of any other of the
// same local shape (Rink et al., section 5).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/redistribution/problem.h"

namespace ina::redistribution {

/// Into how many parts each dimension is cut.
using Splits = std::array<uint32_t, kMostDimensions>;

/// An all-to-all that moves a factor from one dimension to another.
struct ShapeMove {
  uint8_t from = 0;
  uint8_t to = 0;
  uint32_t factor = 1;
};

/// A path in the normal form: slices, moves, gathers.
struct ShapePath {
  Splits sliced{};    ///< after the dynamic slices
  Splits gathered{};  ///< before the all-gathers
  std::vector<ShapeMove> moves{};
};

/// A lower bound on what is left to pay for a layout, if dimension d must yet get a factor of
/// missing[d] by all-to-alls and tiles of `tile` elements grow to those of the target. It is
/// admissible: each such dimension needs an operation of its own, and several never send less than
/// one.
class Bound {
 public:
  explicit Bound(const Problem& problem);

  double us(const Splits& missing, double tile) const;
  uint64_t target() const { return target_; }

 private:
  double messages(uint32_t factor) const { return messages_[factor]; }

  CostModel costs_;
  size_t dimensions_;
  double element_bytes_;
  uint64_t target_;  ///< elements of a tile
  /// By the factor: the least number of messages of operations whose groups multiply to it.
  std::vector<double> messages_;
};

Splits splits_of(const Mesh& mesh, const Layout& layout);

/// The cheapest path with one all-permute of the moved tiles, by A*. `most_moved`: elements of the
/// largest tile that may be moved or permuted. Nothing if no path keeps that.
std::optional<ShapePath> search_shapes(const Problem& problem, const Bound& bound,
                                       uint64_t most_moved);

}  // namespace ina::redistribution
