#include "switchd/reports/status.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/clock.h"
#include "common/json_schema.h"
#include "control/diagnosis/why.h"
#include "switchd/reports/peer_process.h"
#include "switchd/reports/port_watch.h"
#include "wire/text.h"

namespace ina::switchd {

using control::Json;

namespace {

/// The name of this host, and of the processes that join by the unix socket.
std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// Adds members whose values are numbers. A list of JSON values would be made of copies, and the
/// counters are asked for many times a second.
void add_numbers(Json& json, std::initializer_list<std::pair<const char*, uint64_t>> members) {
  auto& object = json.get_ref<Json::object_t&>();
  for (const auto& [key, number] : members) object.emplace(key, number);
}

Json numbers_json(std::initializer_list<std::pair<const char*, uint64_t>> members) {
  Json json = Json::object();
  add_numbers(json, members);
  return json;
}

/// Adds a member for each counter of a table.
template <class Counters, size_t kRows>
void add_counters(Json& json, const Counters& counters,
                  const CounterField<Counters> (&rows)[kRows]) {
  auto& object = json.get_ref<Json::object_t&>();
  for (const CounterField<Counters>& row : rows) object.emplace(row.text.name, counters.*row.field);
}

/// Adds the counters of a job over all lanes and domains. `number`: of its first domain in the
/// snapshots.
void add_job_counters(Json& json, const Job& job, size_t number,
                      const StatusReport::Snapshots& snapshots) {
  aggregator::JobCounters sum;
  for (const auto& snapshot : snapshots)
    for (size_t i = 0; i < job.domains.size(); ++i) {
      const aggregator::JobCounters& more = snapshot.snapshot.jobs[number + i].counters;
      add(sum, more, aggregator::kJobCounterFields);
      add(sum, more, aggregator::kJobParkingFields);
    }
  add_counters(json, sum, aggregator::kJobCounterFields);
  if (job.grant.in_switch == 0) return;
  add_numbers(json, {{"in_switch", job.grant.in_switch}, {"park_room", job.grant.park_room}});
  add_counters(json, sum, aggregator::kJobParkingFields);
}

/// The counters of all lanes together.
struct LaneTotals {
  explicit LaneTotals(size_t frame_port_count)
      : ports(1 + frame_port_count), frame_ports(frame_port_count) {}

