#include "sim/plan_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "plans/themis/cost.h"
#include "sim/plan_rank.h"
#include "sim/switch.h"

namespace ina::sim {

namespace {

constexpr uint32_t kElementBytes = sizeof(int32_t);
constexpr themis::Picos kPicosPerNano = 1'000;
// As the daemon's: how long results without bytes wait for others to join them.
constexpr Nanos kJoiningPatienceNs = 2'000'000;
constexpr Nanos kJoiningPatiences = 8;
constexpr uint32_t kEpoch = 1;
constexpr size_t kMostViolations = 8;

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

template <class T>
T need(Result<T> result) {
  if (!result) throw std::invalid_argument(result.error().text);
  return std::move(*result);
}

PlanSpec checked(PlanSpec spec) {
  if (const auto valid = themis::validate(spec.topology); !valid)
    throw std::invalid_argument(valid.error().text);
  const uint64_t ranks = spec.topology.participants();
  require(ranks <= kMaxWorkers,
          fmt::format("the topology has {} participants, and a job {} ranks at most: give smaller "
                      "dimensions (--sizes)",
                      ranks, kMaxWorkers));
  for (const themis::Dimension& dimension : spec.topology.dimensions)
    require(
        dimension.aggregation_bits_per_s == 0,
        fmt::format("dimension '{}' has aggregation_gbps; simulated switches add up at the rate "
                    "of their ports",
                    dimension.name));
  require(spec.bytes > 0, "there must be at least one byte");
  require(spec.rounds > 0, "there must be at least one round");
  require(spec.window > 0, "the window must be at least one fragment");
  require(spec.slots > 0, "there must be at least one slot");
  require(scheduler::traits(spec.policy.kind).hashed,
          fmt::format("plans are not simulated with the policy {}", name(spec.policy.kind)));
  require(spec.fragment_bytes <= 8192, "a fragment has at most 8192 bytes in a frame");
  require(
      spec.value_bytes >= kElementBytes && spec.value_bytes % 64 == 0 &&
          spec.fragment_bytes % spec.value_bytes == 0,
      fmt::format("{} bytes of values are no multiple of 64 that divides a fragment of {} bytes",
                  spec.value_bytes, spec.fragment_bytes));
  // An element that is there stands for so many on the wire, which the planner must not divide.
  const uint32_t factor = spec.fragment_bytes / spec.value_bytes;
  require(kElementBytes * factor <= themis::kMostElementBytes,
          fmt::format(
              "at most one value of {} can be left out: {} bytes of values are too few for a "
              "fragment of {} bytes",
              themis::kMostElementBytes / kElementBytes, spec.value_bytes, spec.fragment_bytes));
  spec.options.element_bytes = kElementBytes * factor;
  spec.options.in_network = themis::InNetwork::kAlways;
  if (spec.topology.carried) spec.topology.window = spec.window;
  const uint64_t granule = ranks * spec.options.element_bytes;
  spec.bytes = (spec.bytes + granule - 1) / granule * granule;
  return spec;
}

/// The plan for values thinned out.
themis::Plan thinned(themis::Plan plan, uint32_t factor) {
  for (themis::Request& request : plan.requests) request.bytes /= factor;
  for (themis::Chunk& chunk : plan.chunks) {
    chunk.bytes /= factor;
    for (themis::Stage& stage : chunk.stages) {
      stage.held_bytes /= factor;
      stage.tx_bytes /= factor;
      stage.rx_bytes /= factor;
    }
  }
  return plan;
}

themis::Picos end_of(const themis::Plan& plan) {
  return need(themis::replay(plan)).end_ps;
}

/// The ranks that differ in one coordinate alone, or all of them, and their switch.
class Group {
 public:
  Group(Fabric& fabric, const PlanSpec& spec, uint32_t number, uint32_t ranks)
      : spec_(spec),
        ranks_(ranks),
        id_{100 + number},
        key_(spec.seed * 1'000'003 + number),
        switch_(fabric, shape_of(spec)),
        results_(lines_of(2 * size_t{spec.window} * spec.value_bytes)),
        seen_(aggregator::JobSpec::seen_words(spec.window, 1)),
        given_(seen_.size()) {}

