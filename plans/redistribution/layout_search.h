// The search for a plan that needs no all-permute, over layouts, led by the bound on local shapes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "plans/redistribution/plan.h"
#include "plans/redistribution/shape_search.h"

namespace ina::redistribution {

/// Layouts that the search looks at before it gives up; that bounds its time on large meshes.
inline constexpr size_t kMostLayouts = 6'000;

/// When axes may be sliced.
enum class Slicing : uint8_t {
  kFirst,  ///< dynslice* alltoall* allgather*: the normal form
  /// (alltoall | dynslice)* allgather*: an axis that the target has above others takes its place as
  /// soon as they are there, and needs no exchange.
  kBetweenMoves,
};

/// The cheapest steps whose time is below `below_us`, by A*. Nothing if there are none, or none was
/// found among kMostLayouts. `most_moved`: elements of the largest tile that may be moved.
std::optional<std::vector<StepChoice>> search_layouts(const Problem& problem, const Bound& bound,
                                                      Slicing slicing, uint64_t most_moved,
                                                      double below_us);

}  // namespace ina::redistribution
