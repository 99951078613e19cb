// The texts generated from the table: the commented sample and the manual page.
#include <fmt/format.h>

#include <sstream>

#include "switchd/config/config.h"
#include "switchd/config/keys.h"

namespace ina::config {
namespace {

constexpr size_t kLineBytes = 88;

/// Appends `text` as comment lines, broken at spaces.
void append_comment(std::string& out, std::string_view indent, std::string_view text) {
  std::string line;
  std::istringstream words{std::string(text)};
  const auto flush = [&] {
    out += fmt::format("{}#{}\n", indent, line);
    line.clear();
  };
  for (std::string word; words >> word;) {
    if (!line.empty() && indent.size() + line.size() + word.size() + 2 > kLineBytes) flush();
    line += ' ' + word;
  }
  if (!line.empty()) flush();
}

/// "slots: 1..2^24"
std::string unit_and_range(const Key& key) {
  return key.unit.empty() ? key.range : fmt::format("{}: {}", key.unit, key.range);
}

std::string comment(const Key& key) {
  return fmt::format("{} [{}]", key.help, unit_and_range(key));
}

/// A port of `type` with every key at its default, and sample values for keys without one.
std::string sample_port(PortType type, const char* port_name) {
  PortConfig port{.name = port_name, .type = type, .device = "0000:01:00.0", .ip = 10u << 24 | 1};
  Config config;
  const Target target{.config = &config, .port = &port};
  std::string out;
  for (const Key& key : keys()) {
    if (key.section != "ports" || (key.port_type && *key.port_type != type)) continue;
    const bool first = out.empty();
    // Explained once, at the port for which it matters.
    if (key.port_type || type == PortType::kShm)
      append_comment(out, first ? "  " : "    ", comment(key));
    out += fmt::format("{}{}: {}\n", first ? "  - " : "    ", key.name, key.show(target));
  }
  return out;
}

std::string commented_out(const std::string& yaml) {
  std::string out;
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) out += fmt::format("  #{}\n", line.substr(1));
  return out;
}

/// Text for roff: backslashes, hyphens that are to be typed, and leading dots made harmless.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && out.empty())
      out += fmt::format("\\&{}", c);
    else
      out += c;
  }
  return out;
}

/// A tenant with every key at its default, and a name that stands for one.
std::string sample_tenant() {
  scheduler::TenantQuota tenant{.name = "vision"};
  Config config;
  const Target target{.config = &config, .tenant = &tenant};
  std::string out;
  for (const Key& key : keys()) {
    if (key.section != "tenants") continue;
    const bool first = out.empty();
    append_comment(out, first ? "  " : "    ", comment(key));
    out += fmt::format("{}{}: {}\n", first ? "  - " : "    ", key.name, key.show(target));
  }
  return out;
}

std::string manual_entry(const Key& key) {
  Config config;
  PortConfig port;
  scheduler::TenantQuota tenant;
  const Target target{.config = &config, .port = &port, .tenant = &tenant};
  std::string out = fmt::format(".TP\n.B {}\n", roff(key.name));
  if (key.port_type) out += fmt::format("({}) ", name(*key.port_type));
  out += roff(key.help) + '\n';
  out += roff(fmt::format("[{}]", unit_and_range(key))) + '\n';
  out += roff(key.required ? "Required." : fmt::format("Default: {}.", key.show(target))) + '\n';
  return out;
}

}  // namespace

std::string sample_config() {
  std::string out =
      "# Configuration of ina-switchd: every key, at its default. What is left out keeps its\n"
      "# default. Sizes may be written with KiB, MiB, GiB or TiB; times need us, ms or s.\n";
  Config config;
  for (const Section& section : sections()) {
    out += '\n';
    append_comment(out, "", section.help);
    out += fmt::format("{}:\n", section.name);
    if (section.name == "ports") {
      out += sample_port(PortType::kShm, "shm0");
      out += commented_out(sample_port(PortType::kEthdev, "eth0"));
      continue;
    }
    if (section.name == "tenants") {
      out += commented_out(sample_tenant());
      continue;
    }
    for (const Key& key : keys()) {
      if (key.section != section.name) continue;
      append_comment(out, "  ", comment(key));
      out += fmt::format("  {}: {}\n", key.name, key.show({.config = &config}));
    }
  }
  return out;
}

std::string manual_page() {
  std::string out =
      ".TH INA-SWITCHD.YAML 5 \"\" \"INA\" \"File formats\"\n"
      ".SH NAME\n"
      "ina\\-switchd.yaml \\- configuration of ina\\-switchd\n"
      ".SH DESCRIPTION\n"
      "A YAML file: a map of the sections below, each a map of keys.\n"
      "Sections and keys that are left out keep their defaults, so an empty file is valid.\n"
      "Unknown and repeated keys, values of the wrong type and values out of range are errors,\n"
      "reported all at once with file, line and column.\n"
      "Anchors, aliases and tags are refused.\n"
      ".PP\n"
      "Sizes are in bytes, or have one of the suffixes KiB, MiB, GiB and TiB.\n"
      "Times need one of the units us, ms and s.\n";
  for (const Section& section : sections()) {
    out += fmt::format(".SH SECTION {}\n{}\n", section.name, roff(section.help));
    if (section.name == "ports")
      out +=
          "A list; each item is a map of the keys below.\n"
          "Without the section there is one port of type shm, named shm0.\n";
    if (section.name == "tenants") out += "Each item is a map of the keys below.\n";
    for (const Key& key : keys())
      if (key.section == section.name) out += manual_entry(key);
  }
  // A comment in the sample may start with a dot; roff text may not.
  out += ".SH EXAMPLE\nEvery key at its default:\n.PP\n.nf\n";
  std::istringstream lines(sample_config());
  for (std::string line; std::getline(lines, line);) out += roff(line) + '\n';
  out += ".fi\n.SH SEE ALSO\n.BR ina\\-switchd (8)\n";
  return out;
}

}  // namespace ina::config
