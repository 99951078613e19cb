#include "sim/leaf_spine.h"

#include <fmt/format.h>

#include <stdexcept>

#include "sim/job_tree.h"
#include "sim/leader_rank.h"

namespace ina::sim {

namespace {

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

ClusterSpec checked(ClusterSpec spec, const LeafSpineSpec& shape) {
  require(!spec.jobs.empty(), "there must be at least one job");
  require(shape.leaves >= 1 && shape.leaves <= kMaxWorkers && shape.workers >= 1 &&
              shape.workers <= kMaxWorkers,
          fmt::format("there are 1 to {0} leaves of 1 to {0} workers, not {1} of {2}", kMaxWorkers,
                      shape.leaves, shape.workers));
  require(shape.oversubscription > 0, "an uplink must have a rate");
  require(shape.chunk_fragments > 0, "a chunk has at least one fragment");
  require(scheduler::traits(spec.policy.kind).hashed,
          fmt::format("jobs in trees do not go with the policy {}", name(spec.policy.kind)));
  require(spec.slots > 0, "there must be at least one slot");
  require(spec.window > 0, "the window must be at least one fragment");
  require(spec.in_switch <= spec.window, "no more can be in the switch than in the window");
  require(spec.value_bytes >= 4 && spec.value_bytes % 4 == 0 &&
              spec.fragment_bytes % spec.value_bytes == 0 && spec.fragment_bytes <= 8192,
          fmt::format("{} bytes of values do not divide a fragment of {} bytes, 8192 at most",
                      spec.value_bytes, spec.fragment_bytes));
  require(shape.sums == Sums::kTree ||
              (spec.help == Help::kOff && spec.straggler.pattern == Pattern::kNone),
          "only jobs in trees have stragglers");
  require(spec.farther_ns == 0, "no worker is farther away than others");
  for (const JobPlan& job : spec.jobs)
    require(shape.sums != Sums::kLeaders ||
                (job.model.layers.size() == 1 && job.model.compute_ns() == 0),
            "leaders carry out plain all-reduces only");
  spec.fabric.wire_factor = spec.fragment_bytes / spec.value_bytes;
  spec.fabric.seed = spec.seed;
  RackSpec leaf{.link = spec.fabric.racks.at(0).link, .uplink = spec.fabric.racks[0].link};
  leaf.uplink.rate_bps = static_cast<uint64_t>(static_cast<double>(leaf.link.rate_bps) *
                                               shape.workers / shape.oversubscription);
  spec.fabric.racks.resize(1);
  spec.fabric.racks.resize(1 + shape.leaves, leaf);
  return spec;
}

class LeafSpine final : public Endpoint, public WorkerListener {
 public:
  LeafSpine(const ClusterSpec& cluster, const LeafSpineSpec& shape, Progress progress)
      : shape_(shape),
        spec_(checked(cluster, shape)),
        progress_(progress),
        fabric_(spec_.fabric),
        root_(fabric_, shape_of_root()),
        own_host_(fabric_.add_host(*this)) {
    make_leaves();
    for (uint32_t index = 0; index < spec_.jobs.size(); ++index) {
      make_job(index);
      fabric_.schedule(spec_.jobs[index].arrival, own_host_, index);
    }
  }
  Outcome run();

 private:
  struct Job {
    JobPlan plan;
    std::vector<std::unique_ptr<JobTree>> trees;  ///< one, or of each step of each group
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::unique_ptr<LeaderRank>> leaders;  ///< kLeaders, in place of workers
    uint32_t working = 0;
    Nanos begun = 0, finished = 0;
  };

  void arrived() override {}
  void on_timer(uint64_t index) override { begin(*jobs_[index]); }
  void finished(uint32_t index) override;
  void violated(const std::string& text) override {
    if (outcome_.violations.size() < 8) outcome_.violations.push_back(text);
  }

