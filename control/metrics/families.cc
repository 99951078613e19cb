#include "control/metrics/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/printable.h"
#include "wire/drop_reason.h"

namespace ina::metrics {

namespace {

using Json = nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;
using FamilyList = std::vector<MetricFamily>;

double real(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0.0;
}

uint64_t number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<uint64_t>() : 0;
}

std::string text(const Json& json, const char* key) {
  const auto found = json.find(key);
  // A label's value comes from workers. A scrape with one that is no UTF-8 is lost as a whole.
  return found != json.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

/// Adds samples to one family.
class Writer {
 public:
  Writer(FamilyList& families, MetricType type, const char* name, const char* help)
      : family_(families.emplace_back()) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  void reserve(size_t metrics) { family_.metric.reserve(metrics); }
  void add(double value, Labels labels = {}) {
    ClientMetric& metric = family_.metric.emplace_back();
    metric.label = std::move(labels);
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  void add(ClientMetric::Histogram histogram, Labels labels) {
    ClientMetric& metric = family_.metric.emplace_back();
    metric.label = std::move(labels);
    metric.histogram = std::move(histogram);
  }

 private:
  MetricFamily& family_;
};

/// One value of each item of a list of the status, labelled by one of its texts.
struct PerItem {
  MetricType type;
  const char* name;
  const char* help;
  const char* key;
};

void add_switch(FamilyList& families, const Json& status) {
  const Json& aggregator = status.at("aggregator");
  Writer(families, MetricType::Gauge, "ina_build_info",
         "Version and policy of the switch; always 1.")
      .add(1, {{"version", text(status, "version")}, {"policy", text(aggregator, "policy")}});
  Writer(families, MetricType::Gauge, "ina_uptime_seconds", "Time since the switch started.")
      .add(real(status, "uptime_s"));
  Writer(families, MetricType::Counter, "ina_starts_total",
         "Starts of the switch since its state file was made.")
      .add(real(status, "boots"));
  Writer(families, MetricType::Gauge, "ina_draining", "1 while the switch takes no new jobs.")
      .add(status.at("draining").get<bool>() ? 1 : 0);
}

ClientMetric::Histogram burst_histogram(const Json& lane) {
  ClientMetric::Histogram histogram;
  double bound = 1;
  for (const Json& bursts : lane.at("bursts")) {
    histogram.sample_count += bursts.get<uint64_t>();
    histogram.bucket.push_back({histogram.sample_count, bound});
    bound *= 2;
  }
  histogram.bucket.push_back({histogram.sample_count, HUGE_VAL});
  histogram.sample_sum = real(lane, "burst_packets");
  return histogram;
}

void add_lanes(FamilyList& families, const Json& status) {
  static constexpr PerItem kCounters[] = {
      {MetricType::Counter, "ina_lane_busy_seconds_total",
       "Time that a packet loop spent in rounds with packets.", "busy_s"},
      {MetricType::Counter, "ina_lane_idle_seconds_total",
       "Time that a packet loop polled in vain or slept.", "idle_s"},
      {MetricType::Counter, "ina_lane_packets_total", "Packets that a packet loop took.",
       "packets"},
      {MetricType::Counter, "ina_lane_polls_total", "Rounds of a packet loop over its ports.",
       "polls"},
      {MetricType::Counter, "ina_lane_sleeps_total", "Times that a packet loop went to sleep.",
       "sleeps"},
  };
  const auto labels = [](const Json& lane) {
    return Labels{{"lane", std::to_string(number(lane, "lcore"))}};
  };
  for (const PerItem& item : kCounters) {
    Writer writer(families, item.type, item.name, item.help);
    for (const Json& lane : status.at("lcores")) writer.add(real(lane, item.key), labels(lane));
  }
  Writer bursts(families, MetricType::Histogram, "ina_lane_burst_packets",
                "Packets that a packet loop took from a port at once, empty polls left out.");
  for (const Json& lane : status.at("lcores")) bursts.add(burst_histogram(lane), labels(lane));
}

void add_ports(FamilyList& families, const Json& status) {
  static constexpr PerItem kCounters[] = {
      {MetricType::Counter, "ina_port_receive_bytes_total",
       "Payload of the messages received for aggregation.", "rx_bytes"},
      {MetricType::Counter, "ina_port_receive_packets_total",
       "Messages received; of an Ethernet port all frames, those for others included.",
       "rx_packets"},
      {MetricType::Counter, "ina_port_transmit_bytes_total",
       "Payload sent to workers and fallbacks.", "tx_bytes"},
      {MetricType::Counter, "ina_port_transmit_packets_total",
       "Messages sent to workers and fallbacks.", "tx_packets"},
      {MetricType::Counter, "ina_port_forwarded_frames_total",
       "Frames for others that came in by the port and were passed on.", "forwarded"},
      {MetricType::Counter, "ina_port_flooded_frames_total",
       "Frames for others that went to all ports.", "flooded"},
      {MetricType::Counter, "ina_port_forwarded_bytes_total",
       "Bytes of the frames for others that came in by the port and were passed on.",
       "forwarded_bytes"},
      {MetricType::Counter, "ina_port_bridged_bytes_total",
       "Bytes of the frames of other ports that left by the port.", "bridged_sent_bytes"},
      {MetricType::Counter, "ina_port_bridged_lost_frames_total",
       "Frames of other ports that the port could not send.", "bridged_lost"},
      {MetricType::Counter, "ina_port_learned_addresses_total",
       "MAC addresses that became known at the port.", "learned"},
      {MetricType::Counter, "ina_port_moved_addresses_total",
       "MAC addresses that appeared at the port, and were at another one before.", "moved"},
      {MetricType::Counter, "ina_port_lost_frames_total",
       "Frames lost before the port could take them: the kernel or the device had no room.",
       "lost_before"},
  };
  for (const PerItem& item : kCounters) {
    Writer writer(families, item.type, item.name, item.help);
    for (const Json& port : status.at("ports"))
      if (port.contains(item.key)) writer.add(real(port, item.key), {{"port", text(port, "name")}});
  }
  Writer links(families, MetricType::Gauge, "ina_port_up", "1 while an Ethernet port has a link.");
  for (const Json& port : status.at("ports"))
    if (port.contains("link"))
      links.add(text(port, "link") == "up" ? 1 : 0, {{"port", text(port, "name")}});
  Writer blocked(families, MetricType::Gauge, "ina_port_blocked",
                 "1 while an Ethernet port forwards nothing, because it is part of a loop.");
  for (const Json& port : status.at("ports"))
    if (port.contains("link"))
      blocked.add(port.contains("blocked") ? 1 : 0, {{"port", text(port, "name")}});
}

void add_drops(FamilyList& families, const Json& status) {
  // All reasons, from the start: a rate begins with the second sample.
  std::map<std::string_view, double> sums;
  for (size_t i = 0; i < kDropReasons; ++i) sums[name(static_cast<DropReason>(i))] = 0;
  const auto count = [&sums](const Json& drops) {
    for (const auto& [reason, packets] : drops.items()) sums[reason] += packets.get<double>();
  };
  count(status.at("aggregator").at("drops"));
  for (const Json& port : status.at("ports")) count(port.at("drops"));
  Writer all(families, MetricType::Counter, "ina_drops_total",
             "Packets dropped, by ports and by the aggregator.");
  all.reserve(sums.size());
  for (const auto& [reason, packets] : sums) all.add(packets, {{"reason", std::string(reason)}});
  Writer by_port(families, MetricType::Counter, "ina_port_drops_total",
                 "Packets dropped by a port.");
  for (const Json& port : status.at("ports"))
    for (const auto& [reason, packets] : port.at("drops").items())
      by_port.add(packets.get<double>(), {{"port", text(port, "name")}, {"reason", reason}});
}

void add_slots(FamilyList& families, const Json& aggregator) {
  const double all = real(aggregator, "slots");
  const double used = real(aggregator, "slots_used");
  Writer slots(families, MetricType::Gauge, "ina_slots",
               "Aggregator slots; used: they hold contributions.");
  slots.add(used, {{"state", "used"}});
  slots.add(all - used, {{"state", "free"}});
  Writer(families, MetricType::Gauge, "ina_reserved_slots",
         "Slots that are kept for jobs and tenants.")
      .add(real(aggregator, "slots_reserved"));
  Writer memory(families, MetricType::Gauge, "ina_memory_bytes", "Memory for jobs (jobs.memory).");
  memory.add(real(aggregator, "memory_used_bytes"), {{"state", "used"}});
  memory.add(real(aggregator, "memory_bytes") - real(aggregator, "memory_used_bytes"),
             {{"state", "free"}});
}

void add_aggregation(FamilyList& families, const Json& aggregator) {
  Writer fragments(families, MetricType::Counter, "ina_fragments_total",
                   "Fragments whose result went out, by where the sum was completed.");
  fragments.add(real(aggregator, "results"), {{"decided_by", "slot"}});
  fragments.add(real(aggregator, "fallback_results"), {{"decided_by", "fallback"}});
  fragments.add(real(aggregator, "parker_results"), {{"decided_by", "worker"}});
  Writer contributions(families, MetricType::Counter, "ina_contributions_total",
                       "Contributions of workers; bypassed: they found no slot.");
  contributions.add(real(aggregator, "absorbed"), {{"fate", "absorbed"}});
  contributions.add(real(aggregator, "bypassed"), {{"fate", "bypassed"}});
  static constexpr PerItem kCounters[] = {
      {MetricType::Counter, "ina_preemptions_total", "Slots taken over by a more urgent fragment.",
       "preemptions"},
      {MetricType::Counter, "ina_parked_fragments_total",
       "Partial sums put aside because a worker was slow.", "parked"},
      {MetricType::Counter, "ina_partial_sums_total", "Partial sums sent to the fallback.",
       "parts"},
      {MetricType::Counter, "ina_reminders_total",
       "Reminders of the fallback that found their fragment in a slot.", "reminders"},
      {MetricType::Counter, "ina_repeated_results_total",
       "Results sent again because a worker asked.", "results_again"},
      {MetricType::Counter, "ina_unsent_results_total", "Results that a port did not take.",
       "results_unsent"},
  };
  for (const PerItem& item : kCounters)
    Writer(families, item.type, item.name, item.help).add(real(aggregator, item.key));
}

void add_job_states(FamilyList& families, const Json& status) {
  std::map<std::string, double> states = {
      {"joining", 0}, {"running", 0}, {"leaving", 0}, {"rejoining", 0}};
  for (const Json& job : status.at("jobs"))
    if (!job.contains("group_of")) ++states[text(job, "state")];
  Writer jobs(families, MetricType::Gauge, "ina_jobs", "Jobs, their groups left out.");
  for (const auto& [state, count] : states) jobs.add(count, {{"state", state}});
}

/// Ranks in the job, also of a group's workers, for which the oldest fragment waits.
WorkerSet late_of(const Json& job) {
  const auto late = job.find("waiting_for");
  if (late == job.end()) return {};
  const auto of_job = job.find("root_ranks");
  WorkerSet ranks;
  for (const Json& rank : *late)
    ranks.insert(
        Rank{(of_job == job.end() ? rank : of_job->at(rank.get<size_t>())).get<uint8_t>()});
  return ranks;
}

constexpr double kNanosPerSecond = 1e9;

}  // namespace

void Families::JobSums::add(const JobSums& more) {
  for (size_t i = 0; i < kSums; ++i) counted[i] += more.counted[i];
  slots += more.slots;
  parked_now += more.parked_now;
}

Families::JobSums Families::sums_of(const Json& job) {
  JobSums sums;
  sums.counted[JobSums::kInSlots] = number(job, "results");
  sums.counted[JobSums::kAtFallback] = number(job, "fallback_results");
  sums.counted[JobSums::kParked] = number(job, "parker_results");
  sums.counted[JobSums::kAbsorbed] = number(job, "absorbed");
  sums.counted[JobSums::kBypassed] = number(job, "bypassed");
  sums.counted[JobSums::kPreempted] = number(job, "preempted");
  sums.slots = number(job, "slots_held");
  sums.parked_now = number(job, "parked_now");
  return sums;
}

/// By id, each with its groups.
std::map<uint64_t, Families::JobNow> Families::jobs_of(const Json& status) {
  std::map<uint64_t, JobNow> jobs;
  for (const Json& job : status.at("jobs")) {
    const bool group = job.contains("group_of");
    JobNow& entry = jobs[number(job, group ? "group_of" : "id")];
    entry.sums.add(sums_of(job));
    entry.late |= late_of(job);
    if (group) continue;
    entry.label = text(job, "owner") + "/" + text(job, "name");
    entry.missing = job.at("missing").size();
  }
  return jobs;
}

/// The jobs with series of their own: those with most contributions so far.
std::set<uint64_t> Families::labelled(const std::map<uint64_t, JobNow>& jobs) const {
  std::vector<std::pair<uint64_t, uint64_t>> order;
  for (const auto& [id, job] : jobs) {
    const uint64_t* const counted = job.sums.counted;
    order.emplace_back(~(counted[JobSums::kAbsorbed] + counted[JobSums::kBypassed]), id);
  }
  std::ranges::sort(order);
  if (order.size() > most_jobs_) order.resize(most_jobs_);
  std::set<uint64_t> own;
  for (const auto& [rank, id] : order) own.insert(id);
  return own;
}

/// Compares with the last snapshot: how long a job has completed nothing, how long the same workers
/// have been late, and the sums of jobs without series of their own, which must not shrink when one
/// of these gets series.
void Families::remember(std::map<uint64_t, JobNow>& jobs, const std::set<uint64_t>& own,
                        Nanos now) {
  std::map<uint64_t, JobBefore> after;
  for (auto& [id, job] : jobs) {
    const auto found = before_.find(id);
    JobBefore before = found == before_.end() ? JobBefore{.sums = {}, .moved = now} : found->second;
    if (job.sums.completed() != before.sums.completed() || job.sums.slots == 0) before.moved = now;
    job.waiting_s = static_cast<double>(now - before.moved) / kNanosPerSecond;
    const WorkerSet still = job.late & before.late;
    if (still.empty()) before.late_since = now;
    before.late = still.empty() ? job.late : still;
    job.straggler_s = static_cast<double>(now - before.late_since) / kNanosPerSecond;
    if (!own.contains(id))
      for (size_t i = 0; i < JobSums::kSums; ++i) {
        // A group that has ended takes its counts with it.
        const uint64_t last = before.sums.counted[i];
        other_.counted[i] += std::max(job.sums.counted[i], last) - last;
      }
    before.sums = job.sums;
    after.emplace(id, before);
  }
  before_ = std::move(after);
}

void Families::add_jobs(FamilyList& families, const Json& status, Nanos now) {
  auto jobs = jobs_of(status);
  const std::set<uint64_t> own = labelled(jobs);
  remember(jobs, own, now);
  std::vector<JobNow> shown;
  JobNow rest{.label = kOther, .sums = other_};
  for (auto& [id, job] : jobs) {
    if (own.contains(id)) {
      shown.push_back(job);
      continue;
    }
    rest.sums.slots += job.sums.slots;
    rest.sums.parked_now += job.sums.parked_now;
    rest.missing += job.missing;
    rest.waiting_s = std::max(rest.waiting_s, job.waiting_s);
    rest.straggler_s = std::max(rest.straggler_s, job.straggler_s);
  }
  const auto none = [](uint64_t count) { return count == 0; };
  if (shown.size() < jobs.size() || !std::ranges::all_of(other_.counted, none))
    shown.push_back(rest);

  const auto gauge = [&](const char* name, const char* help, auto value) {
    Writer writer(families, MetricType::Gauge, name, help);
    for (const JobNow& job : shown)
      writer.add(static_cast<double>(value(job)), {{"job", job.label}});
  };
  gauge("ina_job_waiting_seconds",
        "How long a job that holds slots has completed nothing, as far as scrapes saw.",
        [](const JobNow& job) { return job.waiting_s; });
  gauge("ina_job_straggler_seconds",
        "How long each scrape has found a job's oldest fragment waiting for the same worker.",
        [](const JobNow& job) { return job.straggler_s; });
  gauge("ina_job_offload_ratio", "Share of a job's contributions that were added in a slot.",
        [](const JobNow& job) {
          const auto absorbed = static_cast<double>(job.sums.counted[JobSums::kAbsorbed]);
          const auto bypassed = static_cast<double>(job.sums.counted[JobSums::kBypassed]);
          return absorbed + bypassed == 0 ? 1.0 : absorbed / (absorbed + bypassed);
        });
  gauge("ina_job_slots", "Slots that a job holds.",
        [](const JobNow& job) { return job.sums.slots; });
  gauge("ina_job_missing_workers", "Workers of a job that are not there.",
        [](const JobNow& job) { return job.missing; });
  gauge("ina_job_parked_fragments", "Partial sums put aside because a worker of the job is slow.",
        [](const JobNow& job) { return job.sums.parked_now; });
  Writer fragments(families, MetricType::Counter, "ina_job_fragments_total",
                   "Fragments of a job whose result went out, by where the sum was completed.");
  static constexpr std::pair<JobSums::Index, const char*> kDeciders[] = {
      {JobSums::kInSlots, "slot"},
      {JobSums::kAtFallback, "fallback"},
      {JobSums::kParked, "worker"}};
  for (const JobNow& job : shown)
    for (const auto& [index, decider] : kDeciders)
      fragments.add(static_cast<double>(job.sums.counted[index]),
                    {{"job", job.label}, {"decided_by", decider}});
  Writer preempted(families, MetricType::Counter, "ina_job_preemptions_total",
                   "Slots that a job lost to more urgent fragments.");
  for (const JobNow& job : shown)
    preempted.add(static_cast<double>(job.sums.counted[JobSums::kPreempted]), {{"job", job.label}});
}

/// Use and limits of tenants; a limit of 0 is none.
void Families::add_tenants(FamilyList& families, const Json& status) const {
  struct Resource {
    const char* use_name;
    const char* use_help;
    const char* use_key;
    const char* limit_name;
    const char* limit_help;
    const char* limit_key;
  };
  static constexpr Resource kResources[] = {
      {"ina_tenant_jobs", "Jobs of a tenant.", "jobs", "ina_tenant_jobs_limit",
       "Most jobs of a tenant (tenants: jobs_max).", "jobs_max"},
      {"ina_tenant_workers", "Workers of a tenant's jobs.", "workers", "ina_tenant_workers_limit",
       "Most workers of a tenant's jobs (tenants: workers_max).", "workers_max"},
      {"ina_tenant_slots", "Slots that a tenant's jobs may hold.", "slots_ceiling",
       "ina_tenant_slots_limit", "Most slots of a tenant's jobs (tenants: slots_ceiling).",
       "slots_ceiling"},
      {"ina_tenant_memory_bytes", "Memory of a tenant's jobs.", "memory_bytes",
       "ina_tenant_memory_limit_bytes", "Most memory of a tenant's jobs (tenants: memory).",
       "memory_bytes"},
  };
  std::vector<const Json*> tenants;
  for (const Json& tenant : status.at("tenants")) tenants.push_back(&tenant);
  std::ranges::stable_sort(tenants, std::ranges::greater{},
                           [](const Json* tenant) { return number(*tenant, "memory_bytes"); });
  const size_t own = std::min(tenants.size(), most_jobs_);
  for (const Resource& resource : kResources) {
    Writer use(families, MetricType::Gauge, resource.use_name, resource.use_help);
    double rest = 0;
    for (size_t i = 0; i < tenants.size(); ++i) {
      const double value = real(*tenants[i], resource.use_key);
      if (i < own)
        use.add(value, {{"tenant", text(*tenants[i], "name")}});
      else
        rest += value;
    }
    if (own < tenants.size()) use.add(rest, {{"tenant", kOther}});
    Writer limit(families, MetricType::Gauge, resource.limit_name, resource.limit_help);
    for (size_t i = 0; i < own; ++i)
      if (const double most = real(tenants[i]->at("quota"), resource.limit_key); most != 0)
        limit.add(most, {{"tenant", text(*tenants[i], "name")}});
  }
}

FamilyList Families::collect(const Json& status, Nanos now) {
  FamilyList families;
  // Writers hold references to families.
  families.reserve(64);
  add_switch(families, status);
  add_lanes(families, status);
  add_ports(families, status);
  add_drops(families, status);
  add_slots(families, status.at("aggregator"));
  add_aggregation(families, status.at("aggregator"));
  add_job_states(families, status);
  add_jobs(families, status, now);
  add_tenants(families, status);
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return families;
}

}  // namespace ina::metrics
