#include "programs/inactl/status_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/text_table.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

using Json = nlohmann::json;

std::string format_seconds(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds);
  if (whole < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

std::string ports_text(const Json& status, size_t width) {
  TextTable table({"PORT", "TYPE", "RX PACKETS", "RX PAYLOAD", "TX PACKETS", "TX PAYLOAD"},
                  {true, true, false, false, false, false});
  for (const Json& port : child(status, "ports"))
    table.add({text(port, "name"), text(port, "type"), with_separators(number(port, "rx_packets")),
               format_bytes(number(port, "rx_bytes")), with_separators(number(port, "tx_packets")),
               format_bytes(number(port, "tx_bytes"))});
  return table.empty() ? "no port\n" : table.str(width);
}

/// What keeps ports from their work, or has kept frames from them.
std::string trouble_text(const Json& status) {
  std::string out;
  for (const std::string& trouble : port_troubles(status)) out += fmt::format("  {}\n", trouble);
  for (const Json& port : child(status, "ports"))
    if (const uint64_t lost = number(port, "lost_before"); lost != 0)
      out += fmt::format("  {} frames were lost before port {} could take them\n",
                         with_separators(lost), text(port, "name"));
  return out.empty() ? "" : "\n" + out;
}

/// The ports' bridged frames, which are not for the switch itself; empty if no port bridges.
std::string bridge_text(const Json& status, size_t width) {
  const Json& bridge = child(status, "bridge");
  if (!bridge.is_object()) return "";
  TextTable table(
      {"BRIDGED", "LINK", "FORWARDED", "FLOODED", "SENT", "SENT BYTES", "LOST", "ANSWERED"},
      {true, true, false, false, false, false, false, false});
  table.set_expendable({7});
  for (const Json& port : child(status, "ports"))
    if (child(port, "forwarded").is_number())
      table.add({text(port, "name"), link_text(port), with_separators(number(port, "forwarded")),
                 with_separators(number(port, "flooded")),
                 with_separators(number(port, "bridged_sent")),
                 format_bytes(number(port, "bridged_sent_bytes")),
                 with_separators(number(port, "bridged_lost")),
                 with_separators(number(port, "answered"))});
  return fmt::format("\n{}  {} of {} addresses known, {} moved, {} found no room\n",
                     table.str(width), with_separators(number(bridge, "mac_entries")),
                     with_separators(number(bridge, "mac_capacity")),
                     with_separators(number(bridge, "moved")),
                     with_separators(number(bridge, "refused")));
}

std::string lcores_text(const Json& status, size_t width) {
  TextTable table({"LCORE", "PACKETS", "POLLS", "SLEEPS", "BUSY"},
                  {true, false, false, false, false});
  for (const Json& lcore : child(status, "lcores"))
    table.add({std::to_string(number(lcore, "lcore")), with_separators(number(lcore, "packets")),
               with_separators(number(lcore, "polls")), with_separators(number(lcore, "sleeps")),
               fmt::format("{:.1f} %", 100.0 * real(lcore, "busy_ratio"))});
  return table.empty() ? "" : fmt::format("\n{}", table.str(width));
}

std::string aggregator_text(const Json& status) {
  const Json& aggregator = child(status, "aggregator");
  const std::string home = child(aggregator, "home").is_string()
                               ? fmt::format(" (fallback: {})", text(aggregator, "home"))
                               : "";
  std::string out =
      fmt::format("\naggregator: policy {}{}, {} slots of {}, {} reserved, {} in use (peak {})\n",
                  text(aggregator, "policy"), home, with_separators(number(aggregator, "slots")),
                  format_bytes(number(aggregator, "slot_bytes")),
                  with_separators(number(aggregator, "slots_reserved")),
                  with_separators(number(aggregator, "slots_used")),
                  with_separators(number(aggregator, "slots_used_peak")));
  out +=
      fmt::format("  absorbed {} contributions", with_separators(number(aggregator, "absorbed")));
  if (child(aggregator, "absorbed_bytes").is_number())
    out += fmt::format(" ({})", format_bytes(number(aggregator, "absorbed_bytes")));
  if (child(aggregator, "grouped").is_number())
    out += fmt::format(", {} of them in {} groups", with_separators(number(aggregator, "grouped")),
                       with_separators(number(aggregator, "groups")));
  out += fmt::format(", completed {} results\n", with_separators(number(aggregator, "results")));
  // Counters of the policies that share slots; static has none of them.
  static constexpr std::pair<const char*, const char*> kShared[] = {
      {"preemptions", "preemptions"},
      {"parts", "partial sums to the fallback"},
      {"bypassed", "that found no slot"},
      {"fallback_results", "results of the fallback"},
      {"parked", "parked"},
      {"reminders", "reminders"}};
  std::string shared;
  for (const auto& [key, what] : kShared)
    if (child(aggregator, key).is_number())
      shared += fmt::format("{}{} {}", shared.empty() ? "  " : ", ",
                            with_separators(number(aggregator, key)), what);
  if (!shared.empty()) out += shared + "\n";
  if (child(aggregator, "memory_bytes").is_number()) {
    const uint64_t held = number(aggregator, "memory_held_bytes");
    out += fmt::format("  memory of jobs {} of {}{}\n",
                       format_bytes(number(aggregator, "memory_used_bytes")),
                       format_bytes(number(aggregator, "memory_bytes")),
                       held == 0 ? "" : ", " + format_bytes(held) + " held after their end");
  }
  return out;
}

void add_drops(const std::string& where, const Json& drops, TextTable& table) {
  if (!drops.is_object()) return;
  for (const auto& [reason, count] : drops.items())
    if (count.is_number_unsigned() && count != 0u)
      table.add({where, printable(reason), with_separators(count.get<uint64_t>()),
                 std::string(describe_drop(reason))});
}

std::string drops_text(const Json& status, size_t width) {
  TextTable table({"DROPS AT", "REASON", "PACKETS", "MEANING"}, {true, true, false, true});
  for (const Json& port : child(status, "ports"))
    add_drops(text(port, "name"), child(port, "drops"), table);
  add_drops("aggregator", child(child(status, "aggregator"), "drops"), table);
  return fmt::format("\n{}", table.empty() ? "drops: none\n" : table.str(width));
}

std::string jobs_text(const Json& status, size_t width) {
  TextTable table({"JOB", "OWNER", "ID", "EPOCH", "STATE", "JOINED", "WINDOW", "SLOTS"},
                  {true, true, false, false, true, false, false, true});
  table.set_expendable({3, 6, 2});
  std::string waiting;
  for (const Json& job : child(status, "jobs")) {
    table.add({text(job, "name"), text(job, "owner"), std::to_string(number(job, "id")),
               std::to_string(number(job, "epoch")), text(job, "state"),
               fmt::format("{} of {}", ranks(job, "joined").size(), number(job, "world_size")),
               with_separators(number(job, "window")), slots_text(job)});
    waiting += fmt::format("job {}: {}\n", job_label(job), waiting_text(job));
  }
  if (table.empty()) return "\nno job: no worker has joined\n";
  return fmt::format("\n{}\n{}", table.str(width), waiting);
}

/// The other switches of jobs in trees.
std::string trees_text(const Json& status, size_t width) {
  TextTable table({"TREE OF JOB", "SWITCH", "AT", "RANKS", "STATE"},
                  {true, true, true, true, true});
  for (const Json& job : child(status, "jobs")) {
    const Json& tree = child(job, "tree");
    if (const Json& above = child(tree, "above"); above.is_object())
      table.add({job_label(job), "above", text(above, "url"), "", text(above, "state")});
    for (const Json& below : child(tree, "below"))
      table.add({job_label(job), "below", text(below, "peer"), ranks_text(ranks(below, "ranks")),
                 text(below, "state")});
  }
  return table.empty() ? "" : fmt::format("\n{}", table.str(width));
}

/// "3 of 8", or "3" where there is no limit.
std::string of_limit(uint64_t used, uint64_t limit) {
  return limit == 0 ? with_separators(used)
                    : fmt::format("{} of {}", with_separators(used), with_separators(limit));
}

bool is_limited(const Json& tenant) {
  const Json& quota = child(tenant, "quota");
  if (!quota.is_object()) return false;
  return std::ranges::any_of(quota.items(), [](const auto& limit) {
    return limit.value() != (limit.key() == "priority_max" ? 255u : 0u);
  });
}

/// Switches of a tree that are away; empty: none is.
std::string away_text(const Json& job) {
  const Json& tree = child(job, "tree");
  std::string out;
  if (const Json& above = child(tree, "above"); text(above, "state") == "away")
    out += fmt::format("; the switch above ({}) is away", text(above, "url"));
  for (const Json& below : child(tree, "below"))
    if (text(below, "state") == "away")
      out += fmt::format("; the switch below with {} is away", ranks_text(ranks(below, "ranks")));
  return out;
}

}  // namespace

