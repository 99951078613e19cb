// The transfers of a step, from rank to rank, as boxes of tiles. All code that carries plans out
// takes them from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plans/redistribution/plan.h"

namespace ina::redistribution {

/// A box of the source's tile that becomes a box of the receiver's, of the same extent.
struct Transfer {
  uint32_t source = 0;
  Shape from;  ///< its first element, in the source's tile
  Shape to;    ///< its first element, in the receiver's tile
  Shape extent;
};

/// The transfers of one step on an array of `shape`: that of a piece, if there are pieces.
class StepTransfers {
 public:
  /// `mesh` and `step` must outlive it.
  StepTransfers(const Mesh& mesh, const Step& step, const Shape& shape);

  /// The transfers that fill the rank's new tile, its own part included: each element once.
  std::vector<Transfer> to(uint32_t rank) const;
  /// Shapes of a tile before the step and after it.
  const Shape& before() const { return before_; }
  const Shape& after() const { return after_; }

 private:
  std::vector<Transfer> slice(uint32_t rank) const;
  std::vector<Transfer> all_to_all(uint32_t rank) const;
  std::vector<Transfer> gather(uint32_t rank) const;
  std::vector<Transfer> exchange(uint32_t rank) const;
  Shape origin() const { return Shape(before_.size()); }

  const Mesh& mesh_;
  const Step& step_;
  Shape before_;
  Shape after_;
  std::vector<uint32_t> sources_;  ///< of an all-permute
};

/// A box's place within a tile.
struct Box {
  const Shape& tile;  ///< the shape of the whole tile
  const Shape& first;
};

/// Copies a box of `extent` between tiles in row-major order, row by row.
void copy_box(const std::byte* source, const Box& from, std::byte* target, const Box& to,
              const Shape& extent, size_t element_bytes);

}  // namespace ina::redistribution