  LaneCounters lanes;  ///< those of kLaneTotalFields
  aggregator::Counters aggregator;
  std::vector<io::PortCounters> ports;  ///< the shm port's, and then those of the Ethernet ports
  std::vector<FramePortSnapshot> frame_ports;
  std::optional<BridgeSnapshot> bridge;  ///< lane 0 has it
};

void add(LaneTotals& sum, const LaneSnapshot& more) {
  add(sum.lanes, more.lane, kLaneTotalFields);
  add(sum.aggregator, more.aggregator, aggregator::kCounterFields);
  sum.aggregator.drops.add(more.aggregator.drops);
  for (size_t p = 0; p < sum.ports.size() && p < more.ports.size(); ++p)
    add(sum.ports[p], more.ports[p]);
  for (size_t p = 0; p < sum.frame_ports.size() && p < more.frame_ports.size(); ++p) {
    add(sum.frame_ports[p].counters, more.frame_ports[p].counters);
    if (!more.bridge) continue;
    sum.frame_ports[p].addresses = more.frame_ports[p].addresses;
    sum.frame_ports[p].block = more.frame_ports[p].block;
  }
  for (size_t p = 0; p < sum.frame_ports.size() && p < more.frame_ports.size(); ++p)
    sum.frame_ports[p].link_up |= more.frame_ports[p].link_up;
  if (more.bridge) sum.bridge = more.bridge;
}

/// Reasons for which nothing was dropped are left out.
Json drops_json(const DropCounters& drops) {
  Json json = Json::object();
  for (size_t i = 0; i < kDropReasons; ++i)
    if (drops.count[i] != 0) json[std::string(name(static_cast<DropReason>(i)))] = drops.count[i];
  return json;
}

Json lane_json(size_t lcore, const LaneCounters& lane) {
  Json json = numbers_json({{"lcore", lcore}});
  add_counters(json, lane, kLaneCounterFields);
  for (const CounterField<LaneCounters, Nanos>& time : kLaneTimeFields)
    json[time.text.name] = static_cast<double>(lane.*time.field) * 1e-9;
  json["bursts"] = lane.bursts;
  json["busy_ratio"] =
      lane.polls ? static_cast<double>(lane.busy_polls) / static_cast<double>(lane.polls) : 0.0;
  return json;
}

Json block_json(const ConductorConfig& config, size_t port, const bridge::PortBlock& block) {
  return {{"sign", block.sign == bridge::LoopSign::kProbe ? "probe" : "moves"},
          {"with", config.frame_ports[block.other].name},
          {"for_s", static_cast<double>(now_ns() - block.since) * 1e-9},
          {"text", block_text(config, port, block)}};
}

/// Adds what an Ethernet port alone has.
void add_frame_port(Json& json, const FramePortSnapshot& frame_port) {
  json["link"] = frame_port.link_up ? "up" : "down";
  add_counters(json, frame_port.counters, io::kEthdevCounterFields);
  add_counters(json, frame_port.addresses, bridge::kPortAddressFields);
  add_counters(json, frame_port.block, bridge::kPortBlockFields);
}

Json ports_json(const ConductorConfig& config, const LaneTotals& totals) {
  Json ports = Json::array();
  for (size_t p = 0; p < totals.ports.size(); ++p) {
    if (p == 0 && !config.has_shm) continue;
    const io::PortCounters& port = totals.ports[p];
    Json& json = ports.emplace_back(Json::object());
    add_counters(json, port, io::kPortCounterFields);
    json["name"] = p == 0 ? config.shm_name : config.frame_ports[p - 1].name;
    json["type"] = p == 0 ? "shm" : "ethdev";
    json["drops"] = drops_json(port.drops);
    if (p == 0) continue;
    const FramePortSnapshot& frame_port = totals.frame_ports[p - 1];
    add_frame_port(json, frame_port);
    if (frame_port.block.sign != bridge::LoopSign::kNone)
      json["blocked"] = block_json(config, p - 1, frame_port.block);
  }
  return ports;
}

/// Null: there is no bridge.
Json bridge_json(const std::optional<BridgeSnapshot>& bridge) {
  if (!bridge) return nullptr;
  Json json =
      numbers_json({{"mac_entries", bridge->mac_entries}, {"mac_capacity", bridge->mac_capacity}});
  add_counters(json, bridge->counters, bridge::kMacTableFields);
  return json;
}

Json aggregator_json(const ConductorConfig& config, const Resources& resources,
                     const LaneTotals& totals) {
  const scheduler::Admission& admission = resources.admission();
  const Handles& handles = resources.handles();
  Json json = numbers_json({{"slots", admission.slots_total()},
                            {"slot_bytes", config.aggregator.slot_bytes},
                            {"slots_reserved", admission.slots_reserved()},
                            {"memory_bytes", admission.memory().total()},
                            {"memory_used_bytes", admission.memory().used()},
                            {"memory_held_bytes", resources.held().bytes()},
                            {"mappings", handles.total().mappings},
                            {"mappings_used", handles.used().mappings},
                            {"descriptors", handles.total().descriptors},
                            {"descriptors_used", handles.used().descriptors}});
  add_counters(json, totals.aggregator, aggregator::kCounterFields);
  add_counters(json, totals.lanes, kLaneTotalFields);
  json["policy"] = name(config.aggregator.policy.kind);
  json["home"] = name(config.rules.home);
  json["drops"] = drops_json(totals.aggregator.drops);
  return json;
}

}  // namespace

StatusReport::Snapshots StatusReport::snapshots(bool find_waiting) const {
  return lanes_.run_each([this, find_waiting](uint32_t) {
    command::TakeSnapshot command{.find_waiting = find_waiting};
    // Here and not in the lane.
    for (const Job& job : jobs_)
      for (const Domain& domain : job.domains) command.snapshot.jobs.push_back({domain.index});
    command.snapshot.ports.reserve(1 + config_.frame_ports.size());
    command.snapshot.frame_ports.reserve(config_.frame_ports.size());
    return command;
  });
}

StatusReport::Links StatusReport::links_of(const Snapshots& snapshots) const {
  Links links(config_.frame_ports.size());
  for (const auto& snapshot : snapshots)
    for (size_t p = 0; p < links.size() && p < snapshot.snapshot.frame_ports.size(); ++p)
      if (snapshot.snapshot.frame_ports[p].link_up) links[p] = true;
  return links;
}

Json StatusReport::make(bool explain, bool draining) {
  resources_.credit_held();
  const auto snapshots = this->snapshots(!explain);
  Json lanes = Json::array();
  LaneTotals totals(config_.frame_ports.size());
  for (size_t i = 0; i < snapshots.size(); ++i) {
    const LaneSnapshot& snapshot = snapshots[i].snapshot;
    lanes.push_back(lane_json(i, snapshot.lane));
    add(totals, snapshot);
  }
  Json jobs = Json::array();
  const Links links = links_of(snapshots);
  size_t number = 0;
  for (Job& job : jobs_) {
    Json& json = jobs.emplace_back(job_json(job, explain ? &links : nullptr));
    add_job_counters(json, job, number, snapshots);
    // Metrics tell of stragglers. A job without slots is not looked at for it.
    if (!explain && json["slots_held"] != 0) add_late(oldest_of(job, number, snapshots), json);
    number += job.domains.size();
  }
  Json json = numbers_json({{"schema", kJsonSchema}, {"boots", state_.boots()}});
  json["version"] = INA_PROJECT_VERSION;
  json["host"] = host_name();
  json["configuration"] = configuration_json();
  json["draining"] = draining;
  json["uptime_s"] = static_cast<double>(now_ns() - started_) * 1e-9;
  json["ports"] = ports_json(config_, totals);
  add_devices(json["ports"]);
  json["bridge"] = bridge_json(totals.bridge);
  json["lcores"] = std::move(lanes);
  json["aggregator"] = aggregator_json(config_, resources_, totals);
  json["tenants"] = tenants_json();
  json["jobs"] = std::move(jobs);
  return json;
}

/// Adds what only the control plane knows of the Ethernet ports' devices. These come last.
void StatusReport::add_devices(Json& ports) const {
  const size_t first = ports.size() - config_.frame_ports.size();
  for (size_t p = 0; p < config_.frame_ports.size(); ++p) {
    Json& json = ports[first + p];
    if (const auto lost = ports_.device(p).lost) json["lost_before"] = *lost;
    if (std::string text = ports_.device_text(p); !text.empty()) {
      json["link"] = "gone";
      json["gone"] = std::move(text);
    }
  }
}

/// Where it came from, and why it is not the one that the switch was last given.
Json StatusReport::configuration_json() const {
  const Configuration* const configuration = config_.configuration.get();
  if (!configuration) return Json::object();
  return {{"file", configuration->file()},
          {"failure", configuration->failure()},
          {"overrides", overrides_json(configuration->running().source)}};
}

/// Tenants that have jobs, or a quota of their own. In quotas 0 is no limit.
Json StatusReport::tenants_json() const {
  const scheduler::Admission& admission = resources_.admission();
  const Handles& handles = resources_.handles();
  Json tenants = Json::array();
  for (const std::string& name : admission.tenants()) {
    const scheduler::TenantUse use = admission.use(name);
    const scheduler::TenantQuota& quota = admission.quota(name);
    Json& json =
        tenants.emplace_back(numbers_json({{"jobs", use.jobs},
                                           {"groups", use.groups},
                                           {"workers", use.workers},
                                           {"slots_floor", use.slots_floor},
                                           {"slots_ceiling", use.slots_ceiling},
                                           {"memory_bytes", use.memory_bytes},
                                           {"memory_held_bytes", use.memory_held_bytes},
                                           {"mappings", handles.used_by(name).mappings},
                                           {"descriptors", handles.used_by(name).descriptors}}));
    json["name"] = name;
    json["quota"] = numbers_json({{"slots_floor", quota.slots_floor},
                                  {"slots_ceiling", quota.slots_ceiling},
                                  {"jobs_max", quota.jobs_max},
                                  {"workers_max", quota.workers_max},
                                  {"memory_bytes", quota.memory_bytes},
                                  {"priority_max", quota.priority_max}});
  }
  return tenants;
}

Json StatusReport::job_json(Job& job, const Links* explain) const {
  static constexpr const char* kStates[] = {"joining", "running", "leaving", "rejoining"};
  const RankSet attached = attached_of(job);
  Json json = numbers_json({{"id", value(job.id)},
                            {"epoch", job.epoch},
                            {"uid", job.uid},
                            {"world_size", job.workers},
                            {"window", job.grant.window},
                            {"memory_bytes", job.grant.memory_bytes},
                            {"priority_max", job.grant.priority_max}});
  json["name"] = job.name;
  json["owner"] = job.owner();
  json["joined"] = ranks_of(attached);
  json["missing"] = ranks_of(job.all() - attached);
  json["state"] = kStates[static_cast<size_t>(job.state)];
  if (job.is_group()) {
    json["group_of"] = value(job.root);
    json["root_ranks"] = job.root_ranks;
  }
  if (!job.tenant.empty()) json["tenant"] = job.tenant;
  if (job.reserved_until != 0)
    json["reserved_s"] = std::max<Nanos>(0, job.reserved_until - now_ns()) / 1'000'000'000;
  json["home"] = name(job.home);
  if (job.home == Home::kDedicated) json["fallback_missing"] = !rules_.has_fallback(job);
  if (config_.aggregator.fixed_slots()) {
    json["slots"] = job.grant.slots_per_lane * job.geometry.lanes;
  } else {
    json["slots_floor"] = job.grant.floor_per_lane * job.geometry.lanes;
    json["slots_ceiling"] = job.grant.ceiling(job.geometry.lanes);
  }
  if (job.spread) json["tree"] = tree_json(job);
  if (explain) explain_job(job, *explain, json);
  return json;
}

/// The workers that are at some switch of the tree, as far as this one has heard.
RankSet StatusReport::attached_of(const Job& job) {
  const Above* const above = job.above.get();
  if (job.state != Job::State::kJoining || !above || above->waiting.missing.empty())
    return job.attached();
  RankSet attached = job.all();
  for (const uint32_t rank : above->waiting.missing)
    if (rank < job.workers) attached -= RankSet::of(Rank{static_cast<uint16_t>(rank)});
  return attached;
}

/// The other switches that have workers of a spread job.
Json StatusReport::tree_json(const Job& job) const {
  static constexpr const char* kStates[] = {"joining", "running", "away"};
  Json json = {{"above", nullptr}, {"below", Json::array()}};
  if (const Above* const above = job.above.get())
    json["above"] = {{"url", config_.uplink.url},
                     {"state", kStates[static_cast<size_t>(above->state)]},
                     {"text", above->why_away}};
  for (const auto& below : job.below)
    json["below"].push_back({{"peer", below->place.client ? below->place.client->peer.text() : ""},
                             {"ranks", ranks_of(below->ranks)},
                             {"state", below->lost_since != 0  ? "away"
                                       : below->place.attached ? "running"
                                                               : "joining"}});
  return json;
}

/// By rank: the process of each worker, or its address; empty: it has not joined. Of a group's
/// worker that has not taken its place yet, what it is in the job.
Json StatusReport::peers_json(const Job& job) const {
  const Job* const root = job.is_group() ? jobs_.find(job.root) : nullptr;
  Json peers = Json::array();
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    const Client* client = job.members[rank].client;
    if (!client && root) client = root->members[job.root_ranks[rank]].client;
    peers.push_back(client ? client->peer.text() : elsewhere_text(job, rank));
  }
  return peers;
}