  /// Channel of the rank that is the next to join.
  PlanChannel channel(const ns3net::LinkSpec& link) {
    PlanChannel channel;
    channel.switch_host = switch_.host();
    channel.link = link;
    channel.job = id_;
    channel.job_key = key_;
    client::EngineConfig& engine = channel.engine;
    engine.rank = Rank{static_cast<uint8_t>(joined_++)};
    engine.workers = ranks_;
    engine.epoch = kEpoch;
    engine.window = spec_.window;
    engine.slot_bytes = spec_.value_bytes;
    engine.rules = {.policy = spec_.policy.kind,
                    .home = Home::kWorkers,
                    .ecn = spec_.congestion_window,
                    .aggregator_window = spec_.aggregator_window,
                    .rto_min_ns = spec_.rto_min_ns,
                    .rto_max_ns = spec_.rto_max_ns};
    engine.lossy_link = true;
    return channel;
  }

  void add_host(uint32_t host) { hosts_.push_back(host); }

  void begin() {
    switch_.bind(0, id_, key_, hosts_, ranks_);
    aggregator::JobSpec job;
    job.id = id_;
    job.epoch = kEpoch;
    job.workers = ranks_;
    job.window = spec_.window;
    job.joining = aggregator::Joining::of(
        spec_.window, 1, std::min(kJoiningPatienceNs, spec_.rto_min_ns / kJoiningPatiences));
    job.rules.home = Home::kWorkers;
    job.results = data(results_);
    job.seen = seen_.data();
    job.given = given_.data();
    switch_.add_job(0, job);
  }

  Switch& own_switch() { return switch_; }

 private:
  static aggregator::Shape shape_of(const PlanSpec& spec) {
    aggregator::Shape shape;
    shape.slots = spec.slots;
    shape.slot_bytes = spec.value_bytes;
    shape.max_jobs = 1;
    shape.burst = 1;
    shape.policy = spec.policy;
    return shape;
  }

  const PlanSpec& spec_;
  const uint32_t ranks_;
  const JobId id_;
  const uint64_t key_;
  Switch switch_;
  Lines results_;
  std::vector<WorkerSet> seen_;
  std::vector<aggregator::GivenResult> given_;
  uint32_t joined_ = 0;
  std::vector<uint32_t> hosts_;
};

class PlanRun final : public PlanListener {
 public:
  explicit PlanRun(const PlanSpec& spec);
  PlanOutcome run();

 private:
  static FabricSpec fabric_of(const PlanSpec& spec);
  void agreed() override;
  void finished() override;
  void violated(const std::string& text) override {
    if (outcome_.violations.size() < kMostViolations) outcome_.violations.push_back(text);
  }

  void make_groups();
  void make_ranks();
  size_t group_of(size_t channel, uint32_t rank) const;
  ns3net::LinkSpec link_of(size_t channel) const;
  void predict();
  void begin_round();
  bool gets_faster() const;
  void count_use(double sign);
  void sum_up();

