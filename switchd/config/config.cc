#include "switchd/config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "common/devargs.h"
#include "common/nearest.h"
#include "common/yaml/tree.h"
#include "switchd/config/keys.h"
#include "switchd/config/values.h"

namespace ina::config {
namespace {

/// Names what a memif server listens for; empty for any other device.
std::string memif_server(std::string_view device) {
  if (!device.starts_with("net_memif") || device_argument(device, "role", "client") != "server")
    return {};
  return fmt::format("id {} on {}", device_argument(device, "id", "0"),
                     device_argument(device, "socket", "/run/memif.sock"));
}

std::vector<std::string_view> hashed_policies() {
  std::vector<std::string_view> names;
  for (const Named<scheduler::PolicyKind>& policy : scheduler::kPolicyNames)
    if (scheduler::traits(policy.value).hashed) names.push_back(policy.name);
  return names;
}

/// A key of the file whose value was read.
struct Given {
  Place place;  ///< of the value
  bool valid = false;
};
/// By name, within one section or one port.
using GivenKeys = std::map<std::string_view, Given>;

class Loader {
 public:
  Loader(std::string_view file_name, std::vector<ConfigError> errors)
      : file_name_(file_name), errors_(std::move(errors)) {}

  void read(const Node& root) {
    if (root.kind == Node::Kind::kNull || root.kind == Node::Kind::kRefused) return;
    if (root.kind != Node::Kind::kMap) {
      report(root.place, fmt::format("a map of sections is expected, not {}", describe(root)));
      return;
    }
    std::vector<std::string_view> names;
    for (const Section& section : sections()) names.push_back(section.name);
    for_each_member(root, "", names, [this](std::string_view section, const Node& value) {
      if (section == "ports")
        read_ports(value);
      else if (section == "tenants")
        read_tenants(value);
      else
        read_section(section, value);
    });
    check_together();
  }

  tl::expected<Config, std::vector<ConfigError>> result() && {
    if (errors_.empty()) return std::move(config_);
    std::ranges::stable_sort(errors_, {},
                             [](const ConfigError& e) { return std::pair(e.line, e.column); });
    return tl::unexpected(std::move(errors_));
  }

 private:
  void report(Place place, std::string text) {
    errors_.push_back({file_name_, place.line, place.column, std::move(text)});
  }

  /// Calls `visit` for the members of `map` named in `names`, once each; reports the others. `path`
  /// is the map's own, empty or ending in a dot.
  template <class Visit>
  void for_each_member(const Node& map, const std::string& path,
                       const std::vector<std::string_view>& names, Visit visit) {
    std::map<std::string_view, int> first_line;
    for (size_t i = 0; i < map.items.size(); ++i) {
      const Node& key = map.keys[i];
      if (key.kind == Node::Kind::kRefused) continue;
      if (key.kind != Node::Kind::kScalar) {
        report(key.place, fmt::format("{}{} as a key; a name is expected", path, describe(key)));
        continue;
      }
      const auto found = std::ranges::find(names, key.text);
      if (found == names.end()) {
        report(key.place, fmt::format("{}{}: unknown key{}", path, printable(key.text),
                                      suggestion(key.text, names)));
        continue;
      }
      const auto [first, is_first] = first_line.emplace(*found, key.place.line);
      if (!is_first) {
        report(key.place,
               fmt::format("{}{}: given twice, first in line {}", path, *found, first->second));
        continue;
      }
      visit(*found, map.items[i]);
    }
  }

  std::string suggestion(std::string_view given, const std::vector<std::string_view>& names) {
    if (const auto name = nearest(given, names); !name.empty())
      return fmt::format("; did you mean \"{}\"?", name);
    for (const Key& key : keys())
      if (key.name == given) return fmt::format("; did you mean \"{}.{}\"?", key.section, key.name);
    return {};
  }

