// DPDK for a test program, and a folder for its files.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

#include "io/ethdev/eal.h"

namespace ina::io {

/// DPDK can be started once in a process, so all tests of a program share it.
class EalEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    auto eal = Eal::start({.huge = EalConfig::Huge::kNo,
                           .memory_bytes = uint64_t{64} << 20,
                           .file_prefix = {},
                           .cpus = {},
                           .lcores = 1,
                           .vdevs = {},
                           .pci = {},
                           .extra_args = {},
                           .log = {}});
    ASSERT_TRUE(eal) << eal.error().text;
    eal_ = std::move(*eal);
  }
  void TearDown() override { eal_.reset(); }

 private:
  std::optional<Eal> eal_;
};

/// A temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "ina-test-XXXXXX";
    path_ = ::mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace ina::io
