// The switch's status as text for a person.
#pragma once

#include <string>
#include <vector>

#include "common/json/json.h"

namespace ina::cli {

/// Tables of ports, forwarding, lcores, aggregator, drops and jobs, and a line per job on the
/// fragment that it waits for. `status` comes from the switch (control::query_status) and may be of
/// another version: fields that are missing or of another type are shown as 0 or "?".
std::string format_status(const nlohmann::json& status, size_t width = 0);

/// Table of the tenants: their jobs' resources beside their limits.
std::string format_tenants(const nlohmann::json& status, size_t width = 0);

/// One line on a job's state: its progress, or the reason why there is none.
std::string waiting_text(const nlohmann::json& job);

/// A sentence for each port that is blocked, or whose interface is gone.
std::vector<std::string> port_troubles(const nlohmann::json& status);

/// "up", "down", "gone", or "blocked".
std::string link_text(const nlohmann::json& port);

/// "512", or the shared slots that a job holds, with their bounds.
std::string slots_text(const nlohmann::json& job);

/// "0 B", "1023 B", "1.5 KiB", "12.0 GiB".
std::string format_bytes(uint64_t bytes);

}  // namespace ina::cli
