// The order of a tile's bytes: row-major, or cell after cell, each in row-major order, so that the
// elements for one rank, or from one rank, lie together. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plans/redistribution/transfers.h"

namespace ina::redistribution {

/// The two orders of a tile that a grid cuts into cells. Cells are in row-major order themselves.
class Rearrangement {
 public:
  /// The coarsest grid of which each of the boxes is made of whole cells.
  class Boxes {
   public:
    explicit Boxes(const Shape& tile) : tile_(tile), cuts_(tile.size(), {0}) {}
    void add(const Shape& first, const Shape& extent);

   private:
    friend class Rearrangement;
    Shape tile_;
    std::vector<std::vector<uint64_t>> cuts_;  ///< beginnings of intervals, by dimension
  };
  Rearrangement(Boxes boxes, size_t element_bytes);
  /// From a whole tile to its pieces one after the other.
  static Rearrangement into_pieces(const Shape& tile, const Pieces& pieces, size_t element_bytes);

  /// There is nothing to be done.
  bool is_identity() const { return identity_; }
  /// Where the cell that begins at `first` lies, in bytes.
  uint64_t offset_of(const Shape& first) const;

  /// From row-major order in `from` to cells in `to`, which do not overlap.
  void pack(const std::byte* from, std::byte* to) const;
  /// And back: from cells to row-major order.
  void unpack(const std::byte* from, std::byte* to) const;
  /// Packs, or unpacks, in one place. `room` is overwritten: the more there is of it, the faster.
  void pack(std::byte* data, std::span<std::byte> room) const;
  void unpack(std::byte* data, std::span<std::byte> room) const;

 private:
  struct Interval {
    uint64_t first;
    uint64_t size;
  };
  /// A tile that one dimension cuts into equal cells: the row-major order is
  /// [rows][cells][width], and the other one [cells][rows][width]. `width`: elements; no cells: it
  /// is no such tile.
  struct Stripes {
    uint64_t rows = 1;
    uint64_t cells = 0;
    uint64_t width = 1;
  };
  Rearrangement(const Stripes& stripes, size_t element_bytes);
  struct Place {
    uint64_t element;     ///< in cells
    uint64_t neighbours;  ///< elements from this one on that stay together
  };
  Stripes find_stripes() const;
  Place place_of(uint64_t element) const;
  template <class Copy>
  void for_each_run(Copy copy) const;
  void turn(std::byte* data, uint64_t start, bool inverse) const;
  void in_place(std::byte* data, std::span<std::byte> room, bool inverse) const;
  bool in_blocks(std::byte* data, std::span<std::byte> room, bool inverse) const;
  void in_cycles(std::byte* data, std::span<std::byte> room, bool inverse) const;

  struct Dimension {
    uint64_t stride = 1;              ///< elements of the dimensions behind it
    uint64_t grain = 1;               ///< the greatest common divisor of its intervals' sizes
    std::vector<Interval> intervals;  ///< by the coordinate, in grains
  };
  std::vector<Dimension> dimensions_;
  uint64_t elements_;
  size_t element_bytes_;
  uint64_t unit_;  ///< elements that always stay together
  bool identity_ = true;
  Stripes stripes_;
};

}  // namespace ina::redistribution
