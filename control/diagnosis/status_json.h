// Reads a status of a switch that may be of another version: a missing field, or one of another
// type, reads as nothing, 0 or "?".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "common/printable.h"

namespace ina::diagnosis {

/// Names come from workers, and would reach the reader's terminal.
using ina::printable;

/// null where there is none.
const nlohmann::json& child(const nlohmann::json& json, const char* key);
uint64_t number(const nlohmann::json& json, const char* key);
double real(const nlohmann::json& json, const char* key);
/// Printable.
std::string text(const nlohmann::json& json, const char* key);
std::vector<uint64_t> ranks(const nlohmann::json& json, const char* key);

/// "rank 3", "ranks 0, 2".
std::string ranks_text(const std::vector<uint64_t>& ranks);
/// "1,234,567".
std::string with_separators(uint64_t number);
/// As `inactl abort` and `kick` take it, because several jobs may have one name: "OWNER/NAME", or
/// "NAME" where the switch names no owner.
std::string job_label(const nlohmann::json& job);
/// The meaning of a drop reason; empty for a reason of another version.
std::string_view describe_drop(const std::string& counter);

}  // namespace ina::diagnosis
