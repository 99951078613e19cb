#include "control/metrics/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
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

double real(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0.0;
}

uint64_t number(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<uint64_t>() : 0;
}

std::string text(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  // A label's value comes from workers. A scrape with one that is no UTF-8 is lost as a whole.
  return found != json.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

/// The place in the list of a counter's family, which another counter may have begun.
size_t place_of(FamilyList& families, const CounterText& counter) {
  const CounterMetric& metric = counter.metric;
  const auto found = std::ranges::find(families, metric.name, &MetricFamily::name);
  const auto place = static_cast<size_t>(found - families.begin());
  if (found != families.end()) return place;
  MetricFamily& family = families.emplace_back();
  family.name = metric.name;
  family.help = metric.help.empty() ? counter.help : metric.help;
  family.type = counter.kind == CounterKind::kTotal ? MetricType::Counter : MetricType::Gauge;
  return place;
}

/// Adds samples to one family.
class Writer {
 public:
  Writer(FamilyList& families, MetricType type, const char* name, const char* help)
      : families_(families), place_(families.size()) {
    MetricFamily& family = families.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
  }
  /// Writes the metrics of a counter that has one.
  Writer(FamilyList& families, const CounterText& counter)
      : families_(families), place_(place_of(families, counter)) {
    if (!counter.metric.label.empty())
      own_label_ = {{std::string(counter.metric.label), std::string(counter.metric.value)}};
  }
  void reserve(size_t metrics) { family().metric.reserve(metrics); }
  void add(double value, Labels labels = {}) {
    ClientMetric& metric = add_metric(std::move(labels));
    (family().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  void add(ClientMetric::Histogram histogram, Labels labels) {
    add_metric(std::move(labels)).histogram = std::move(histogram);
  }

 private:
  MetricFamily& family() { return families_[place_]; }
  ClientMetric& add_metric(Labels labels) {
    ClientMetric& metric = family().metric.emplace_back();
    metric.label = std::move(labels);
    metric.label.insert(metric.label.end(), own_label_.begin(), own_label_.end());
    return metric;
  }

  FamilyList& families_;
  const size_t place_;
  Labels own_label_;
};

/// Adds a sample of each counter that has a metric for each object of a list of the status that has
/// the counter. `labels_of` gives an object's labels.
template <class Objects, class LabelsOf>
void add_counters(FamilyList& families, const std::vector<CounterText>& counters,
                  const Objects& objects, LabelsOf&& labels_of) {
  for (const CounterText& counter : counters) {
    if (counter.metric.name.empty()) continue;
    Writer writer(families, counter);
    for (const Json& object : objects)
      if (object.contains(counter.name)) writer.add(real(object, counter.name), labels_of(object));
  }
}

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

void add_lanes(FamilyList& families, const CounterLists& counters, const Json& status) {
  const Json& lanes = status.at("lcores");
  const auto labels = [](const Json& lane) {
    return Labels{{"lane", std::to_string(number(lane, "lcore"))}};
  };
  add_counters(families, counters.lanes, lanes, labels);
  Writer bursts(families, MetricType::Histogram, "ina_lane_burst_packets",
                "Packets that a packet loop took from a port at once, empty polls left out.");
  for (const Json& lane : lanes) bursts.add(burst_histogram(lane), labels(lane));
}

void add_ports(FamilyList& families, const CounterLists& counters, const Json& status) {
  const Json& ports = status.at("ports");
  const auto labels = [](const Json& port) { return Labels{{"port", text(port, "name")}}; };
  add_counters(families, counters.ports, ports, labels);
  Writer lost(families, MetricType::Counter, "ina_port_lost_frames_total",
              "Frames lost before the port could take them: the kernel or the device had no room.");
  for (const Json& port : ports)
    if (port.contains("lost_before")) lost.add(real(port, "lost_before"), labels(port));
  Writer links(families, MetricType::Gauge, "ina_port_up", "1 while an Ethernet port has a link.");
  for (const Json& port : ports)
    if (port.contains("link")) links.add(text(port, "link") == "up" ? 1 : 0, labels(port));
  Writer blocked(families, MetricType::Gauge, "ina_port_blocked",
                 "1 while an Ethernet port forwards nothing, because it is part of a loop.");
  for (const Json& port : ports)
    if (port.contains("link")) blocked.add(port.contains("blocked") ? 1 : 0, labels(port));
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

void add_job_states(FamilyList& families, const Json& status) {
  std::map<std::string, double> states = {
      {"joining", 0}, {"running", 0}, {"leaving", 0}, {"rejoining", 0}};
  for (const Json& job : status.at("jobs"))
    if (!job.contains("group_of")) ++states[text(job, "state")];
  Writer jobs(families, MetricType::Gauge, "ina_jobs", "Jobs, their groups left out.");
  for (const auto& [state, count] : states) jobs.add(count, {{"state", state}});
}

/// Ranks in the job, also of a group's workers, for which the oldest fragment waits.
RankSet late_of(const Json& job) {
  const auto late = job.find("waiting_for");
  if (late == job.end()) return {};
  const auto of_job = job.find("root_ranks");
  RankSet ranks;
  for (const Json& rank : *late)
    ranks.insert(
        Rank{(of_job == job.end() ? rank : of_job->at(rank.get<size_t>())).get<uint16_t>()});
  return ranks;
}

/// Switches of its tree that are away: the one above, and those below.
uint64_t away_of(const Json& job) {
  const auto tree = job.find("tree");
  if (tree == job.end()) return 0;
  const auto is_away = [](const Json& other) { return text(other, "state") == "away"; };
  const Json& above = tree->at("above");
  uint64_t away = above.is_object() && is_away(above) ? 1 : 0;
  for (const Json& below : tree->at("below")) away += is_away(below) ? 1 : 0;
  return away;
}

constexpr double kNanosPerSecond = 1e9;

}  // namespace

uint64_t Families::counter(const JobSums& sums, std::string_view name) const {
  const auto found = std::ranges::find(counters_.jobs, name, &CounterText::name);
  return found == counters_.jobs.end() ? 0
                                       : sums[static_cast<size_t>(found - counters_.jobs.begin())];
}

uint64_t Families::completed(const JobSums& sums) const {
  return counter(sums, "results") + counter(sums, "fallback_results") +
         counter(sums, "parker_results");
}

uint64_t Families::contributions(const JobSums& sums) const {
  return counter(sums, "absorbed") + counter(sums, "bypassed");
}

/// By id, each with its groups.
std::map<uint64_t, Families::JobNow> Families::jobs_of(const Json& status) const {
  std::map<uint64_t, JobNow> jobs;
  for (const Json& job : status.at("jobs")) {
    const bool group = job.contains("group_of");
    JobNow& entry = jobs[number(job, group ? "group_of" : "id")];
    entry.sums.resize(counters_.jobs.size());
    for (size_t i = 0; i < entry.sums.size(); ++i)
      entry.sums[i] += number(job, counters_.jobs[i].name);
    entry.late |= late_of(job);
    if (group) continue;
    entry.label = text(job, "owner") + "/" + text(job, "name");
    entry.missing = job.at("missing").size();
    entry.away = away_of(job);
  }
  return jobs;
}

/// The jobs with series of their own: those with most contributions so far.
std::set<uint64_t> Families::labelled(const std::map<uint64_t, JobNow>& jobs) const {
  std::vector<std::pair<uint64_t, uint64_t>> order;
  for (const auto& [id, job] : jobs) order.emplace_back(~contributions(job.sums), id);
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
    JobBefore before = found == before_.end()
                           ? JobBefore{.sums = JobSums(counters_.jobs.size()), .moved = now}
                           : found->second;
    if (completed(job.sums) != completed(before.sums) || counter(job.sums, "slots_held") == 0)
      before.moved = now;
    job.waiting_s = static_cast<double>(now - before.moved) / kNanosPerSecond;
    const RankSet still = job.late & before.late;
    if (still.empty()) before.late_since = now;
    before.late = still.empty() ? job.late : still;
    job.straggler_s = static_cast<double>(now - before.late_since) / kNanosPerSecond;
    if (!own.contains(id))
      for (size_t i = 0; i < job.sums.size(); ++i) {
        if (counters_.jobs[i].kind != CounterKind::kTotal) continue;
        // A group that has ended takes its counts with it.
        const uint64_t last = before.sums[i];
        other_[i] += std::max(job.sums[i], last) - last;
      }
    before.sums = job.sums;
    after.emplace(id, before);
  }
  before_ = std::move(after);
}

/// The jobs that have series, the last of them for all others.
std::vector<Families::JobNow> Families::shown_jobs(const Json& status, Nanos now) {
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
    for (size_t i = 0; i < rest.sums.size(); ++i)
      if (counters_.jobs[i].kind == CounterKind::kLevel) rest.sums[i] += job.sums[i];
    rest.missing += job.missing;
    rest.away += job.away;
    rest.waiting_s = std::max(rest.waiting_s, job.waiting_s);
    rest.straggler_s = std::max(rest.straggler_s, job.straggler_s);
  }
  const auto none = [](uint64_t count) { return count == 0; };
  if (shown.size() < jobs.size() || !std::ranges::all_of(other_, none)) shown.push_back(rest);
  return shown;
}

void Families::add_jobs(FamilyList& families, const std::vector<JobNow>& jobs) const {
  const auto gauge = [&](const char* name, const char* help, auto value) {
    Writer writer(families, MetricType::Gauge, name, help);
    for (const JobNow& job : jobs)
      writer.add(static_cast<double>(value(job)), {{"job", job.label}});
  };
  gauge("ina_job_waiting_seconds",
        "How long a job that holds slots has completed nothing, as far as scrapes saw.",
        [](const JobNow& job) { return job.waiting_s; });
  gauge("ina_job_straggler_seconds",
        "How long each scrape has found a job's oldest fragment waiting for the same worker.",
        [](const JobNow& job) { return job.straggler_s; });
  gauge("ina_job_missing_workers", "Workers of a job that are not there.",
        [](const JobNow& job) { return job.missing; });
  gauge("ina_job_away_switches", "Switches of a job's tree that are away.",
        [](const JobNow& job) { return job.away; });
  Writer ratio(families, MetricType::Gauge, "ina_job_offload_ratio",
               "Share of a job's contributions that were added in a slot.");
  for (const JobNow& job : jobs)
    if (const uint64_t all = contributions(job.sums); all != 0)
      ratio.add(static_cast<double>(counter(job.sums, "absorbed")) / static_cast<double>(all),
                {{"job", job.label}});
  for (size_t i = 0; i < counters_.jobs.size(); ++i) {
    if (counters_.jobs[i].metric.name.empty()) continue;
    Writer writer(families, counters_.jobs[i]);
    for (const JobNow& job : jobs)
      writer.add(static_cast<double>(job.sums[i]), {{"job", job.label}});
  }
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
  add_switch(families, status);
  add_lanes(families, counters_, status);
  add_ports(families, counters_, status);
  add_drops(families, status);
  add_slots(families, status.at("aggregator"));
  add_counters(families, counters_.aggregator, std::span(&status.at("aggregator"), 1),
               [](const Json&) { return Labels{}; });
  add_job_states(families, status);
  add_jobs(families, shown_jobs(status, now));
  add_tenants(families, status);
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return families;
}

}  // namespace ina::metrics
