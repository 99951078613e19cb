#include "switchd/config/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "switchd/config/keys.h"

namespace ina::config {

namespace {

/// Keys that a reload applies to jobs, connections and records from then on. Ports, lanes and their
/// shape, and the rules told to running jobs' workers, change with the process.
constexpr std::array<std::string_view, 16> kInPlace = {
    "static.slots_per_job",
    "straggler.help",
    "straggler.run_ahead",
    "straggler.park_memory",
    "jobs.window_bytes",
    "jobs.slots_floor",
    "jobs.slots_ceiling",
    "jobs.priority_max",
    "jobs.memory",
    "control.join_timeout",
    "control.rejoin_timeout",
    "control.max_connections_per_user",
    "control.max_unjoined",
    "control.token_file",
    "control.allow_anonymous",
    "log.level",
};

bool is_in_place(const std::string& name) {
  return std::ranges::find(kInPlace, name) != kInPlace.end();
}

/// The keys of ports and tenants need one of those.
bool is_of_list(const Key& key) {
  return key.section == "ports" || key.section == "tenants";
}

Target target_of(Config& config) {
  return {.config = &config};
}

/// The target of a port's or tenant's keys: `section` says which.
Target target_of(PortConfig& port) {
  return {.port = &port};
}
Target target_of(scheduler::TenantQuota& tenant) {
  return {.tenant = &tenant};
}

bool applies(const Key& key, const PortConfig& port) {
  return !key.port_type || *key.port_type == port.type;
}
bool applies(const Key&, const scheduler::TenantQuota&) {
  return true;
}

template <class Item>
auto find_named(std::vector<Item>& items, const std::string& name) {
  return std::ranges::find(items, name, [](const Item& item) { return item.name; });
}

/// Ports or tenants, which are known by their names.
template <class Item>
void compare_items(std::string_view section, std::vector<Item> before, std::vector<Item> after,
                   std::vector<Change>& found) {
  for (Item& old : before) {
    const std::string name = fmt::format("{}.{}", section, std::string(old.name));
    const auto now = find_named(after, std::string(old.name));
    if (now == after.end()) {
      found.push_back({.key = name, .before = "there", .after = ""});
      continue;
    }
    for (const Key& key : keys()) {
      if (key.section != section || !applies(key, old) || !applies(key, *now)) continue;
      std::string was = key.show(target_of(old));
      std::string is = key.show(target_of(*now));
      if (was != is)
        found.push_back({.key = fmt::format("{}.{}", name, key.name),
                         .before = std::move(was),
                         .after = std::move(is)});
    }
  }
  for (const Item& added : after)
    if (find_named(before, std::string(added.name)) == before.end())
      found.push_back({.key = fmt::format("{}.{}", section, std::string(added.name)),
                       .before = "",
                       .after = "there"});
}

bool are_in_other_order(const std::vector<PortConfig>& before,
                        const std::vector<PortConfig>& after) {
  return before.size() == after.size() &&
         std::ranges::is_permutation(before, after, {}, &PortConfig::name, &PortConfig::name) &&
         !std::ranges::equal(before, after, {}, &PortConfig::name, &PortConfig::name);
}

/// Under static a floor is a part of the array, and jobs lie in it.
bool has_fixed_floors(const Config& config) {
  return config.aggregator.fixed_slots() &&
         std::ranges::any_of(config.tenants, [](const scheduler::TenantQuota& tenant) {
           return tenant.slots_floor != 0;
         });
}

void compare_tenants(const Config& before, const Config& after, std::vector<Change>& found) {
  const size_t first = found.size();
  compare_items("tenants", before.tenants, after.tenants, found);
  const bool in_place = !has_fixed_floors(before) && !has_fixed_floors(after);
  for (size_t i = first; i < found.size(); ++i) found[i].in_place = in_place;
}

}  // namespace

std::string Change::to_string() const {
  if (before == "there" && after.empty()) return key + ": is no more";
  if (before.empty() && after == "there") return key + ": is new";
  return fmt::format("{}: {} -> {}", key, before, after);
}

std::span<const std::string_view> keys_in_place() {
  return kInPlace;
}

std::vector<Change> changes(const Config& before, const Config& after) {
  std::vector<Change> found;
  Config old = before;
  Config now = after;
  for (const Key& key : keys()) {
    if (is_of_list(key)) continue;
    std::string was = key.show(target_of(old));
    std::string is = key.show(target_of(now));
    const std::string name = full_name(key);
    if (was != is) found.push_back({name, std::move(was), std::move(is), is_in_place(name)});
  }
  compare_items("ports", before.ports, after.ports, found);
  if (are_in_other_order(before.ports, after.ports))
    found.push_back({.key = "ports", .before = "in one order", .after = "in another"});
  compare_tenants(before, after, found);
  return found;
}

}  // namespace ina::config
