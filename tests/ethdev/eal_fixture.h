// DPDK for a test program.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "io/ethdev/eal.h"

namespace ina::io {

/// DPDK can be started once in a process, so all tests of a program share it.
class EalEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    auto eal = Eal::start({.huge = HugePages::kNo,
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

}  // namespace ina::io
