// The fields of a switch's messages and their types. A client checks each message before it reads
// any of it, so that no reader meets a value of another type.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ina::control {

/// What is wrong with a message of a switch, in a sentence without an end; empty if nothing is.
/// Fields that are not known are not looked at.
std::string problem_of_answer(const nlohmann::json& message);

}  // namespace ina::control
