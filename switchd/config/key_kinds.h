// The kinds of configuration keys: each of these functions makes a Key of the field that it is
// about. `at` gives the field of a Target.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/cpu_list.h"
#include "switchd/config/keys.h"
#include "switchd/config/values.h"

namespace ina::config {

template <class At>
Key number(std::string_view section, std::string_view name, std::string_view unit, uint64_t low,
           uint64_t high, std::string_view help, At at, Notation notation = Notation::kCount) {
  const auto limit = [=](uint64_t value) {
    return notation == Notation::kCount ? format_count(value) : format_number(value, notation);
  };
  std::string range = fmt::format("{}..{}", limit(low), limit(high));
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const auto integer = read_number(node, notation);
    if (!integer) return integer.error();
    if (integer->negative || integer->value < low || integer->value > high)
      return fmt::format("{} is not in {}", describe(node), range);
    at(target) = static_cast<std::decay_t<decltype(at(target))>>(integer->value);
    return {};
  };
  auto show = [=](const Target& target) {
    return format_number(static_cast<uint64_t>(at(target)), notation);
  };
  return {section, name, unit, range, help, set, show};
}

/// Wraps the setter of `key` with one more condition on the node's value, given as the Target's
/// field after it was set. `problem` returns what is wrong, empty if nothing.
template <class Problem>
Key with_check(Key key, std::string_view range_suffix, Problem problem) {
  key.range += range_suffix;
  key.set = [set = key.set, problem](const Node& node, const Target& target) {
    std::string text = set(node, target);
    return text.empty() ? problem(target) : text;
  };
  return key;
}

/// `names` outlive the key.
template <class At, class Enum, size_t kCount>
Key choice(std::string_view section, std::string_view name, const Names<Enum, kCount>& names,
           std::string_view help, At at) {
  std::string range;
  for (const Named<Enum>& named : names)
    range += fmt::format("{}{}", range.empty() ? "" : ", ", named.name);
  auto set = [=, &names](const Node& node, const Target& target) -> std::string {
    const auto value = value_in(names, node.text);
    if (node.kind != Node::Kind::kScalar || !value)
      return fmt::format("{} is unknown (known: {})", describe(node), range);
    at(target) = *value;
    return {};
  };
  auto show = [=, &names](const Target& target) { return std::string(name_in(names, at(target))); };
  return {section, name, "", range, help, set, show};
}

/// `problem` gets the text and returns what is wrong with it, empty if nothing.
template <class At, class Problem>
Key text(std::string_view section, std::string_view name, std::string range, std::string_view help,
         At at, Problem problem) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kScalar) return expected_scalar(node, "a text");
    if (std::ranges::any_of(node.text, [](char c) { return static_cast<uint8_t>(c) < 0x20; }))
      return fmt::format("{} has control characters", describe(node));
    if (std::string wrong = problem(node.text); !wrong.empty())
      return fmt::format("{} {}", describe(node), wrong);
    at(target) = node.text;
    return {};
  };
  auto show = [=](const Target& target) { return config::quoted(at(target)); };
  return {section, name, "", std::move(range), help, set, show};
}

template <class At>
Key boolean(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const bool yes = node.kind == Node::Kind::kScalar && node.text == "true";
    const bool no = node.kind == Node::Kind::kScalar && node.text == "false";
    if (!yes && !no) return expected_scalar(node, "true or false");
    at(target) = yes;
    return {};
  };
  auto show = [=](const Target& target) { return std::string(at(target) ? "true" : "false"); };
  return {section, name, "", "true, false", help, set, show};
}

template <class At>
Key octal_mode(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const bool octal = node.kind == Node::Kind::kScalar && !node.text.empty() &&
                       node.text.find_first_not_of("01234567") == std::string::npos;
    const auto integer = octal ? parse_integer(node.text, 8) : std::optional<Integer>();
    if (!integer) return expected_scalar(node, "an octal mode, e.g. 0660");
    if (integer->value > 0777) return fmt::format("{} is not in 0000..0777", describe(node));
    at(target) = static_cast<uint32_t>(integer->value);
    return {};
  };
  auto show = [=](const Target& target) { return fmt::format("{:04o}", at(target)); };
  return {section, name, "", "0000..0777, octal", help, set, show};
}