  void set(const Key& key, const Node& value, const std::string& path, const Target& target,
           GivenKeys& given) {
    Given& entry = given[key.name];
    entry.place = value.place;
    if (value.kind == Node::Kind::kRefused) return;
    std::string wrong = value.kind == Node::Kind::kNull ? "has no value" : key.set(value, target);
    entry.valid = wrong.empty();
    if (!entry.valid) report(value.place, fmt::format("{}{}: {}", path, key.name, wrong));
  }

  static const Key& key_named(std::string_view section, std::string_view name) {
    return *std::ranges::find_if(
        keys(), [&](const Key& key) { return key.section == section && key.name == name; });
  }

  void read_section(std::string_view section, const Node& map) {
    // A section whose keys are all commented out.
    if (map.kind == Node::Kind::kNull || map.kind == Node::Kind::kRefused) return;
    if (map.kind != Node::Kind::kMap) {
      report(map.place,
             fmt::format("{}: a map of keys is expected, not {}", section, describe(map)));
      return;
    }
    std::vector<std::string_view> names;
    for (const Key& key : keys())
      if (key.section == section) names.push_back(key.name);
    const std::string path = fmt::format("{}.", section);
    for_each_member(map, path, names, [&](std::string_view name, const Node& value) {
      set(key_named(section, name), value, path, {.config = &config_}, given_[section]);
    });
  }

  void read_ports(const Node& list) {
    if (list.kind == Node::Kind::kRefused) return;
    if (list.kind != Node::Kind::kList) {
      report(list.place, fmt::format("ports: a list of ports is expected, not {}", describe(list)));
      return;
    }
    config_.ports.clear();
    if (list.items.empty()) report(list.place, "ports: at least one port is needed");
    for (size_t i = 0; i < list.items.size(); ++i) read_port(list.items[i], i);
    check_ports();
  }

  void read_port(const Node& map, size_t index) {
    // Also for a port that cannot be read, so that indices stay those of the file.
    PortConfig& port = config_.ports.emplace_back();
    GivenKeys& given = given_ports_.emplace_back();
    const std::string path = fmt::format("ports[{}].", index);
    if (map.kind == Node::Kind::kRefused) return;
    if (map.kind != Node::Kind::kMap) {
      report(map.place,
             fmt::format("ports[{}]: a map of keys is expected, not {}", index, describe(map)));
      return;
    }
    std::vector<std::string_view> names;
    for (const Key& key : keys())
      if (key.section == "ports") names.push_back(key.name);
    const Target target{.config = &config_, .port = &port};
    std::vector<std::pair<const Key*, Place>> typed;
    size_t next = 0;
    for_each_member(map, path, names, [&](std::string_view name, const Node& value) {
      const Key& key = key_named("ports", name);
      while (&map.items[next] != &value) ++next;
      if (key.port_type) typed.emplace_back(&key, map.keys[next].place);
      set(key, value, path, target, given);
    });
    check_port_keys(map.place, index, port, typed);
  }

  void read_tenants(const Node& list) {
    if (list.kind == Node::Kind::kNull || list.kind == Node::Kind::kRefused) return;
    if (list.kind != Node::Kind::kList) {
      report(list.place,
             fmt::format("tenants: a list of tenants is expected, not {}", describe(list)));
      return;
    }
    for (size_t i = 0; i < list.items.size(); ++i) read_tenant(list.items[i], i);
  }

  void read_tenant(const Node& map, size_t index) {
    // Also for one that cannot be read, so that indices stay those of the file.
    scheduler::TenantQuota& tenant = config_.tenants.emplace_back();
    GivenKeys& given = given_tenants_.emplace_back();
    if (map.kind == Node::Kind::kRefused) return;
    if (map.kind != Node::Kind::kMap) {
      report(map.place,
             fmt::format("tenants[{}]: a map of keys is expected, not {}", index, describe(map)));
      return;
    }
    std::vector<std::string_view> names;
    for (const Key& key : keys())
      if (key.section == "tenants") names.push_back(key.name);
    const std::string path = fmt::format("tenants[{}].", index);
    for_each_member(map, path, names, [&](std::string_view name, const Node& value) {
      set(key_named("tenants", name), value, path, {.config = &config_, .tenant = &tenant}, given);
    });
    if (!given.contains("name"))
      report(map.place, fmt::format("tenants[{}]: name is missing", index));
  }

