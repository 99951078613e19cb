// The search over local shapes: how far each dimension is cut, not by which axes. There are few
// such states even on large meshes, because an all-permute makes any layout of any other of the
// same local shape (Rink et al., section 5).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plans/redistribution/problem.h"

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

/// Lower bounds on the remaining cost. They are admissible: each dimension that lacks a factor
/// needs all-to-alls of its own, whose groups multiply to that factor or more. Of all ways to split
/// the factor the cheapest counts; gathers likewise. Copies are left out.
class Bound {
 public:
  explicit Bound(const Problem& problem);

  /// While tiles of `tile` elements are moved: dimension d must yet get a factor of missing[d], and
  /// the tiles then grow to those of the target.
  double us(const Splits& missing, double tile) const;
  /// Before that, while the tiles may still be sliced from `tile` down to `smallest` elements.
  double slicing_us(const Splits& missing, double smallest, double tile) const;
  /// Elements of a tile of the target.
  uint64_t target() const { return target_; }

 private:
  /// The least time of all-to-alls of tiles of so many elements, by their factors' product.
  const std::vector<double>& moves_us(double tile) const;
  /// The least time of operations whose groups multiply to each factor. `time_us_of`: that one of
  /// a group of that size takes.
  template <class Time>
  std::vector<double> cheapest_chains(Time time_us_of) const;
  double moves_us(const Splits& missing, double tile) const;
  double gather_bytes_us(double tile) const;

  CostModel costs_;
  size_t dimensions_;
  uint32_t ranks_;
  double element_bytes_;
  uint64_t target_;
  std::vector<uint32_t> factors_;                           ///< of the number of ranks, ascending
  std::vector<double> gathers_us_;                          ///< by the factor, without the bytes
  mutable std::map<double, std::vector<double>> moves_us_;  ///< by the tile
};

Splits splits_of(const Mesh& mesh, const Layout& layout);

/// The cheapest path with one all-permute of the moved tiles, by A*. `most_moved`: elements of the
/// largest tile that may be moved or permuted. Nothing if no path keeps that.
std::optional<ShapePath> search_shapes(const Problem& problem, const Bound& bound,
                                       uint64_t most_moved);

}  // namespace ina::redistribution