/// Where a worker of another switch is; empty: it is none.
std::string StatusReport::elsewhere_text(const Job& job, uint32_t rank) {
  if (!job.members[rank].elsewhere) return {};
  if (const Job::Below* const below = job.below_with(rank))
    return "at the switch below, " +
           (below->place.client ? below->place.client->peer.text() : "which is away");
  return "at another switch";
}

/// By a snapshot that looked for it in the lanes where the job holds slots.
std::optional<Awaited> StatusReport::oldest_of(const Job& job, size_t number,
                                               const Snapshots& snapshots) const {
  OldestAwaited oldest(job);
  for (const auto& snapshot : snapshots)
    for (size_t i = 0; i < job.domains.size(); ++i) {
      const JobSnapshot& in_lane = snapshot.snapshot.jobs[number + i];
      if (in_lane.counters.slots_held == 0) return wait_reasons_.oldest_of(job);  // in all lanes
      oldest.add(in_lane.job, in_lane.waiting);
    }
  return oldest.get();
}

/// The oldest fragment, and the workers that it lacks. Nothing: none waits.
std::optional<RankSet> StatusReport::add_late(const std::optional<Awaited>& oldest, Json& json) {
  if (!oldest) return std::nullopt;
  json["waiting_for"] = ranks_of(oldest->missing);
  json["oldest_fragment"] = oldest->seq.value;
  if (oldest->signature) json["oldest_operation"] = wire::text_of(*oldest->signature);
  return oldest->missing;
}

