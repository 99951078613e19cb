#include "switchd/startup/machine_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace ina::switchd {

namespace fs = std::filesystem;

bool MachineFiles::exists(const std::string& file) const {
  std::error_code error;
  return fs::exists(path(file), error);
}

std::string MachineFiles::line(const std::string& file) const {
  std::string text;
  std::ifstream stream(path(file));
  std::getline(stream, text);
  return text;
}

std::optional<uint64_t> MachineFiles::number(const std::string& file) const {
  const std::string text = line(file);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::string MachineFiles::after(const std::string& file, const std::string& key) const {
  std::ifstream stream(path(file));
  for (std::string text; std::getline(stream, text);) {
    if (!text.starts_with(key)) continue;
    const size_t begin = text.find_first_not_of(" \t", key.size());
    return begin == std::string::npos ? "" : text.substr(begin);
  }
  return {};
}

std::vector<std::string> MachineFiles::names(const std::string& folder) const {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path(folder), error))
    found.push_back(entry.path().filename());
  std::ranges::sort(found);
  return found;
}

std::string MachineFiles::link(const std::string& file) const {
  std::error_code error;
  return fs::read_symlink(path(file), error).filename().string();
}

std::vector<HugepagePool> hugepage_pools(const MachineFiles& files) {
  const std::string folder = "sys/kernel/mm/hugepages";
  std::vector<HugepagePool> pools;
  for (const std::string& name : files.names(folder)) {  // hugepages-2048kB
    const size_t dash = name.find('-');
    if (dash == std::string::npos) continue;
    HugepagePool pool;
    pool.page_bytes = std::strtoull(name.c_str() + dash + 1, nullptr, 10) * 1024;
    pool.total = files.number(folder + "/" + name + "/nr_hugepages").value_or(0);
    pool.free = files.number(folder + "/" + name + "/free_hugepages").value_or(0);
    pools.push_back(pool);
  }
  return pools;
}

uint64_t capabilities(const MachineFiles& files) {
  const std::string text = files.after("proc/self/status", "CapEff:");
  return text.empty() ? UINT64_MAX : std::strtoull(text.c_str(), nullptr, 16);
}

}  // namespace ina::switchd
