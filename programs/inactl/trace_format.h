// `inactl trace`: packets of a job and their fates, as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ina::cli {

/// `trace`: the answer of the switch (docs/administration.md has its members). A line for each
/// packet, and one for each operation that they name.
std::string format_trace(const nlohmann::json& trace, size_t width = 0);

}  // namespace ina::cli
