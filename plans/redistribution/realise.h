// From a path over local shapes to steps over layouts: which axes are sliced, moved and gathered,
// and where an all-permute is needed because the axes do not lie as the path wants them.
#pragma once

#include <vector>

#include "plans/redistribution/plan.h"
#include "plans/redistribution/shape_search.h"

namespace ina::redistribution {

/// Steps with as few all-permutes as a path can be walked with: none, one (forward from the source,
/// backward from the target, any order of the moves), or one before each move that is blocked.
std::vector<StepChoice> realise(const Problem& problem, const ShapePath& path);

/// Gathers what `layout` has above `target`: in one operation or in several, whichever costs less.
/// Empty if there is nothing to gather.
std::vector<StepChoice> gathers(const Problem& problem, const Layout& layout, const Layout& target);

/// Slices `target`'s axes above `layout` off in one step. Empty if there are none.
std::vector<StepChoice> slices(const Layout& layout, const Layout& target);

}  // namespace ina::redistribution
