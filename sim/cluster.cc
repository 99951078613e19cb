#include "sim/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "sim/switch.h"

namespace ina::sim {

namespace {

/// A fallback server: the work of ina-psd, on a host of its own.
class FallbackServer final : public Endpoint {
 public:
  FallbackServer(Fabric& fabric, const aggregator::FallbackConfig& config, JobId id, uint64_t key)
      : fabric_(fabric),
        frame_bytes_(fabric.wire_bytes(config.slot_bytes)),
        host_(fabric.add_host(*this)),
        transport_(fabric, host_, id, key, config.slot_bytes),
        fallback_(config) {}

  uint32_t host() const { return host_; }

  void arrived() override {
    client::RxPacket received[16];
    while (const size_t count = transport_.rx_burst(received)) {
      for (size_t i = 0; i < count; ++i)
        fallback_.on_message(received[i].message, received[i].payload);
      transport_.rx_release();
    }
    pump();
  }
  void on_timer(uint64_t) override {
    waiting_ = false;
    pump();
  }

 private:
  static constexpr uint64_t kRingFrames = 16;

  void pump() {
    wire::Outgoing packet;
    while (!waiting_) {
      const uint64_t queued = fabric_.queued_bytes(host_);
      if (queued >= kRingFrames * frame_bytes_) {
        waiting_ = true;
        const auto ns = static_cast<Nanos>(static_cast<double>(queued) / 2 * 8e9 /
                                           static_cast<double>(fabric_.rate_bps(host_)));
        return fabric_.schedule(fabric_.now() + ns, host_, 0);
      }
      if (fallback_.prepare(std::span(&packet, 1)) == 0) return;
      transport_.tx_burst(std::span(&packet, 1));
      fallback_.sent(1);
    }
  }

  Fabric& fabric_;
  uint64_t frame_bytes_;
  uint32_t host_;
  io::sim::SimTransport transport_;
  aggregator::Fallback fallback_;
  bool waiting_ = false;
};

class Cluster final : public Endpoint, public WorkerListener {
 public:
  Cluster(const ClusterSpec& spec, Progress progress);
  Outcome run();

 private:
  struct Job {
    JobPlan plan;
    JobId id{};
    uint64_t key = 0;
    uint32_t window = 0;
    std::vector<std::unique_ptr<Worker>> workers;
    std::unique_ptr<FallbackServer> server;
    std::unique_ptr<aggregator::Fallback> spill;
    Lines results;
    std::vector<WorkerSet> seen;
    std::vector<uint8_t> parked_at;
    std::vector<aggregator::GivenResult> given;
    uint32_t working = 0;
    uint32_t pool = 0;
    bool running = false;
    Nanos admitted = 0, finished = 0;
  };

  // Timers of the cluster itself: the number of a job that arrives, or a look at the slots.
  static constexpr uint64_t kSample = UINT64_MAX;

  void arrived() override {}
  void on_timer(uint64_t argument) override;
  void finished(uint32_t job) override;
  void violated(const std::string& text) override {
    if (outcome_.violations.size() < 8) outcome_.violations.push_back(text);
  }

  bool fixed() const { return !scheduler::traits(spec_.policy.kind).hashed; }
  bool workers_park() const {
    return spec_.help == Help::kLeader ||
           (spec_.help == Help::kFallback && spec_.home == Home::kWorkers);
  }
  static aggregator::Shape shape_of(const ClusterSpec& spec);
  void make_job(uint32_t index);
  client::EngineConfig engine_of(const Job& job) const;
  uint32_t in_switch_of(const Job& job) const;
  void make_workers(uint32_t index);
  void make_fallback(Job& job);
  void admit(uint32_t index);
  void sample();
  void check_ledgers();
  void count_link(const std::pair<ns3net::LinkCounters, ns3net::LinkCounters>& directions);
  void sum_up();

