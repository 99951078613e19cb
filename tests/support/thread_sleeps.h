// How often threads of a process have gone to sleep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace ina::test {

/// Voluntary context switches of the threads of that name. `process`: a pid, or "self".
inline uint64_t sleeps_of_threads(const std::string& process, const std::string& name) {
  uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + process + "/task")) {
    std::ifstream status(task.path() / "status");
    bool is_one = false;
    for (std::string line; std::getline(status, line);) {
      is_one = is_one || line == "Name:\t" + name;
      if (is_one && line.starts_with("voluntary_ctxt_switches:"))
        sum += std::stoull(line.substr(line.find('\t')));
    }
  }
  return sum;
}

}  // namespace ina::test
