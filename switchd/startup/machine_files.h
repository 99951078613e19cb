// Files of the kernel in /proc and /sys, or of a test in a folder that looks like them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ina::switchd {

class MachineFiles {
 public:
  /// `root`: the folder that has proc and sys.
  explicit MachineFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// Paths are relative to the root, e.g. "proc/cpuinfo".
  std::filesystem::path path(const std::string& file) const { return root_ / file; }
  bool exists(const std::string& file) const;
  /// The first line; empty if there is none.
  std::string line(const std::string& file) const;
  std::optional<uint64_t> number(const std::string& file) const;
  /// The rest of the line that begins with `key`, without blanks before it; empty if there is no
  /// such line.
  std::string after(const std::string& file, const std::string& key) const;
  /// Names in a folder, sorted.
  std::vector<std::string> names(const std::string& folder) const;
  /// Last part of where a link leads; empty if it is none.
  std::string link(const std::string& file) const;

 private:
  std::filesystem::path root_;
};

/// Pages of one size.
struct HugepagePool {
  uint64_t page_bytes = 0;
  uint64_t total = 0;
  uint64_t free = 0;
};
std::vector<HugepagePool> hugepage_pools(const MachineFiles& files);

/// Effective capabilities of this process, a bit each (linux/capability.h); all if it is not said.
uint64_t capabilities(const MachineFiles& files);

}  // namespace ina::switchd
