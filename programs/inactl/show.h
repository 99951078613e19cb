// One job or port of a switch's status, in full: `inactl job show` and `inactl port show`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace ina::cli {

/// The entry of the job that `name` means: NAME, or OWNER/NAME where several have it. Errors name
/// the jobs that there are.
Result<nlohmann::json> find_job(const nlohmann::json& status, const std::string& name);

/// A job's entry as lines for a person.
std::string format_job(const nlohmann::json& job);

/// The entries of all ports, or of the one that `name` means. Errors name the ports that there are.
Result<nlohmann::json> find_ports(const nlohmann::json& status, const std::string& name);

/// A port's entry as lines for a person.
std::string format_port(const nlohmann::json& port);

}  // namespace ina::cli
