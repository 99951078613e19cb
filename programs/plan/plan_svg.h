// A picture of plans: the work and the idle time of each dimension.
#pragma once

#include <string>
#include <vector>

#include "plans/themis/plan.h"

namespace ina::cli {

/// One plan in the picture. All must live as long as the call.
struct SvgPanel {
  std::string title;
  const themis::Plan* plan = nullptr;
  const themis::Timeline* timeline = nullptr;
};

/// An SVG document: the panels below each other over one scale of time, with a row for each
/// dimension. Operations that are too narrow to be told apart are one bar. A dimension whose
/// operations send and get unlike amounts has two bars in its row: sent bytes above, received bytes
/// below.
std::string draw_svg(const std::vector<SvgPanel>& panels);

}  // namespace ina::cli
