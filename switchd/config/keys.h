// The table of configuration keys: the only place with a key's name, range and meaning. Loading,
// the sample and the manual page all read it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "switchd/config/config.h"
#include "switchd/config/yaml_tree.h"

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

struct Section {
  std::string_view name;
  std::string_view help;
};

std::span<const Section> sections();
std::span<const Key> keys();

/// A user's text as it may be printed in a message: shortened, without control characters.
std::string printable(std::string_view text);

/// "list", "map", "nothing" or the printable text itself.
std::string describe(const Node& node);

/// Plain decimal, 2^16 and larger powers of two as "2^n".
std::string format_count(uint64_t count);

}  // namespace ina::config