  /// Fragments that a worker may have in the switch at once; 0: the window.
  uint32_t in_switch() const {
    return spec_.in_switch == 0 && spec_.help != Help::kOff ? spec_.window : spec_.in_switch;
  }
  uint32_t ranks() const { return shape_.leaves * shape_.workers; }
  bool leads(uint32_t rank) const { return rank % shape_.workers == 0; }
  uint32_t leaf_of(uint32_t rank) const { return rank / shape_.workers; }
  /// A flat sum of more workers than a switch has bits for: each leaf's are a domain at the root.
  bool has_domains() const { return shape_.sums == Sums::kFlat && ranks() > kMaxWorkers; }
  aggregator::Shape shape_of_root() const;
  aggregator::Shape shape_of_leaf() const;
  void make_leaves();
  void make_job(uint32_t index);
  JobTree& add_tree(Job& job, uint32_t ranks);
  void make_workers(Job& job, uint32_t index);
  void make_leaders(Job& job, uint32_t index);
  LeaderStep step_of(const Job& job, Switch& at, uint32_t rank, uint32_t ranks) const;
  client::EngineConfig engine_of(uint32_t rank, uint32_t ranks, Rank member) const;
  void begin(Job& job);
  void count(const client::Engine& engine);
  void count_links(const std::pair<ns3net::LinkCounters, ns3net::LinkCounters>& directions);
  void sum_up(const Job& job);
  void sum_up_switches();