/// Describes the workers that the job waits for, besides their ranks.
void StatusReport::explain_late(const Job& job, const RankSet& late, const Links& links,
                                Json& json) const {
  Json peers = Json::array();
  Json processes = Json::array();
  Json dead_links = Json::array();
  for (const uint32_t rank : ranks_of(late)) {
    const Job::Worker& worker = job.members[rank];
    peers.push_back(worker.client      ? worker.client->peer.text()
                    : worker.elsewhere ? elsewhere_text(job, rank)
                                       : "gone");
    processes.push_back(worker.client      ? process_state(worker.client->peer)
                        : worker.elsewhere ? ""
                                           : "ended");
    const Job::Below* const below = job.below_with(rank);
    const FrameWay* const frames = below ? below->place.way.frames() : worker.way.frames();
    const bool is_cut = frames && frames->port < links.size() && !links[frames->port];
    dead_links.push_back(is_cut ? config_.frame_ports[frames->port].name : "");
  }
  json["waiting_for_peers"] = std::move(peers);
  json["waiting_for_processes"] = std::move(processes);
  json["waiting_for_dead_links"] = std::move(dead_links);
}

/// Lists workers besides `late` that cannot run, by how they are held: the next fragments, or the
/// end, will wait for them.
void StatusReport::explain_stopped(const Job& job, const RankSet& late, Json& json) const {
  for (const uint32_t rank : ranks_of(job.attached() - late)) {
    const Job::Worker& worker = job.members[rank];
    const std::string state = worker.client ? process_state(worker.client->peer) : "";
    if (state != "stopped" && state != "frozen") continue;
    json[state].push_back(rank);
    json[state + "_peers"].push_back(worker.client->peer.text());
  }
}

