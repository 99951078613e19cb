// Lists of CPUs as the kernel and the configuration write them: "0-1,3".
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ina {

inline constexpr uint32_t kMaxCpus = 1024;

/// "0-1,3" -> {0, 1, 3}, sorted, each once; nothing if it is not a list of CPUs below kMaxCpus.
inline std::optional<std::vector<uint32_t>> parse_cpus(std::string_view text) {
  std::vector<uint32_t> cpus;
  const auto take = [&text](uint32_t& cpu) {
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
    text.remove_prefix(static_cast<size_t>(rest - text.data()));
    return error == std::errc{} && cpu < kMaxCpus;
  };
  while (!text.empty()) {
    uint32_t first = 0;
    if (!take(first)) return std::nullopt;
    uint32_t last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!take(last) || last < first) return std::nullopt;
    }
    for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  std::ranges::sort(cpus);
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());  // clang 14: no ranges::unique
  return cpus;
}

/// {0, 1, 3} -> "0-1,3". `cpus` must be sorted.
inline std::string format_cpus(const std::vector<uint32_t>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (i > 0) out += ',';
    out += std::to_string(cpus[i]);
    if (end - i > 1) {
      out += '-';
      out += std::to_string(cpus[end - 1]);
    }
    i = end;
  }
  return out;
}

}  // namespace ina