  ClusterSpec spec_;
  Progress progress_;
  Fabric fabric_;
  Switch switch_;
  uint32_t own_host_;  ///< the cluster's own timers
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<uint32_t> free_pools_;
  std::deque<uint32_t> waiting_;
  size_t done_ = 0;
  Outcome outcome_;
};

constexpr size_t kMaxRacks = 64;

/// A job's ranks are shared out in their order.
uint32_t rack_of(const FabricSpec& fabric, uint32_t rank, uint32_t workers) {
  uint64_t all = 0;
  for (const RackSpec& rack : fabric.racks) all += rack.share;
  uint64_t before = 0;
  uint32_t rack = 0;
  for (; rack + 1 < fabric.racks.size(); ++rack) {
    before += fabric.racks[rack].share;
    if (rank < workers * before / all) break;
  }
  return rack;
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

ClusterSpec checked(ClusterSpec spec) {
  require(!spec.jobs.empty(), "there must be at least one job");
  require(spec.slots > 0, "there must be at least one slot");
  require(spec.value_bytes >= 4 && spec.value_bytes % 4 == 0 &&
              spec.fragment_bytes % spec.value_bytes == 0,
          fmt::format("{} bytes of values do not divide a fragment of {} bytes", spec.value_bytes,
                      spec.fragment_bytes));
  require(spec.fragment_bytes <= 8192, "a fragment has at most 8192 bytes in a frame");
  require(spec.window > 0, "the window must be at least one fragment");
  require(spec.in_switch <= spec.window, "no more can be in the switch than in the window");
  require(!spec.fabric.racks.empty() && spec.fabric.racks.size() <= kMaxRacks,
          fmt::format("there are 1 to {} racks, not {}", kMaxRacks, spec.fabric.racks.size()));
  uint64_t shares = 0;
  for (const RackSpec& rack : spec.fabric.racks) {
    require(rack.link.loss < 1 && rack.uplink.loss < 1, "a link must not lose all");
    shares += rack.share;
  }
  require(shares > 0, "no rack has a share of the workers");
  const bool hashed = scheduler::traits(spec.policy.kind).hashed;
  require(spec.help == Help::kOff || hashed,
          fmt::format("straggler help does not go with the policy {}", name(spec.policy.kind)));
  require(spec.straggler.factor >= 1, "a straggler is not faster than others");
  require(spec.straggler.period_ns > 0, "a straggler's period must be longer than nothing");
  for (const JobPlan& job : spec.jobs) {
    require(job.workers >= 1 && job.workers <= kMaxWorkers,
            fmt::format("a job has 1 to {} workers, not {}", kMaxWorkers, job.workers));
    require(job.iterations > 0, "a job has at least one iteration");
    require(!job.rack || *job.rack < spec.fabric.racks.size(),
            fmt::format("there is no rack {}, but {} of them, from 0", job.rack.value_or(0),
                        spec.fabric.racks.size()));
  }
  if (spec.static_pools == 0) spec.static_pools = static_cast<uint32_t>(spec.jobs.size());
  require(hashed || spec.slots / spec.static_pools >= 2,
          fmt::format("{} slots do not make {} pools of two slots", spec.slots, spec.static_pools));
  spec.fabric.wire_factor = spec.fragment_bytes / spec.value_bytes;
  spec.fabric.seed = spec.seed;
  return spec;
}

aggregator::Shape Cluster::shape_of(const ClusterSpec& spec) {
  aggregator::Shape shape;
  shape.slots = spec.slots;
  shape.slot_bytes = spec.value_bytes;
  shape.max_jobs = static_cast<uint32_t>(spec.jobs.size());
  shape.burst = 1;
  shape.policy = spec.policy;
  return shape;
}

Cluster::Cluster(const ClusterSpec& spec, Progress progress)
    : spec_(checked(spec)),
      progress_(progress),
      fabric_(spec_.fabric),
      switch_(fabric_, shape_of(spec_)),
      own_host_(fabric_.add_host(*this)) {
  for (uint32_t pool = spec_.static_pools; pool != 0; --pool) free_pools_.push_back(pool - 1);
  for (uint32_t index = 0; index < spec_.jobs.size(); ++index) {
    make_job(index);
    fabric_.schedule(spec_.jobs[index].arrival, own_host_, index);
  }
}

void Cluster::make_job(uint32_t index) {
  auto owned = std::make_unique<Job>();
  Job& job = *owned;
  job.plan = spec_.jobs[index];
  job.id = JobId{100 + index};
  job.key = spec_.seed * 1'000'003 + index;
  job.window = spec_.window;
  if (fixed()) job.window = std::min(job.window, spec_.slots / spec_.static_pools / 2);
  job.working = job.plan.workers;
  jobs_.push_back(std::move(owned));
  make_workers(index);
  std::vector<uint32_t> hosts;
  for (const auto& each : job.workers) hosts.push_back(each->host());
  make_fallback(job);
  if (job.server) hosts.push_back(job.server->host());
  switch_.bind(static_cast<io::JobIndex>(index), job.id, job.key, hosts, job.plan.workers);
}

/// Fragments that a worker may have in the switch at once, as the daemon grants it; 0: the window.
uint32_t Cluster::in_switch_of(const Job& job) const {
  const uint32_t wanted = std::min(spec_.in_switch, job.window);
  if (spec_.help == Help::kOff) return wanted;
  return std::min(wanted == 0 ? job.window : wanted,
                  aggregator::JobSpec::most_in_switch(spec_.slots, spec_.home));
}

client::EngineConfig Cluster::engine_of(const Job& job) const {
  client::EngineConfig engine;
  engine.workers = job.plan.workers;
  engine.epoch = 1;
  engine.window = job.window;
  engine.in_switch = in_switch_of(job);
  engine.slot_bytes = spec_.value_bytes;
  engine.rules = {.priority_max = static_cast<uint8_t>(spec_.priorities ? 255 : 1),
                  .policy = spec_.policy.kind,
                  .home = spec_.home,
                  .aggregator_window = spec_.aggregator_window,
                  .rto_min_ns = spec_.rto_min_ns,
                  .rto_max_ns = spec_.rto_max_ns};
  engine.window_cap = spec_.window_cap && spec_.help == Help::kOff;
  engine.lossy_link = true;
  if (workers_park()) engine.park_room = job.window;
  return engine;
}

void Cluster::make_workers(uint32_t index) {
  Job& job = *jobs_[index];
  WorkerSpec worker;
  worker.engine = engine_of(job);
  worker.job = job.id;
  worker.job_key = job.key;
  worker.model = &job.plan.model;
  worker.iterations = job.plan.iterations;
  worker.jitter = spec_.jitter;
  worker.straggler = spec_.straggler;
  if (spec_.straggler_jobs != 0 && index >= spec_.straggler_jobs)
    worker.straggler.pattern = Pattern::kNone;
  worker.seed = spec_.seed * 1'000'003 + index;
  for (uint32_t rank = 0; rank < job.plan.workers; ++rank) {
    worker.engine.rank = Rank{static_cast<uint8_t>(rank)};
    worker.rack = job.plan.rack.value_or(rack_of(spec_.fabric, rank, job.plan.workers));
    worker.link_slower =
        worker.straggler.pattern == Pattern::kLink && rank == 0 ? 1 / spec_.straggler.factor : 1;
    worker.link_farther = rank == 0 ? spec_.farther_ns : 0;
    job.workers.push_back(std::make_unique<Worker>(fabric_, worker, index, *this));
  }
}

/// Unless the workers are the fallback.
void Cluster::make_fallback(Job& job) {
  if (spec_.home == Home::kWorkers) return;
  aggregator::FallbackConfig config;
  config.workers = job.plan.workers;
  config.window = job.window;
  config.slot_bytes = spec_.value_bytes;
  config.epoch = 1;
  config.bind_at_once = fixed();
  if (spec_.home == Home::kSpill)
    job.spill = std::make_unique<aggregator::Fallback>(config);
  else
    job.server = std::make_unique<FallbackServer>(fabric_, config, job.id, job.key);
}

void Cluster::admit(uint32_t index) {
  Job& job = *jobs_[index];
  if (fixed()) {
    if (free_pools_.empty()) return waiting_.push_back(index);
    job.pool = free_pools_.back();
    free_pools_.pop_back();
  }
  job.running = true;
  job.admitted = fabric_.now();
  job.results = lines_of(2 * size_t{job.window} * spec_.value_bytes);
  aggregator::JobSpec admitted;
  admitted.id = job.id;
  admitted.epoch = 1;
  admitted.workers = job.plan.workers;
  admitted.window = job.window;
  admitted.pool = {job.pool * 2 * job.window, 2 * job.window, 1, 0};
  admitted.rules.home = spec_.home;
  admitted.results = data(job.results);
  const size_t words = aggregator::JobSpec::seen_words(job.window, 1);
  job.seen.assign(words, {});
  admitted.seen = job.seen.data();
  if (scheduler::traits(spec_.policy.kind).hashed) {
    job.given.assign(words, aggregator::GivenResult{});
    admitted.given = job.given.data();
  }
  admitted.spill = job.spill.get();
  if (spec_.help != Help::kOff) {
    admitted.park_by(in_switch_of(job), spec_.slots);
    if (spec_.park_after != 0) admitted.park_after = spec_.park_after;
    admitted.park_patience = spec_.park_patience_ns;
    admitted.park_if_it_pays = !spec_.park_always;
  }
  if (workers_park()) {
    job.parked_at.assign(words, 0);
    admitted.parked_at = job.parked_at.data();
    admitted.park_room = job.window;
    admitted.park_missing =
        spec_.park_missing != 0 ? spec_.park_missing : std::max(1u, job.plan.workers / 8);
    admitted.park_home = spec_.help == Help::kFallback;
  }
  switch_.add_job(static_cast<io::JobIndex>(index), admitted);
  for (auto& worker : job.workers) worker->start();
}

void Cluster::on_timer(uint64_t argument) {
  if (argument == kSample) return sample();
  admit(static_cast<uint32_t>(argument));
}

void Cluster::finished(uint32_t index) {
  Job& job = *jobs_[index];
  if (--job.working != 0) return;
  job.running = false;
  job.finished = fabric_.now();
  check_ledgers();
  switch_.aggregator().remove_job(static_cast<io::JobIndex>(index));
  ++done_;
  if (progress_) progress_(done_, jobs_.size(), fabric_.now());
  if (fixed()) {
    free_pools_.push_back(job.pool);
    if (!waiting_.empty()) {
      const uint32_t next = waiting_.front();
      waiting_.pop_front();
      admit(next);
    }
  }
  if (done_ == jobs_.size()) fabric_.stop();
}

void Cluster::sample() {
  uint32_t running = 0;
  for (const auto& job : jobs_) running += job->running;
  outcome_.samples.push_back({fabric_.now(), switch_.aggregator().counters().slots_used, running});
  fabric_.schedule(fabric_.now() + spec_.sample_ns, own_host_, kSample);
}

Outcome Cluster::run() {
  if (spec_.sample_ns != 0) fabric_.schedule(0, own_host_, kSample);
  fabric_.run(spec_.limit_ns);
  if (done_ != jobs_.size())
    violated(fmt::format("only {} of {} jobs were done after {} s", done_, jobs_.size(),
                         static_cast<double>(fabric_.now()) * 1e-9));
  sum_up();
  return outcome_;
}

void Cluster::check_ledgers() {
  if (const std::string problem = switch_.problem_of_ledger(); !problem.empty()) violated(problem);
}

void Cluster::count_link(const std::pair<ns3net::LinkCounters, ns3net::LinkCounters>& directions) {
  for (const auto& link : {directions.first, directions.second}) {
    outcome_.queue_drops += link.queue_drops;
    outcome_.losses += link.losses;
    outcome_.marks += link.marks;
  }
}

void Cluster::sum_up() {
  check_ledgers();
  const aggregator::Counters& counters = switch_.aggregator().counters();
  outcome_.counters = counters;
  outcome_.by_parker = counters.parker_results;
  outcome_.end = fabric_.now();
  if (switch_.mismatches() != 0) violated("the switch saw workers that disagree");
  if (done_ == jobs_.size() && counters.slots_used != 0)
    violated("a slot is held though no job is left");
  for (const auto& job : jobs_) {
    JobResult result;
    result.model = job->plan.model.name;
    result.arrival = job->plan.arrival;
    result.admitted = job->admitted;
    result.finished = job->finished;
    result.iterations = job->plan.iterations;
    result.bytes_per_iteration = job->plan.model.parameter_bytes();
    result.iteration_ns = (job->finished - job->admitted) / job->plan.iterations;
    outcome_.jobs.push_back(result);
    for (const auto& worker : job->workers) {
      const client::EngineCounters& c = worker->engine().counters();
      outcome_.queries += c.queries;
      outcome_.raws += c.raws_sent;
      outcome_.sums_checked += worker->sums_checked();
      if (const auto* fallback = worker->engine().fallback(); fallback && fallback->mismatch())
        violated("a fallback saw workers that disagree");
      count_link(fabric_.counters(worker->host()));
    }
    if (job->server) count_link(fabric_.counters(job->server->host()));
    const client::EngineCounters& first = job->workers[0]->engine().counters();
    outcome_.fragments += first.results;
    outcome_.by_fallback += first.results_from_fallback;
    const uint64_t expected =
        uint64_t{job->plan.workers} * job->plan.iterations * job->plan.model.layers.size();
    uint64_t checked = 0;
    for (const auto& worker : job->workers) checked += worker->sums_checked();
    if (job->finished != 0 && checked != expected)
      violated(fmt::format("{} sums of {} were checked", checked, expected));
  }
  for (uint32_t rack = 1; rack < fabric_.racks(); ++rack) count_link(fabric_.uplink_counters(rack));
  outcome_.fallback_bytes =
      (counters.part_bytes + counters.bypassed_bytes) * spec_.fabric.wire_factor;
  outcome_.wire_bytes = fabric_.wire_bytes_sent();
  outcome_.frames = fabric_.frames_sent();
  outcome_.events = fabric_.events();
  if (!outcome_.samples.empty()) {
    double sum = 0;
    for (const Sample& sample : outcome_.samples) sum += static_cast<double>(sample.slots_used);
    outcome_.slots_used_mean = sum / static_cast<double>(outcome_.samples.size());
  }
}

}  // namespace

Outcome run_cluster(const ClusterSpec& spec, Progress progress) {
  return Cluster(spec, progress).run();
}

}  // namespace ina::sim
