// Measurements for planners: latencies and rates of collectives over existing contexts. Each
// measurement is a collective of all ranks, and gives all ranks the numbers of the slowest one.
#pragma once

#include "client/context.h"
#include "common/result.h"
#include "plans/redistribution/problem.h"
#include "plans/themis/calibration.h"

namespace ina::client {

/// Measures collectives within `group`. `all`: of all ranks of the topology, each of which measures
/// in a group of the same dimension.
Result<themis::DimensionTimes> measure_dimension(Context& group, Context& all);

/// Measures the operations of redistributions, among all ranks of a context.
Result<redistribution::CostModel> measure_costs(Context& context);

}  // namespace ina::client