  void check_tenants() {
    std::map<std::string_view, size_t> first_by_name;
    const uint32_t lanes = config_.switchd.lcores;
    uint64_t floors = 0;
    for (size_t i = 0; i < config_.tenants.size(); ++i) {
      const scheduler::TenantQuota& tenant = config_.tenants[i];
      const GivenKeys& given = given_tenants_[i];
      const auto name = given.find("name");
      if (name != given.end() && name->second.valid) {
        const auto [first, is_first] = first_by_name.emplace(tenant.name, i);
        if (!is_first)
          report(name->second.place, fmt::format("tenants[{}].name: {} is the name of tenants[{}] "
                                                 "already",
                                                 i, tenant.name, first->second));
      }
      const auto floor = given.find("slots_floor");
      if (floor == given.end() || !floor->second.valid || tenant.slots_floor == 0) continue;
      const auto report_floor = [&](const std::string& text) {
        report(floor->second.place,
               fmt::format("tenants[{}].slots_floor: {} {}", i, tenant.slots_floor, text));
      };
      if (tenant.name == scheduler::kOtherTenants)
        report_floor("cannot be kept for tenants that are not named");
      if (tenant.slots_ceiling != 0 && tenant.slots_floor > tenant.slots_ceiling)
        report_floor(fmt::format("is more than its slots_ceiling, {}", tenant.slots_ceiling));
      // A lane's share is rounded up.
      floors += (tenant.slots_floor + lanes - 1) / lanes;
      const uint32_t slots = config_.aggregator.slots / lanes * lanes;
      if (floors * lanes > slots)
        report_floor(
            fmt::format("and those before it are {} slots more than there are "
                        "(aggregator.slots)",
                        floors * lanes - slots));
    }
  }

  /// The keys that a port of this type must and may have.
  void check_port_keys(Place place, size_t index, const PortConfig& port,
                       const std::vector<std::pair<const Key*, Place>>& typed) {
    const GivenKeys& given = given_ports_[index];
    const auto type = given.find("type");
    const bool type_known = type != given.end() && type->second.valid;
    if (type_known)
      for (const auto& [key, key_place] : typed)
        if (*key->port_type != port.type)
          report(key_place, fmt::format("ports[{}].{}: not a key of a port of type {}", index,
                                        key->name, name(port.type)));
    for (const Key& key : keys()) {
      if (key.section != "ports" || !key.required || given.contains(key.name)) continue;
      if (key.port_type && !(type_known && *key.port_type == port.type)) continue;
      report(place, fmt::format("ports[{}]: {} is missing ({})", index, key.name, key.range));
    }
  }

  /// The valid entry of a port's key, if there is one.
  const Given* given_port(size_t index, std::string_view name) const {
    const auto found = given_ports_[index].find(name);
    return found != given_ports_[index].end() && found->second.valid ? &found->second : nullptr;
  }

  bool is_ethdev(size_t index) const {
    return given_port(index, "type") && config_.ports[index].type == PortType::kEthdev;
  }

  void check_ports() {
    std::map<std::string_view, size_t> first_by_name;
    std::map<std::string, size_t> first_by_memif;
    std::optional<size_t> first_shm;
    for (size_t i = 0; i < config_.ports.size(); ++i) {
      const PortConfig& port = config_.ports[i];
      if (const Given* given = given_port(i, "name")) {
        const auto [first, is_first] = first_by_name.emplace(port.name, i);
        if (!is_first)
          report(given->place, fmt::format("ports[{}].name: {} is the name of ports[{}] already", i,
                                           port.name, first->second));
      }
      if (const Given* given = given_port(i, "type"); given && port.type == PortType::kShm) {
        if (first_shm)
          report(given->place,
                 fmt::format("ports[{}].type: only one port may be of type shm; ports[{}] is", i,
                             *first_shm));
        else
          first_shm = i;
      }
      if (const Given* given = given_port(i, "device")) {
        const std::string memif = memif_server(port.device);
        const auto [first, is_first] = first_by_memif.emplace(memif, i);
        if (!memif.empty() && !is_first)
          report(given->place,
                 fmt::format("ports[{}].device: ports[{}] is the memif server for {} already; give "
                             "it another id or socket",
                             i, first->second, memif));
      }
    }
  }

