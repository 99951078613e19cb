// The table of configuration keys: the only place with a key's name, range and meaning. Loading,
// the sample and the manual page all read it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/yaml/tree.h"
#include "switchd/config/config.h"

namespace ina::config {

struct Target {
  Config* config = nullptr;
  PortConfig* port = nullptr;                ///< for keys of the section "ports"
  scheduler::TenantQuota* tenant = nullptr;  ///< for keys of the section "tenants"
};

struct Key {
  std::string_view section;
  std::string_view name;
  std::string_view unit;  ///< empty: none
  std::string range;      ///< for people, e.g. "1..2^24"
  std::string_view help;  ///< one sentence
  /// Sets the field from a node; returns what is wrong with it, empty if nothing.
  std::function<std::string(const Node&, const Target&)> set;
  /// The field as YAML.
  std::function<std::string(const Target&)> show;
  std::optional<PortType> port_type{};  ///< keys of ports: only for this type
  bool required = false;                ///< keys of list items: has no default
};

/// "aggregator.policy"
std::string full_name(const Key& key);
/// Keys of scheduler::PolicyOptions: the policy and its parameters.
bool is_of_policy(const Key& key);

struct Section {
  std::string_view name;
  std::string_view help;
};

std::span<const Section> sections();
std::span<const Key> keys();

}  // namespace ina::config