std::string waiting_text(const Json& job) {
  const std::string state = text(job, "state");
  const bool no_fallback = child(job, "fallback_missing") == true;
  const std::string fallback = "the fallback server (ina-psd)";
  if (state == "joining") {
    const auto missing = ranks(job, "missing");
    if (missing.empty())
      return no_fallback ? fmt::format("waiting for {}", fallback) : "all ranks have joined";
    return fmt::format("waiting for {}{} to join", ranks_text(missing),
                       no_fallback ? " and " + fallback : "");
  }
  if (state == "rejoining") {
    const auto missing = ranks(job, "missing");
    return fmt::format("the switch was restarted: waiting for {} to come back",
                       missing.empty() ? "nobody" : ranks_text(missing));
  }
  if (state == "leaving") return "leaving: waits until every rank has called ina_finalize";
  if (state == "aborted") return "aborted, about to be removed";
  const auto waiting_for = ranks(job, "waiting_for");
  const std::string gone = no_fallback
                               ? fmt::format("; {} is gone and must be started again", fallback)
                               : away_text(job);
  // One look says nothing of what the job does between two fragments.
  if (waiting_for.empty())
    return fmt::format("{} fragments completed so far, none is incomplete now",
                       with_separators(number(job, "results") + number(job, "fallback_results") +
                                       number(job, "parker_results"))) +
           gone;
  std::string out = fmt::format("fragment {} waits for {}", number(job, "oldest_fragment"),
                                ranks_text(waiting_for));
  if (child(job, "oldest_operation").is_string())
    out += fmt::format(" ({})", text(job, "oldest_operation"));
  return out + gone;
}

