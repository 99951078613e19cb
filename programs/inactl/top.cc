#include "programs/inactl/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/text_table.h"
#include "programs/inactl/status_format.h"
#include "programs/inactl/status_json.h"

namespace ina::cli {

namespace {

using Json = nlohmann::json;

/// Differences of counters, a second.
struct Rates {
  double seconds = 0;

  double of(uint64_t before, uint64_t now) const {
    return seconds > 0 && now > before ? static_cast<double>(now - before) / seconds : 0;
  }
  double of(const Json& before, const Json& now, const char* counter) const {
    return of(number(before, counter), number(now, counter));
  }
};

/// The entry of `list` whose `key` is that of `like`; null if there is none.
const Json& same(const Json& list, const Json& like, const char* key) {
  static const Json kNull;
  for (const Json& entry : list)
    if (child(entry, key) == child(like, key)) return entry;
  return kNull;
}

uint64_t all_drops(const Json& of) {
  uint64_t sum = 0;
  const Json& drops = child(of, "drops");
  if (!drops.is_object()) return 0;
  for (const auto& [reason, count] : drops.items())
    if (count.is_number_unsigned()) sum += count.get<uint64_t>();
  return sum;
}

uint64_t completed(const Json& job) {
  return number(job, "results") + number(job, "fallback_results") + number(job, "parker_results");
}

Top::Job job_of(const Json& before, const Json& now, const Rates& rates, uint64_t slot_bytes) {
  Top::Job job;
  job.name = job_label(now);
  job.state = text(now, "state");
  job.joined = ranks(now, "joined").size();
  job.world_size = number(now, "world_size");
  job.fragments = rates.of(completed(before), completed(now));
  job.bytes = job.fragments * static_cast<double>(slot_bytes);
  const double absorbed = rates.of(before, now, "absorbed");
  const double all = absorbed + rates.of(before, now, "bypassed");
  job.offload = all > 0 ? absorbed / all : 0;
  job.preempted = rates.of(before, now, "preempted");
  job.slots_held = number(now, "slots_held");
  job.waiting_for = ranks(now, "waiting_for");
  return job;
}

/// Nothing: the port does not forward.
std::optional<Top::Transit> transit_of(const Json& before, const Json& now, const Rates& rates) {
  if (!child(now, "forwarded").is_number()) return std::nullopt;
  return Top::Transit{.link = link_text(now),
                      .forwarded = rates.of(before, now, "forwarded"),
                      .forwarded_bytes = rates.of(before, now, "forwarded_bytes"),
                      .flooded = rates.of(before, now, "flooded"),
                      .sent_bytes = rates.of(before, now, "bridged_sent_bytes"),
                      .lost = rates.of(before, now, "bridged_lost"),
                      .learned = rates.of(before, now, "learned"),
                      .moved = rates.of(before, now, "moved")};
}

std::string bytes_text(double bytes) {
  return format_bytes(static_cast<uint64_t>(std::llround(bytes))) + "/s";
}

std::string count_text(double number) {
  return with_separators(static_cast<uint64_t>(std::llround(number)));
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

std::string lanes_text(const Top& top, size_t width) {
  TextTable table({"LOOP", "BUSY", "PACKETS/S"}, {true, false, false});
  for (const Top::Lane& lane : top.lanes)
    table.add({std::to_string(lane.lane), percent(lane.busy), count_text(lane.packets)});
  return table.empty() ? "" : "\n" + table.str(width);
}

std::string ports_text(const Top& top, size_t width) {
  TextTable table({"PORT", "RECEIVED", "SENT", "DROPS/S"}, {true, false, false, false});
  for (const Top::Port& port : top.ports)
    table.add(
        {port.name, bytes_text(port.rx_bytes), bytes_text(port.tx_bytes), count_text(port.drops)});
  return table.empty() ? "" : "\n" + table.str(width);
}

/// Frames for others than the switch.
std::string transit_text(const Top& top, size_t width) {
  TextTable table({"BRIDGED", "LINK", "FORWARDED", "FLOODED/S", "SENT", "LOST/S", "MOVED/S"},
                  {true, true, false, false, false, false, false});
  for (const Top::Port& port : top.ports)
    if (const auto& transit = port.transit)
      table.add({port.name, transit->link, bytes_text(transit->forwarded_bytes),
                 count_text(transit->flooded), bytes_text(transit->sent_bytes),
                 count_text(transit->lost), count_text(transit->moved)});
  return table.empty() ? "" : "\n" + table.str(width);
}

std::string jobs_text(const Top& top, size_t most, size_t width) {
  TextTable table({"JOB", "STATE", "RANKS", "FRAGMENTS/S", "AT MOST", "IN SLOTS", "PREEMPTED/S",
                   "SLOTS", "WAITS FOR"},
                  {true, true, false, false, false, false, false, false, true});
  table.set_expendable({7, 4, 6, 1, 5});
  for (const Top::Job& job : top.jobs) {
    if (most-- == 0) break;
    table.add({job.name, job.state, fmt::format("{} of {}", job.joined, job.world_size),
               count_text(job.fragments), bytes_text(job.bytes), percent(job.offload),
               count_text(job.preempted), with_separators(job.slots_held),
               job.waiting_for.empty() ? "" : ranks_text(job.waiting_for)});
  }
  return table.empty() ? "\nno job: no worker has joined\n" : "\n" + table.str(width);
}

}  // namespace

Top top(const Json& before, const Json& now) {
  Top found;
  found.seconds = std::max(0.0, real(now, "uptime_s") - real(before, "uptime_s"));
  const Rates rates{found.seconds};
  const Json& aggregator = child(now, "aggregator");
  found.policy = text(aggregator, "policy");
  found.slots = number(aggregator, "slots");
  found.slots_used = number(aggregator, "slots_used");
  found.aggregator_drops = rates.of(all_drops(child(before, "aggregator")), all_drops(aggregator));
  for (const Json& lane : child(now, "lcores")) {
    const Json& then = same(child(before, "lcores"), lane, "lcore");
    const double busy_s = real(lane, "busy_s") - real(then, "busy_s");
    found.lanes.push_back({number(lane, "lcore"),
                           rates.seconds > 0 ? std::clamp(busy_s / rates.seconds, 0.0, 1.0) : 0,
                           rates.of(then, lane, "packets")});
  }
  const bool forwards = child(now, "bridge").is_object();
  for (const Json& port : child(now, "ports")) {
    const Json& then = same(child(before, "ports"), port, "name");
    found.ports.push_back({text(port, "name"), rates.of(then, port, "rx_bytes"),
                           rates.of(then, port, "tx_bytes"),
                           rates.of(all_drops(then), all_drops(port)),
                           forwards ? transit_of(then, port, rates) : std::nullopt});
  }
  for (const Json& job : child(now, "jobs"))
    found.jobs.push_back(job_of(same(child(before, "jobs"), job, "id"), job, rates,
                                number(aggregator, "slot_bytes")));
  std::ranges::stable_sort(found.jobs, std::greater<>(), &Top::Job::fragments);
  return found;
}

std::string format_top(const Top& top, size_t most_jobs, size_t width) {
  std::string out = fmt::format("policy {}, {} of {} slots in use, {} drops/s of the aggregator\n",
                                top.policy, with_separators(top.slots_used),
                                with_separators(top.slots), count_text(top.aggregator_drops));
  out = wrapped(out, width) + lanes_text(top, width) + ports_text(top, width) +
        transit_text(top, width) + jobs_text(top, most_jobs, width);
  if (top.jobs.size() > most_jobs) out += fmt::format("and {} more\n", top.jobs.size() - most_jobs);
  return out;
}

Json top_json(const Top& top) {
  Json lanes = Json::array();
  for (const Top::Lane& lane : top.lanes)
    lanes.push_back(
        {{"lane", lane.lane}, {"busy_ratio", lane.busy}, {"packets_per_s", lane.packets}});
  Json ports = Json::array();
  for (const Top::Port& port : top.ports) {
    Json& json = ports.emplace_back(Json{{"name", port.name},
                                         {"rx_bytes_per_s", port.rx_bytes},
                                         {"tx_bytes_per_s", port.tx_bytes},
                                         {"drops_per_s", port.drops}});
    if (!port.transit) continue;
    json["link"] = port.transit->link;
    json["forwarded_per_s"] = port.transit->forwarded;
    json["forwarded_bytes_per_s"] = port.transit->forwarded_bytes;
    json["flooded_per_s"] = port.transit->flooded;
    json["bridged_sent_bytes_per_s"] = port.transit->sent_bytes;
    json["bridged_lost_per_s"] = port.transit->lost;
    json["learned_per_s"] = port.transit->learned;
    json["moved_per_s"] = port.transit->moved;
  }
  Json jobs = Json::array();
  for (const Top::Job& job : top.jobs)
    jobs.push_back({{"job", job.name},
                    {"state", job.state},
                    {"joined", job.joined},
                    {"world_size", job.world_size},
                    {"fragments_per_s", job.fragments},
                    {"bytes_per_s_at_most", job.bytes},
                    {"offload_ratio", job.offload},
                    {"preempted_per_s", job.preempted},
                    {"slots_held", job.slots_held},
                    {"waiting_for", job.waiting_for}});
  return {{"seconds", top.seconds},
          {"policy", top.policy},
          {"slots", top.slots},
          {"slots_used", top.slots_used},
          {"aggregator_drops_per_s", top.aggregator_drops},
          {"lanes", lanes},
          {"ports", ports},
          {"jobs", jobs}};
}

}  // namespace ina::cli