  /// Where the value of a key came from.
  struct Source {
    Place place;
    bool given = false;
    std::string_view remark() const { return given ? "" : " (the default)"; }
  };

  /// Nothing if the key was given and its value is wrong: that is reported already.
  std::optional<Source> source(const GivenKeys& given, std::string_view key) const {
    const auto found = given.find(key);
    if (found == given.end()) return Source{};
    if (!found->second.valid) return std::nullopt;
    return Source{found->second.place, true};
  }

  enum class Show : uint8_t { kCount, kMicroseconds };
  struct Value {
    std::string_view section;
    std::string_view key;
    uint64_t value;
  };

  /// Reports `small` if it is more than `large`, at the first of the two that was given.
  void check_order(const Value& small, const Value& large, Show show) {
    const auto small_source = source(given_[small.section], small.key);
    const auto large_source = source(given_[large.section], large.key);
    if (!small_source || !large_source || small.value <= large.value) return;
    const char* unit = show == Show::kMicroseconds ? " us" : "";
    report(small_source->given ? small_source->place : large_source->place,
           fmt::format("{}.{}: {}{}{} is more than {}.{}, {}{}{}", small.section, small.key,
                       small.value, unit, small_source->remark(), large.section, large.key,
                       large.value, unit, large_source->remark()));
  }

  bool hashes() const { return !config_.aggregator.fixed_slots(); }

  void check_together() {
    const auto policy = source(given_["aggregator"], "policy");
    if (policy && !hashes())
      check_order({"static", "slots_per_job", config_.static_pools.slots_per_job},
                  {"aggregator", "slots", config_.aggregator.slots}, Show::kCount);
    if (policy && hashes())
      check_order({"jobs", "slots_floor", config_.jobs.slots_floor},
                  {"aggregator", "slots", config_.aggregator.slots}, Show::kCount);
    if (config_.jobs.slots_ceiling != 0)
      check_order({"jobs", "slots_floor", config_.jobs.slots_floor},
                  {"jobs", "slots_ceiling", config_.jobs.slots_ceiling}, Show::kCount);
    check_order({"recovery", "rto_min", static_cast<uint64_t>(config_.rules.rto_min_ns) / 1000},
                {"recovery", "rto_max", static_cast<uint64_t>(config_.rules.rto_max_ns) / 1000},
                Show::kMicroseconds);
    check_straggler();
    for (size_t i = 0; i < given_ports_.size(); ++i)
      if (is_ethdev(i)) check_ethdev(i);
    check_tenants();
    check_control();
    check_uplink();
    check_admin();
  }

  void check_straggler() {
    const auto help = source(given_["straggler"], "help");
    const auto policy = source(given_["aggregator"], "policy");
    const auto home = source(given_["fallback"], "home");
    if (!help || !policy || !home || config_.straggler.help == Help::kOff) return;
    if (!hashes())
      report(
          help->place,
          fmt::format("straggler.help: {} does not go with aggregator.policy: {}{}, whose "
                      "slots wait for everybody; set aggregator.policy: {}, or straggler.help: off",
                      name(config_.straggler.help), name(config_.aggregator.policy.kind),
                      policy->remark(), fmt::join(hashed_policies(), " or ")));
    if (config_.straggler.help == Help::kSpill && config_.rules.home != Home::kSpill)
      report(help->place,
             fmt::format("straggler.help: spill needs fallback.home: spill, not {}{}; set it, or "
                         "straggler.help: fallback",
                         name(config_.rules.home), home->remark()));
    check_order({"jobs", "window_bytes", config_.jobs.window_bytes},
                {"straggler", "run_ahead", config_.straggler.run_ahead_bytes}, Show::kCount);
  }