std::vector<std::string> port_troubles(const Json& status) {
  std::vector<std::string> texts;
  for (const Json& port : child(status, "ports")) {
    if (child(port, "gone").is_string()) texts.push_back(text(port, "gone"));
    if (const Json& blocked = child(port, "blocked"); blocked.is_object())
      texts.push_back(text(blocked, "text"));
  }
  return texts;
}

std::string link_text(const Json& port) {
  return child(port, "blocked").is_object() ? "blocked" : text(port, "link");
}

std::string slots_text(const Json& job) {
  if (!child(job, "slots_ceiling").is_number()) return with_separators(number(job, "slots"));
  const std::string bounds = fmt::format("{}..{}", with_separators(number(job, "slots_floor")),
                                         with_separators(number(job, "slots_ceiling")));
  if (!child(job, "slots_held").is_number()) return bounds;
  std::string out = fmt::format("{} of {}", with_separators(number(job, "slots_held")), bounds);
  if (child(job, "parked_now").is_number())
    out += fmt::format(", {} parked", with_separators(number(job, "parked_now")));
  return out;
}

std::string format_tenants(const Json& status, size_t width) {
  TextTable table(
      {"TENANT", "JOBS", "WORKERS", "SLOTS KEPT", "SLOTS AT MOST", "MEMORY", "PRIORITY"},
      {true, false, false, false, false, false, false});
  table.set_expendable({6, 2});
  for (const Json& tenant : child(status, "tenants")) {
    const Json& quota = child(tenant, "quota");
    const uint64_t memory = number(quota, "memory_bytes");
    table.add({text(tenant, "name"), of_limit(number(tenant, "jobs"), number(quota, "jobs_max")),
               of_limit(number(tenant, "workers"), number(quota, "workers_max")),
               of_limit(number(tenant, "slots_floor"), number(quota, "slots_floor")),
               of_limit(number(tenant, "slots_ceiling"), number(quota, "slots_ceiling")),
               format_bytes(number(tenant, "memory_bytes")) +
                   (memory == 0 ? "" : " of " + format_bytes(memory)),
               std::to_string(number(quota, "priority_max"))});
  }
  return table.empty() ? "no tenant: no worker has joined, and none has a quota\n"
                       : table.str(width);
}

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto scaled = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  // 1023.95 and more would be printed as 1024.0.
  while (scaled >= 1023.95 && unit + 1 < std::size(kUnits)) {
    scaled /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", scaled, kUnits[unit]);
}

namespace {

/// Nothing where nobody has a quota.
std::string tenants_text(const Json& status, size_t width) {
  return std::ranges::any_of(child(status, "tenants"), is_limited)
             ? "\n" + format_tenants(status, width)
             : "";
}

}  // namespace

std::string format_status(const Json& status, size_t width) {
  std::string out = fmt::format("ina-switchd {}, up {}", text(status, "version"),
                                format_seconds(real(status, "uptime_s")));
  if (number(status, "boots") > 1)
    out += fmt::format(", started {} times", number(status, "boots"));
  out += "\n\n" + ports_text(status, width) + trouble_text(status) + bridge_text(status, width) +
         lcores_text(status, width) + aggregator_text(status) + drops_text(status, width) +
         tenants_text(status, width) + jobs_text(status, width) + trees_text(status, width);
  return wrapped(out, width);
}

}  // namespace ina::cli