/// The ranks that have called ina_create_group, and those that they wait for.
void StatusReport::explain_creates(const Job& job, Json& json) {
  RankSet asked, lacking;
  for (const Rank rank : job.all())
    for (const control::request::CreateGroup& create : job.members[value(rank)].creates) {
      asked.insert(rank);
      for (const uint32_t member : create.ranks)
        if (std::ranges::find(job.members[member].creates, create) ==
            job.members[member].creates.end())
          lacking.insert(Rank{static_cast<uint16_t>(member)});
    }
  if (lacking.empty()) return;
  json["creating"] = ranks_of(asked);
  json["creating_lacks"] = ranks_of(lacking);
}

/// The fragment and the workers that the job waits for, and the reason.
void StatusReport::explain_job(Job& job, const Links& links, Json& json) const {
  json["peers"] = peers_json(job);
  if (job.state != Job::State::kRunning && job.state != Job::State::kLeaving) return;
  const bool leaving = job.state == Job::State::kLeaving;
  if (leaving) json["left"] = ranks_of(job.leaving_or_gone());
  const auto asked = [&](const char* key, auto&& asks) {
    if (const RankSet ranks = job.those(asks); !ranks.empty()) json[key] = ranks_of(ranks);
  };
  asked("splitting", [](const Job::Worker& member) { return member.split.has_value(); });
  explain_creates(job, json);
  asked("sharing", [](const Job::Worker& member) { return member.wants_results.has_value(); });
  if (const auto late = add_late(wait_reasons_.oldest_of(job), json)) {
    explain_late(job, *late, links, json);
    explain_stopped(job, *late, json);
  } else if (leaving || json.contains("splitting") || json.contains("creating") ||
             json.contains("sharing")) {
    explain_stopped(job, {}, json);
  }
  for (const DroppedFrames::Unheard& worker : dropped_.unheard(job)) {
    Json entry = {{"dropped", worker.dropped}, {"text", worker.text}};
    if (worker.rank != kServerPlace) entry["rank"] = value(worker.rank);
    if (worker.reason) entry["reason"] = std::string(name(*worker.reason));
    json["unheard"].push_back(std::move(entry));
  }
}

std::string StatusReport::why(Job& job) const {
  const Links links = config_.frame_ports.empty() ? Links() : links_of(snapshots(false));
  // With the job's groups, and of a group the job: a rank may wait in one of them.
  const JobId root = job.is_group() ? job.root : job.id;
  Json family = Json::array();
  for (Job& member : jobs_)
    if (member.id == root || (member.is_group() && member.root == root))
      family.push_back(job_json(member, &links));
  std::string text = diagnosis::why_text(
      {{"host", host_name()}, {"jobs", std::move(family)}, {"draining", false}}, value(job.id));
  // One message holds it all.
  constexpr size_t kMostTextBytes = 2048;
  if (text.size() > kMostTextBytes) text = text.substr(0, kMostTextBytes) + " ...";
  return text;
}

}  // namespace ina::switchd