  const LeafSpineSpec shape_;
  const ClusterSpec spec_;
  Progress progress_;
  Fabric fabric_;
  Switch root_;
  uint32_t own_host_;                            ///< timers of jobs that arrive
  std::vector<std::unique_ptr<Switch>> leaves_;  ///< those that add
  std::vector<std::unique_ptr<Job>> jobs_;
  uint32_t next_id_ = 100;
  size_t done_ = 0;
  Outcome outcome_;
};

aggregator::Shape LeafSpine::shape_of_root() const {
  aggregator::Shape shape;
  shape.slots = spec_.slots;
  shape.slot_bytes = spec_.value_bytes;
  shape.max_jobs = static_cast<uint32_t>(spec_.jobs.size());
  if (has_domains()) shape.max_jobs *= 1 + shape_.leaves;
  shape.burst = 1;
  shape.policy = spec_.policy;
  return shape;
}

aggregator::Shape LeafSpine::shape_of_leaf() const {
  aggregator::Shape shape = shape_of_root();
  shape.max_jobs = static_cast<uint32_t>(spec_.jobs.size());
  if (shape_.sums == Sums::kLeaders) shape.max_jobs *= 2;
  return shape;
}

void LeafSpine::make_leaves() {
  if (shape_.sums == Sums::kFlat) return;
  for (uint32_t leaf = 0; leaf < shape_.leaves; ++leaf)
    leaves_.push_back(std::make_unique<Switch>(fabric_, shape_of_leaf(), leaf + 1));
}

void LeafSpine::make_job(uint32_t index) {
  Job& job = *jobs_.emplace_back(std::make_unique<Job>());
  job.plan = spec_.jobs[index];
  job.working = ranks();
  if (shape_.sums == Sums::kLeaders)
    make_leaders(job, index);
  else
    make_workers(job, index);
}

JobTree& LeafSpine::add_tree(Job& job, uint32_t ranks) {
  JobTreeSpec tree;
  tree.id = JobId{next_id_};
  next_id_ += has_domains() ? 1 + shape_.leaves : 1;
  tree.key = spec_.seed * 1'000'003 + value(tree.id);
  tree.ranks = ranks;
  tree.window = spec_.window;
  tree.slot_bytes = spec_.value_bytes;
  tree.rto_min_ns = spec_.rto_min_ns;
  if (spec_.help != Help::kOff)
    tree.help = {in_switch(), spec_.slots, spec_.park_patience_ns, spec_.park_always};
  return *job.trees.emplace_back(std::make_unique<JobTree>(tree));
}

client::EngineConfig LeafSpine::engine_of(uint32_t rank, uint32_t ranks, Rank member) const {
  client::EngineConfig engine;
  engine.rank = Rank{static_cast<uint16_t>(rank)};
  engine.member = member;
  engine.workers = ranks;
  engine.epoch = JobTree::kEpoch;
  engine.window = spec_.window;
  engine.in_switch = in_switch();
  engine.slot_bytes = spec_.value_bytes;
  engine.rules = {.priority_max = static_cast<uint8_t>(spec_.priorities ? 255 : 1),
                  .policy = spec_.policy.kind,
                  .home = Home::kTree,
                  .aggregator_window = spec_.aggregator_window,
                  .rto_min_ns = spec_.rto_min_ns,
                  .rto_max_ns = spec_.rto_max_ns};
  engine.window_cap = spec_.window_cap && spec_.help == Help::kOff;
  engine.lossy_link = true;
  return engine;
}

void LeafSpine::make_workers(Job& job, uint32_t index) {
  JobTree& tree = add_tree(job, ranks());
  const uint32_t root = tree.add_place(root_, static_cast<io::JobIndex>(index));
  WorkerSpec worker;
  worker.job_key = tree.key();
  worker.model = &job.plan.model;
  worker.iterations = job.plan.iterations;
  worker.jitter = spec_.jitter;
  worker.straggler = spec_.straggler;
  worker.seed = worker.job_key;
  uint32_t place = root;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const uint32_t leaf = leaf_of(rank);
    Switch& at = shape_.sums == Sums::kTree ? *leaves_[leaf] : root_;
    if (leads(rank) && shape_.sums == Sums::kTree)
      place = tree.add_place(at, static_cast<io::JobIndex>(index), root);
    else if (leads(rank) && has_domains())
      place = tree.add_place(
          at, static_cast<io::JobIndex>(spec_.jobs.size() + index * shape_.leaves + leaf), root);
    const Rank member = tree.next_member(place);
    worker.engine = engine_of(rank, ranks(), member);
    worker.job = tree.id(place);
    worker.rack = leaf + 1;
    worker.switch_host = at.host();
    worker.link_slower =
        worker.straggler.pattern == Pattern::kLink && rank == 0 ? 1 / spec_.straggler.factor : 1;
    job.workers.push_back(std::make_unique<Worker>(fabric_, worker, index, *this));
    tree.add_rank(place, rank, job.workers.back()->host());
  }
}

LeaderStep LeafSpine::step_of(const Job& job, Switch& at, uint32_t rank, uint32_t ranks) const {
  const JobTree& tree = *job.trees.back();
  return {engine_of(rank, ranks, Rank{static_cast<uint16_t>(rank)}), tree.id(), tree.key(),
          at.host()};
}

/// Two jobs at each leaf, and one of the leaders at the root.
void LeafSpine::make_leaders(Job& job, uint32_t index) {
  LeaderRankSpec leader;
  leader.ranks = ranks();
  leader.bytes = job.plan.model.layers.front().parameter_bytes;
  leader.iterations = job.plan.iterations;
  leader.chunk_fragments = shape_.chunk_fragments;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    leader.rank = rank;
    leader.leads = leads(rank);
    leader.rack = leaf_of(rank) + 1;
    job.leaders.push_back(std::make_unique<LeaderRank>(fabric_, leader, index, *this));
  }
  for (const auto step : {LeaderRank::kReduce, LeaderRank::kBroadcast})
    for (uint32_t leaf = 0; leaf < shape_.leaves; ++leaf) {
      JobTree& tree = add_tree(job, shape_.workers);
      tree.add_place(*leaves_[leaf], static_cast<io::JobIndex>(
                                         2 * index + (step == LeaderRank::kBroadcast ? 1 : 0)));
      for (uint32_t i = 0; i < shape_.workers; ++i) {
        LeaderRank& rank = *job.leaders[leaf * shape_.workers + i];
        tree.add_rank(0, i, rank.add_address(step));
        rank.join(step, step_of(job, *leaves_[leaf], i, shape_.workers));
      }
    }
  JobTree& above = add_tree(job, shape_.leaves);
  above.add_place(root_, static_cast<io::JobIndex>(index));
  for (uint32_t leaf = 0; leaf < shape_.leaves; ++leaf) {
    LeaderRank& rank = *job.leaders[leaf * shape_.workers];
    above.add_rank(0, leaf, rank.add_address(LeaderRank::kAbove));
    rank.join(LeaderRank::kAbove, step_of(job, root_, leaf, shape_.leaves));
  }
}

void LeafSpine::begin(Job& job) {
  job.begun = fabric_.now();
  for (const auto& tree : job.trees) tree->begin();
  for (const auto& worker : job.workers) worker->start();
  for (const auto& leader : job.leaders) leader->start();
}

