// The threads of a process that have a name, and how often they have gone to sleep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ina::test {

/// The kernel's word on each of them, as in /proc/PID/status. `process`: a pid, or "self".
inline std::vector<std::string> threads_named(const std::string& process, const std::string& name) {
  std::vector<std::string> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + process + "/task")) {
    std::stringstream status;
    status << std::ifstream(task.path() / "status").rdbuf();
    if (status.str().starts_with("Name:\t" + name + "\n")) found.push_back(status.str());
  }
  return found;
}

/// Voluntary context switches of those threads.
inline uint64_t sleeps_of_threads(const std::string& process, const std::string& name) {
  constexpr std::string_view kField = "\nvoluntary_ctxt_switches:";
  uint64_t sum = 0;
  for (const std::string& status : threads_named(process, name))
    sum += std::stoull(status.substr(status.find(kField) + kField.size()));
  return sum;
}

}  // namespace ina::test
