// Redistribution plans as JSON, to be kept, compared and read by other programs.
#pragma once

#include <string>

#include "common/json/json.h"
#include "plans/redistribution/plan.h"

namespace ina::redistribution {

/// A plan with all that follows from it. docs/redistribution.md lists the fields.
nlohmann::ordered_json to_json(const Plan& plan);

/// The plan that to_json() wrote. The steps are checked, and everything that follows from them is
/// computed again. Errors: a field that is missing or has another type, steps that cannot be done,
/// a hash that is not that of the plan.
Expected<Plan> plan_from_json(const std::string& text);

}  // namespace ina::redistribution
