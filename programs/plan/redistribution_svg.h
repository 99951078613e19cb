// A redistribution plan as a picture: the time of each step, and the contents of a rank's buffers.
#pragma once

#include <string>

#include "plans/redistribution/plan.h"

namespace ina::cli {

/// A timeline by the plan's cost model, as an SVG: one row a step, its start-up light and its
/// transfer dark; below, the buffers of a rank over time, with peak and limit. Of many pieces the
/// first ones.
std::string timeline_svg(const redistribution::Plan& plan);

}  // namespace ina::cli
