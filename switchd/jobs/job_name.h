// The names that jobs may have, for workers and administrators alike.
#pragma once

#include <fmt/format.h>

#include <string>

namespace ina::switchd {

/// The problem of a job's name; empty: none.
inline std::string job_name_problem(const std::string& name) {
  constexpr size_t kLongest = 128;
  if (!name.empty() && name.size() <= kLongest) return {};
  return fmt::format("the job's name must have 1 to {} characters", kLongest);
}

}  // namespace ina::switchd