  /// Without tokens anybody who reaches the port may join: the file must say so.
  void check_control() {
    const ControlConfig& control = config_.control;
    const auto listen = source(given_["control"], "listen");
    const auto token_file = source(given_["control"], "token_file");
    const auto anonymous = source(given_["control"], "allow_anonymous");
    const bool tls = !control.tls.certificate.empty();
    check_tls();
    if (!listen || !token_file || !anonymous || control.listen.empty()) return;
    if (tls && control.require_client_certificate) return;
    if (control.token_file.empty() && !control.allow_anonymous)
      report(listen->place,
             "control.listen: without control.token_file anybody who reaches the port could join; "
             "set it, or control.allow_anonymous: true if that is meant");
  }

  /// Sums go up by an Ethernet port, and from hashed slots.
  void check_uplink() {
    const auto url = source(given_["uplink"], "url");
    const auto port = source(given_["uplink"], "port");
    const auto below = source(given_["control"], "switches_below");
    const auto policy = source(given_["aggregator"], "policy");
    const auto place = [&](const auto& key) { return key->place; };
    if (policy && config_.aggregator.fixed_slots()) {
      const auto refuse = [&](const auto& key, const std::string& value, std::string_view name) {
        if (key && !value.empty())
          report(place(key),
                 fmt::format("{}: needs aggregator.policy esa or fcfs, not static", name));
      };
      refuse(url, config_.uplink.url, "uplink.url");
      refuse(below, config_.control.switches_below, "control.switches_below");
    }
    if (!url || !port || config_.uplink.url.empty()) return;
    const auto is_there = [&](const PortConfig& one) {
      return one.type == PortType::kEthdev && one.name == config_.uplink.port;
    };
    if (std::ranges::none_of(config_.ports, is_there))
      report(port->given ? place(port) : place(url),
             fmt::format("uplink.port: '{}' is not the name of an ethdev port, by which the switch "
                         "above would be reached",
                         config_.uplink.port));
  }

  void check_tls() {
    const ControlConfig& control = config_.control;
    GivenKeys& given = given_["control"];
    const auto certificate = source(given, "tls_certificate");
    const auto key = source(given, "tls_key");
    if (!certificate || !key) return;
    if (control.tls.certificate.empty() != control.tls.key.empty())
      report(certificate->given ? certificate->place : key->place,
             "control.tls_certificate and control.tls_key go together: one is set");
    const auto ca = source(given, "tls_client_ca");
    if (certificate->given && !control.tls.certificate.empty() && ca && control.tls.ca.empty() &&
        control.require_client_certificate)
      report(certificate->place,
             "control.tls_certificate: needs control.tls_client_ca, whose signature workers' "
             "certificates must have, or control.tls_require_client_certificate: false");
  }

  /// Over TCP it is certificates that say who administers.
  void check_admin() {
    const auto listen = source(given_["admin"], "listen");
    if (!listen || config_.admin.listen.empty()) return;
    const std::pair<std::string_view, std::string control::TlsFiles::*> needed[] = {
        {"certificate", &control::TlsFiles::certificate},
        {"key", &control::TlsFiles::key},
        {"client_ca", &control::TlsFiles::ca}};
    for (const auto& [key, field] : needed)
      if (source(given_["admin"], key) && (config_.admin.tls.*field).empty())
        report(listen->place, fmt::format("admin.listen: needs admin.{}", key));
  }

  /// A port's hosts have addresses of their own, and not the switch's.
  void check_hosts(size_t index, const GivenKeys& given) {
    const auto hosts = source(given, "hosts");
    if (!hosts) return;
    const auto wrong = [&](const HostConfig& host, const std::string& why) {
      report(hosts->place, fmt::format("ports[{}].hosts: {}: {}", index, format_host(host), why));
    };
    const std::vector<HostConfig>& list = config_.ports[index].hosts;
    for (auto host = list.begin(); host != list.end(); ++host) {
      if (host->ip == 0) continue;
      for (const PortConfig& port : config_.ports)
        if (port.type == PortType::kEthdev && port.ip == host->ip)
          wrong(*host, fmt::format("this is the switch's own address on port {}", port.name));
      const auto first = std::ranges::find(list, host->ip, &HostConfig::ip);
      if (first != host)
        wrong(*host, fmt::format("{} has this address already", format_host(*first)));
    }
  }