void LeafSpine::finished(uint32_t index) {
  Job& job = *jobs_[index];
  if (--job.working != 0) return;
  job.finished = fabric_.now();
  for (const auto& tree : job.trees) tree->end();
  ++done_;
  if (progress_) progress_(done_, jobs_.size(), fabric_.now());
  if (done_ == jobs_.size()) fabric_.stop();
}

// ---- the outcome

Outcome LeafSpine::run() {
  fabric_.run(spec_.limit_ns);
  if (done_ != jobs_.size())
    violated(fmt::format("only {} of {} jobs were done after {} s", done_, jobs_.size(),
                         static_cast<double>(fabric_.now()) * 1e-9));
  outcome_.end = fabric_.now();
  for (const auto& job : jobs_) sum_up(*job);
  sum_up_switches();
  outcome_.wire_bytes = fabric_.wire_bytes_sent();
  outcome_.frames = fabric_.frames_sent();
  outcome_.events = fabric_.events();
  return outcome_;
}

void LeafSpine::count(const client::Engine& engine) {
  outcome_.queries += engine.counters().queries;
  outcome_.raws += engine.counters().raws_sent;
}

void LeafSpine::count_links(
    const std::pair<ns3net::LinkCounters, ns3net::LinkCounters>& directions) {
  for (const auto& link : {directions.first, directions.second}) {
    outcome_.queue_drops += link.queue_drops;
    outcome_.losses += link.losses;
    outcome_.marks += link.marks;
  }
}

void LeafSpine::sum_up(const Job& job) {
  JobResult result;
  result.model = job.plan.model.name;
  result.arrival = job.plan.arrival;
  result.admitted = job.begun;
  result.finished = job.finished;
  result.iterations = job.plan.iterations;
  result.bytes_per_iteration = job.plan.model.parameter_bytes();
  result.iteration_ns = (job.finished - job.begun) / job.plan.iterations;
  outcome_.jobs.push_back(result);
  uint64_t checked = 0;
  for (const auto& worker : job.workers) {
    count(worker->engine());
    count_links(fabric_.counters(worker->host()));
    checked += worker->sums_checked();
  }
  for (const auto& leader : job.leaders) {
    leader->for_each_engine([this](const client::Engine& engine) { count(engine); });
    count_links(fabric_.counters(leader->host()));
    checked += leader->sums_checked();
  }
  if (!job.workers.empty()) outcome_.fragments += job.workers[0]->engine().counters().results;
  outcome_.sums_checked += checked;
  const uint64_t expected = uint64_t{ranks()} * job.plan.iterations * job.plan.model.layers.size();
  if (job.finished != 0 && checked != expected)
    violated(fmt::format("{} sums of {} were checked", checked, expected));
}

void LeafSpine::sum_up_switches() {
  const auto judge = [this](const Switch& of, const std::string& which) {
    if (const std::string problem = of.problem_of_ledger(); !problem.empty())
      violated(which + ": " + problem);
    if (of.mismatches() != 0) violated(which + " saw workers that disagree");
    if (done_ == jobs_.size() && of.aggregator().counters().slots_used != 0)
      violated(which + ": a slot is held though no job is left");
  };
  judge(root_, "the root");
  outcome_.counters = root_.aggregator().counters();
  outcome_.fallback_bytes = outcome_.counters.bypassed_bytes * spec_.fabric.wire_factor;
  for (uint32_t leaf = 0; leaf < shape_.leaves; ++leaf) {
    const auto uplink = fabric_.uplink_counters(leaf + 1);
    count_links(uplink);
    LeafOutcome& own = outcome_.leaves.emplace_back();
    std::tie(own.up, own.down) = uplink;
    if (leaves_.empty()) continue;
    judge(*leaves_[leaf], fmt::format("leaf {}", leaf));
    own.counters = leaves_[leaf]->aggregator().counters();
    outcome_.fallback_bytes += own.counters.bypassed_bytes * spec_.fabric.wire_factor;
  }
}

}  // namespace

Outcome run_leaf_spine(const ClusterSpec& cluster, const LeafSpineSpec& leaf_spine,
                       Progress progress) {
  return LeafSpine(cluster, leaf_spine, progress).run();
}

}  // namespace ina::sim