  const PlanSpec spec_;
  const uint32_t ranks_;
  const size_t dimensions_;
  Fabric fabric_;
  std::vector<std::vector<std::unique_ptr<Group>>> groups_;  ///< by channel
  std::vector<std::unique_ptr<PlanRank>> all_;
  uint32_t round_ = 0;
  uint32_t working_ = 0;
  Nanos began_ns_ = 0;
  std::optional<Nanos> agreed_ns_;
  PlanOutcome outcome_;
};

FabricSpec PlanRun::fabric_of(const PlanSpec& spec) {
  FabricSpec fabric;
  fabric.wire_factor = spec.fragment_bytes / spec.value_bytes;
  fabric.links = spec.links;
  fabric.seed = spec.seed;
  return fabric;
}

PlanRun::PlanRun(const PlanSpec& spec)
    : spec_(checked(spec)),
      ranks_(static_cast<uint32_t>(spec_.topology.participants())),
      dimensions_(spec_.topology.dimensions.size()),
      fabric_(fabric_of(spec_)) {
  auto planned = need(themis::make_plan(
      spec_.topology, {{.collective = spec_.collective, .bytes = spec_.bytes}}, spec_.options));
  outcome_.predictions.by_kind_ps = planned.timeline.end_ps;
  outcome_.plan = std::move(planned.plan);
  predict();
  make_groups();
  make_ranks();
}

void PlanRun::predict() {
  themis::Plan plan = by_switches(outcome_.plan);
  plan.topology.window = spec_.window;
  outcome_.predictions.by_switches_ps = end_of(plan);
  for (const themis::Load& load : themis::loads_of(plan))
    outcome_.dimensions.push_back(
        {.model_tx_bytes = load.tx_bytes, .model_rx_bytes = load.rx_bytes});
}

void PlanRun::make_groups() {
  uint32_t number = 0;
  for (size_t channel = 0; channel <= dimensions_; ++channel) {
    const uint32_t size = channel == dimensions_ ? ranks_ : spec_.topology.dimensions[channel].size;
    groups_.emplace_back();
    for (uint32_t i = 0; i < ranks_ / size; ++i)
      groups_.back().push_back(std::make_unique<Group>(fabric_, spec_, number++, size));
  }
}

/// Which of a channel's groups a rank is in. They are numbered as their first ranks are.
size_t PlanRun::group_of(size_t channel, uint32_t rank) const {
  if (channel == dimensions_) return 0;
  uint32_t step = 1;
  for (size_t before = 0; before < channel; ++before)
    step *= spec_.topology.dimensions[before].size;
  return rank / (step * spec_.topology.dimensions[channel].size) * step + rank % step;
}

/// All ranks together are as far apart as those of the last dimension.
ns3net::LinkSpec PlanRun::link_of(size_t channel) const {
  const themis::Dimension& dimension =
      spec_.topology.dimensions[std::min(channel, dimensions_ - 1)];
  ns3net::LinkSpec link;
  link.rate_bps = dimension.bits_per_s;
  link.delay_ns = dimension.step_latency_ps / kPicosPerNano / 2;  // there and back are one step
  link.queue_bytes = spec_.queue_bytes;
  link.ecn_bytes = spec_.ecn_bytes;
  link.loss = spec_.loss;
  if (spec_.express) link.express_bytes = fabric_.wire_bytes(0);
  return link;
}

/// A dimension's groups have their ranks in the order of coordinates, which is that of numbers.
void PlanRun::make_ranks() {
  const auto plan = std::make_shared<const themis::Plan>(
      thinned(outcome_.plan, spec_.fragment_bytes / spec_.value_bytes));
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    std::vector<PlanChannel> channels;
    for (size_t channel = 0; channel <= dimensions_; ++channel)
      channels.push_back(groups_[channel][group_of(channel, rank)]->channel(link_of(channel)));
    all_.push_back(std::make_unique<PlanRank>(fabric_, plan, rank, channels, *this));
    for (size_t channel = 0; channel <= dimensions_; ++channel)
      groups_[channel][group_of(channel, rank)]->add_host(all_.back()->host(channel));
  }
  for (const auto& some : groups_)
    for (const auto& group : some) group->begin();
}

// ---- rounds

PlanOutcome PlanRun::run() {
  begin_round();
  fabric_.run(spec_.limit_ns);
  if (outcome_.rounds.size() < spec_.rounds)
    violated(fmt::format("only {} of {} rounds were done after {} s", outcome_.rounds.size(),
                         spec_.rounds, static_cast<double>(fabric_.now()) * 1e-9));
  sum_up();
  return std::move(outcome_);
}

void PlanRun::begin_round() {
  working_ = ranks_;
  began_ns_ = fabric_.now();
  agreed_ns_.reset();
  for (DimensionUse& use : outcome_.dimensions) use.tx_wire_bytes = use.rx_wire_bytes = 0;
  count_use(-1);
  for (const auto& rank : all_) rank->start(round_);
}

void PlanRun::agreed() {
  if (!agreed_ns_) agreed_ns_ = fabric_.now();
}

void PlanRun::finished() {
  if (--working_ != 0) return;
  outcome_.rounds.push_back({*agreed_ns_ - began_ns_, fabric_.now() - *agreed_ns_});
  if (++round_ < spec_.rounds || gets_faster()) return begin_round();
  count_use(1);
  fabric_.stop();
}

/// By more than a thousandth.
bool PlanRun::gets_faster() const {
  if (round_ < 2 || round_ >= spec_.most_rounds) return false;
  const Nanos before = outcome_.rounds[round_ - 2].took_ns;
  return outcome_.rounds[round_ - 1].took_ns < before - before / 1000;
}

void PlanRun::count_use(double sign) {
  for (size_t d = 0; d < dimensions_; ++d)
    for (const auto& rank : all_) {
      const auto [up, down] = fabric_.counters(rank->host(d));
      outcome_.dimensions[d].tx_wire_bytes += sign * static_cast<double>(up.wire_bytes) / ranks_;
      outcome_.dimensions[d].rx_wire_bytes += sign * static_cast<double>(down.wire_bytes) / ranks_;
    }
}

// ---- the end

void PlanRun::sum_up() {
  for (const auto& rank : all_) {
    outcome_.elements_checked += rank->elements_checked();
    for (size_t channel = 0; channel < rank->channels(); ++channel) {
      const client::Engine& engine = rank->engine(channel);
      outcome_.queries += engine.counters().queries;
      outcome_.resent += engine.counters().fragments_resent;
      outcome_.by_fallback += engine.counters().results_from_fallback;
      if (engine.mismatch()) violated("an engine saw ranks that disagree");
      const auto [up, down] = fabric_.counters(rank->host(channel));
      for (const ns3net::LinkCounters& link : {up, down}) {
        outcome_.queue_drops += link.queue_drops;
        outcome_.losses += link.losses;
        outcome_.marks += link.marks;
      }
    }
  }
  for (const auto& some : groups_)
    for (const auto& group : some) {
      Switch& own = group->own_switch();
      outcome_.bypassed += own.aggregator().counters().bypassed;
      if (own.mismatches() != 0) violated("a switch saw ranks that disagree");
      if (const std::string problem = own.problem_of_ledger(); !problem.empty()) violated(problem);
    }
  outcome_.wire_bytes = fabric_.wire_bytes_sent();
  outcome_.frames = fabric_.frames_sent();
  outcome_.events = fabric_.events();
}

}  // namespace

double PlanOutcome::beyond(themis::Picos predicted_ps) const {
  if (rounds.empty() || predicted_ps == 0) return 0;
  return static_cast<double>(rounds.back().took_ns * kPicosPerNano) /
             static_cast<double>(predicted_ps) -
         1;
}

themis::Plan by_switches(const themis::Plan& plan) {
  themis::Plan made = plan;
  made.topology = themis::carried_by_switches(std::move(made.topology));
  for (themis::Chunk& chunk : made.chunks)
    for (themis::Stage& stage : chunk.stages) {
      const bool aggregates =
          themis::can_aggregate(made.topology.dimensions[stage.dimension], stage.phase);
      stage = themis::make_stage(made.topology, stage.dimension, stage.phase, aggregates,
                                 stage.held_bytes, stage.piece_bytes);
    }
  return made;
}

PlanOutcome run_plan(const PlanSpec& spec) {
  return PlanRun(spec).run();
}

}  // namespace ina::sim
