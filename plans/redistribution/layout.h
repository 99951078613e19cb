// The layout of an array on a mesh. Each dimension of global size g is cut by the axes that it
// lists: c {x1..xk} g with c |x1| .. |xk| = g, and a rank's tile begins at
//   offset = c i(x1) + c |x1| i(x2) + ...
// where x1 is minor-most (Rink et al., "Memory-efficient array redistribution through portable
// collective communication", section 3). Axes that no dimension lists replicate the array.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/redistribution/mesh.h"

namespace ina::redistribution {

inline constexpr size_t kMostDimensions = 8;

/// Elements per dimension.
using Shape = std::vector<uint64_t>;

uint64_t elements_of(const Shape& shape);
/// "16 x 16 x 16"
std::string shape_text(const Shape& shape);

/// The prime axes of one dimension, the major-most first: the top of the stack is minor-most.
/// Places beyond `size` are 0, so that stacks compare and hash by their bytes.
struct Stack {
  uint8_t size = 0;
  std::array<PrimeId, kMostPrimes> axes{};

  void push(PrimeId axis) { axes[size++] = axis; }
  PrimeId pop() {
    const PrimeId axis = axes[--size];
    axes[size] = 0;
    return axis;
  }
  PrimeId operator[](size_t i) const { return axes[i]; }
  const PrimeId* begin() const { return axes.data(); }
  const PrimeId* end() const { return axes.data() + size; }
  bool operator==(const Stack&) const = default;
};

struct Layout {
  uint8_t dimensions = 0;
  std::array<Stack, kMostDimensions> stacks{};

  Stack& operator[](size_t dimension) { return stacks[dimension]; }
  const Stack& operator[](size_t dimension) const { return stacks[dimension]; }
  /// Bit i: prime axis i is used.
  uint32_t used() const;
  bool operator==(const Layout&) const = default;
};

/// Dimensions are separated by commas. "-" is a dimension that is whole on every rank; otherwise
/// its axes, the major-most first, joined by "*": "x*y" is PartitionSpec's ('x', 'y'). "x.1" is a
/// part of the axis x: digit 1 of its coordinate in primes, where digit 0 is the least significant.
/// Errors: an unknown axis, an axis or a part of it twice, too many dimensions.
Expected<Layout> parse_layout(const Mesh& mesh, std::string_view text);
/// As parse_layout() takes it. Whole axes are named whole.
std::string layout_text(const Mesh& mesh, const Layout& layout);

/// Axes as one dimension of a layout, and back.
std::string axes_text(const Mesh& mesh, const std::vector<PrimeId>& axes);
Expected<std::vector<PrimeId>> parse_axes(const Mesh& mesh, std::string_view text);

/// The product of the sizes of a stack's axes.
uint64_t parts_of(const Mesh& mesh, const Stack& stack);
uint64_t parts_of(const Mesh& mesh, const std::vector<PrimeId>& axes);
/// Which of parts_of() parts of the dimension a rank has.
uint64_t part_index(const Mesh& mesh, const Stack& stack, uint32_t rank);
/// The shape of a rank's tile, the same on all ranks.
Shape tile_shape(const Mesh& mesh, const Layout& layout, const Shape& global);

/// Error: another number of dimensions, or a dimension that its axes do not divide.
Expected<void> check_layout(const Mesh& mesh, const Layout& layout, const Shape& global);

/// True if the parts of a row-major tile that is cut along a dimension are each in several places.
inline bool lies_apart(std::span<const uint64_t> tile, size_t dimension) {
  return std::any_of(tile.begin(), tile.begin() + static_cast<ptrdiff_t>(dimension),
                     [](uint64_t size) { return size > 1; });
}

/// The number of axes at the bottom that two stacks have in common.
size_t common_bottom(const Stack& a, const Stack& b);

}  // namespace ina::redistribution