template <class At>
Key cpu_list(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    auto cpus = node.kind == Node::Kind::kScalar ? parse_cpus(node.text) : std::nullopt;
    if (!cpus)
      return expected_scalar(node,
                             fmt::format("a list of CPUs below {}, e.g. 2 or \"0-1,3\"", kMaxCpus));
    at(target) = std::move(*cpus);
    return {};
  };
  auto show = [=](const Target& target) { return config::quoted(format_cpus(at(target))); };
  return {section, name, "", "e.g. \"0-1,3\"", help, set, show};
}

template <class At>
Key text_list(std::string_view section, std::string_view name, std::string_view help, At at,
              std::string (*check)(std::string_view) = any_text) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kList) return expected_scalar(node, "a list of texts");
    std::vector<std::string> texts;
    for (const Node& item : node.items) {
      if (item.kind != Node::Kind::kScalar)
        return fmt::format("item {} is {}, not a text", texts.size() + 1, describe(item));
      if (const std::string problem = check(item.text); !problem.empty())
        return fmt::format("item {}, {}, {}", texts.size() + 1, describe(item), problem);
      texts.push_back(item.text);
    }
    at(target) = std::move(texts);
    return {};
  };
  auto show = [=](const Target& target) {
    std::vector<std::string> items;
    for (const std::string& item : at(target)) items.push_back(config::quoted(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  };
  return {section, name, "", "list of texts", help, set, show};
}

inline constexpr uint64_t kLastVlan = 4094;

template <class At>
Key vlan_list(std::string_view section, std::string_view name, std::string_view help, At at) {
  const std::string range = fmt::format("list of 0..{}", kLastVlan);
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kList) return expected_scalar(node, "a list of VLANs");
    std::vector<uint16_t> vlans;
    for (const Node& item : node.items) {
      const auto vlan = read_number(item, Notation::kCount);
      if (!vlan) return vlan.error();
      if (vlan->negative || vlan->value > kLastVlan)
        return fmt::format("{} is not in 0..{}", describe(item), kLastVlan);
      vlans.push_back(static_cast<uint16_t>(vlan->value));
    }
    at(target) = std::move(vlans);
    return {};
  };
  auto show = [=](const Target& target) {
    return fmt::format("[{}]", fmt::join(at(target), ", "));
  };
  return {section, name, "", range, help, set, show};
}

template <class At>
Key ipv4(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    const auto ip = node.kind == Node::Kind::kScalar ? parse_ipv4(node.text) : std::nullopt;
    if (!ip) return expected_scalar(node, "an IPv4 address, e.g. 10.0.0.1");
    if (!is_host_address(*ip))
      return fmt::format("{} is not an address that a host can have on a network", describe(node));
    at(target) = *ip;
    return {};
  };
  auto show = [=](const Target& target) { return format_ipv4(at(target)); };
  return {section, name, "", "IPv4 address", help, set, show};
}

template <class At>
Key host_list(std::string_view section, std::string_view name, std::string_view help, At at) {
  auto set = [=](const Node& node, const Target& target) -> std::string {
    if (node.kind != Node::Kind::kList) return expected_scalar(node, "a list of hosts");
    std::vector<HostConfig> hosts;
    for (const Node& item : node.items) {
      const auto host = item.kind == Node::Kind::kScalar ? parse_host(item.text) : std::nullopt;
      if (!host)
        return fmt::format("item {} is {}, not a host, e.g. \"02:00:00:00:00:01 10.0.0.1\"",
                           hosts.size() + 1, describe(item));
      if (const std::string wrong = host_problem(*host, item.text); !wrong.empty())
        return fmt::format("item {} is {}: {}", hosts.size() + 1, describe(item), wrong);
      hosts.push_back(*host);
    }
    at(target) = std::move(hosts);
    return {};
  };
  auto show = [=](const Target& target) {
    std::vector<std::string> items;
    for (const HostConfig& host : at(target)) items.push_back(config::quoted(format_host(host)));
    return fmt::format("[{}]", fmt::join(items, ", "));
  };
  return {section, name, "", "list of \"MAC IP\" or \"MAC\"", help, set, show};
}

inline Key for_ethdev(Key key) {
  key.port_type = PortType::kEthdev;
  return key;
}

inline Key required(Key key) {
  key.required = true;
  return key;
}

}  // namespace ina::config
