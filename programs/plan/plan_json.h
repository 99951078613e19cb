// A plan as JSON, for programs.
#pragma once

#include "common/json/json.h"
#include "plans/themis/plan.h"

namespace ina::cli {

/// Hash, topology, collectives, chunks with their stages, and for each dimension its operations in
/// their order, with times. Times are in microseconds; numbers of chunks and so on count from 0.
nlohmann::json json_of(const themis::Plan& plan, const themis::Timeline& timeline);

}  // namespace ina::cli
