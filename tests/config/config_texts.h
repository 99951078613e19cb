// Texts of configurations and what comes of them, for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "scheduler/policies.h"
#include "switchd/config/config.h"

namespace ina::config {

inline std::vector<std::string> errors_of(std::string_view text) {
  std::vector<std::string> lines;
  const auto config = load_config(text, "x.yaml");
  if (!config)
    for (const ConfigError& error : config.error()) lines.push_back(error.to_string());
  return lines;
}

inline Config load(std::string_view text) {
  const auto config = load_config(text, "x.yaml");
  EXPECT_TRUE(config) << config.error().front().to_string();
  return config.value_or(Config{});
}

/// The names of the registry's policies.
inline std::string policies(std::string_view between, bool hashed_alone) {
  std::vector<std::string_view> names;
  for (const auto& [name, kind] : scheduler::kPolicyNames)
    if (!hashed_alone || scheduler::traits(kind).hashed) names.push_back(name);
  return fmt::format("{}", fmt::join(names, between));
}

inline std::string on_shm(const std::string& key_line) {
  return "ports:\n  - name: a\n    type: shm\n    " + key_line + "\n";
}

inline std::string on_ethdev(const std::string& key_line) {
  return "ports:\n  - name: a\n    type: ethdev\n    device: net_null0\n    ip: 10.0.0.1\n    " +
         key_line + "\n";
}

}  // namespace ina::config