  void check_ethdev(size_t index) {
    const PortConfig& port = config_.ports[index];
    const GivenKeys& given = given_ports_[index];
    const auto mtu = source(given, "mtu");
    const auto slot_bytes = source(given_["aggregator"], "slot_bytes");
    const uint32_t needed = config_.aggregator.slot_bytes + kHeaderBytesInMtu;
    if (mtu && slot_bytes && needed > port.mtu_bytes)
      report(
          mtu->given ? mtu->place : slot_bytes->place,
          fmt::format("ports[{}].mtu: {}{} is {} bytes too small for aggregator.slot_bytes, {}{}, "
                      "with {} bytes of headers",
                      index, port.mtu_bytes, mtu->remark(), needed - port.mtu_bytes,
                      config_.aggregator.slot_bytes, slot_bytes->remark(), kHeaderBytesInMtu));
    check_hosts(index, given);
    const auto vlan = source(given, "vlan");
    const auto vlans = source(given, "vlans");
    if (vlan && vlans && !port.vlans.empty() &&
        std::ranges::find(port.vlans, port.vlan) == port.vlans.end())
      report(vlans->place, fmt::format("ports[{}].vlans: {} is missing, which is ports[{}].vlan{}",
                                       index, port.vlan, index, vlan->remark()));
    const auto udp_port = source(given, "udp_port");
    const auto lcores = source(given_["switch"], "lcores");
    const uint32_t last = port.udp_port + config_.switchd.lcores - 1;
    if (udp_port && lcores && last > 65535)
      report(udp_port->given ? udp_port->place : lcores->place,
             fmt::format("ports[{}].udp_port: {}{} leaves no UDP ports up to {} for {} lcores, one "
                         "each",
                         index, port.udp_port, udp_port->remark(), last, config_.switchd.lcores));
  }

  std::string file_name_;
  std::vector<ConfigError> errors_;
  Config config_;
  std::map<std::string_view, GivenKeys> given_;  ///< by section
  std::vector<GivenKeys> given_ports_;
  std::vector<GivenKeys> given_tenants_;
};

/// The value of a map's key; made if there is none.
Node& member(Node& map, std::string_view name) {
  map.kind = Node::Kind::kMap;
  const auto found = std::ranges::find(map.keys, name, &Node::text);
  if (found != map.keys.end()) return map.items[static_cast<size_t>(found - map.keys.begin())];
  map.keys.push_back({.kind = Node::Kind::kScalar, .place = {0, 0}, .text = std::string(name)});
  return map.items.emplace_back();
}

/// As if the text said so.
void override_values(Node& root, const std::vector<Override>& overrides) {
  const auto has_members = [](const Node& node) {
    return node.kind == Node::Kind::kMap || node.kind == Node::Kind::kNull;
  };
  for (const auto& [key, value] : overrides) {
    if (!has_members(root)) return;  // an error, which is reported
    const size_t dot = key.find('.');
    Node& section = member(root, std::string_view(key).substr(0, dot));
    if (!has_members(section)) continue;
    member(section, std::string_view(key).substr(dot + 1)) = {
        .kind = Node::Kind::kScalar, .place = {0, 0}, .text = value};
  }
}

}  // namespace

tl::expected<Config, std::vector<ConfigError>> load_config(std::string_view text,
                                                           std::string_view file_name,
                                                           const std::vector<Override>& overrides) {
  Tree tree = yaml::parse(text, file_name);
  override_values(tree.root, overrides);
  Loader loader(file_name, std::move(tree.errors));
  if (tree.complete) loader.read(tree.root);
  return std::move(loader).result();
}

tl::expected<Config, std::vector<ConfigError>> load_config_file(const std::string& path) {
  const auto text = yaml::read_file(path);
  if (!text) return tl::unexpected(text.error());
  return load_config(*text, path);
}

}  // namespace ina::config
