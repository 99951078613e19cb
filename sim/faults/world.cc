#include "sim/faults/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <tuple>
#include <utility>

#include "engine/rank_order.h"
#include "engine/redistributions.h"
#include "engine/reproducible.h"
#include "sim/faults/hierarchy.h"
#include "sim/faults/redistribution.h"
#include "sim/faults/reproducible.h"
#include "wire/rules.h"

namespace ina::sim {

namespace {

constexpr Nanos kMs = 1'000'000;
// Once the network is perfect everything must be over by then.
constexpr Nanos kLivenessLimit = 60'000 * kMs;
constexpr Nanos kMismatchLimit = 2'000 * kMs;
constexpr uint64_t kStepLimit = 20'000'000;
constexpr size_t kScratchBytes = 1 << 20;

struct PlainCopier {
  void copy(std::span<const client::CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

struct alignas(64) Line {
  std::byte bytes[64];
};
using Lines = std::vector<Line>;

std::byte* data(Lines& lines) {
  return reinterpret_cast<std::byte*>(lines.data());
}

}  // namespace

struct World::Worker {
  Job* job = nullptr;
  Rank rank{};
  uint32_t host = 0;
  std::unique_ptr<client::Engine> engine;
  std::unique_ptr<client::EngineChannel> channel;
  std::unique_ptr<client::Executor> executor;
  std::unique_ptr<client::Redistributions> redistributions;
  std::unique_ptr<client::Reproducible> reproducible;
  std::unique_ptr<client::RankOrder> rank_order;
  std::unique_ptr<io::sim::SimTransport> transport;
  Nanos paused_until = 0;
  Nanos submit_at = 0;
  Nanos rejoin_at = INT64_MAX;
  struct Running {
    size_t plan;
    client::Operation* operation;
    std::vector<std::byte> send, recv;
    Nanos held_until = 0;  ///< 0: not held
  };
  std::list<Running> running;
  size_t next_plan = 0;
  std::vector<std::vector<std::byte>> got;      ///< results, by plan
  const HierarchyRank* hierarchical = nullptr;  ///< of which this is one channel; or none
  size_t hierarchical_channel = 0;
  bool due = false;  ///< there is something to send, from another channel's doing

  bool done() const;
  /// The next time at which a held operation may go.
  Nanos release_at() const;
  bool gone() const { return !rule(Rule::kLeaveBarrier) && done(); }
};

struct World::Job {
  uint32_t index = 0;
  JobPlan config;
  uint32_t window = 0;
  JobId id{};
  uint64_t key = 0;
  uint32_t epoch = 1;
  uint32_t instance = 0;
  uint32_t fallback_host = 0;
  std::vector<PlannedOperation> plans;
  size_t deviating_plan = SIZE_MAX;  ///< which `deviant` has another idea of
  Rank deviant{};
  PlannedOperation deviation;
  std::mt19937_64 random;  ///< with collectives: without, dice fall as they did before these
  bool dices() const {
    return !config.collectives.empty() || config.redistributions != 0 || config.reproducible != 0;
  }
  std::vector<Worker> workers;
  Lines results;
  std::vector<std::vector<Bitmap>> seen;                         ///< by lane
  std::vector<std::vector<uint8_t>> parked_at;                   ///< by lane
  std::vector<std::vector<aggregator::GivenResult>> given;       ///< by lane
  std::vector<std::unique_ptr<aggregator::Fallback>> fallbacks;  ///< spill: by lane; dedicated: one
  std::vector<std::unique_ptr<aggregator::Fallback>> old_lives;  ///< for their counters
  std::unique_ptr<io::sim::SimTransport> fallback_transport;     ///< dedicated
  Nanos fallback_down_until = 0;
  std::vector<bool> given_out;  ///< by fragment: whether its result was, to any worker
};

/// The ranks of a hierarchy, which are workers of several jobs.
struct World::Hierarchy {
  HierarchyPlan config;
  std::vector<PlannedGroup> groups;
  std::vector<std::unique_ptr<HierarchyRank>> ranks;
  std::vector<std::vector<Worker*>> workers;  ///< of each rank, by channel
};

struct World::Lane {
  Lane(io::sim::SimNetwork& network, uint32_t host, uint32_t slot_bytes)
      : port(network, host, slot_bytes) {}
  io::sim::SimPort port;
  Lines rows;
  std::unique_ptr<aggregator::Aggregator> aggregator;
  std::vector<std::vector<io::EndpointIndex>> endpoints;  ///< by job and rank; the last: fallback
  uint64_t port_packets_before = 0;  ///< of the port, before this life of the switch
  uint64_t port_drops_before = 0;
};

bool World::Worker::done() const {
  return running.empty() && next_plan == job->plans.size() &&
         (!hierarchical || hierarchical->done());
}

Nanos World::Worker::release_at() const {
  Nanos at = INT64_MAX;
  for (const Running& operation : running)
    if (operation.held_until != 0) at = std::min(at, operation.held_until);
  return at;
}

World::World(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed ^ 0x5eed5eed),
      network_(scenario.seed, scenario.faults,
               scenario.lanes + scenario.workers() + static_cast<uint32_t>(scenario.jobs.size())) {
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane)
    lanes_.push_back(std::make_unique<Lane>(network_, lane, scenario_.slot_bytes));
  make_lanes();
  uint32_t host = scenario_.lanes;
  for (const JobPlan& config : scenario_.jobs) {
    auto job = std::make_unique<Job>();
    job->index = static_cast<uint32_t>(jobs_.size());
    job->config = config;
    job->window = (config.window + scenario_.lanes - 1) / scenario_.lanes * scenario_.lanes;
    job->workers.resize(config.workers);
    for (uint32_t rank = 0; rank < config.workers; ++rank) {
      Worker& worker = job->workers[rank];
      worker.job = job.get();
      worker.rank = Rank{static_cast<uint8_t>(rank)};
      worker.host = host++;
    }
    jobs_.push_back(std::move(job));
  }
  for (auto& job : jobs_) {
    job->fallback_host = host++;
    plan(*job);
    if (scenario_.mismatch && job->index == 0) deviate(*job);
    start_job(*job);
  }
  make_hierarchies();
}

World::~World() = default;

void World::make_hierarchies() {
  for (const HierarchyPlan& config : scenario_.hierarchies) {
    Hierarchy& made = *hierarchies_.emplace_back(std::make_unique<Hierarchy>());
    made.config = config;
    std::mt19937_64 random(scenario_.seed ^ 0x41e7a7c4 ^ uint64_t{config.first_job} << 32);
    made.groups = draw_groups(random, config, scenario_.slot_bytes);
    const uint32_t ranks = scenario_.jobs[config.first_job + config.jobs - 1].workers;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      made.ranks.push_back(std::make_unique<HierarchyRank>(config, made.groups, rank,
                                                           scenario_.slot_bytes, random()));
      auto& workers = made.workers.emplace_back();
      for (size_t channel = 0; channel <= config.sizes.size(); ++channel) {
        const ChannelPlace at = channel_place(config, channel, rank);
        Worker& worker = jobs_[config.first_job + at.job]->workers[at.place];
        worker.hierarchical = made.ranks.back().get();
        worker.hierarchical_channel = channel;
        workers.push_back(&worker);
      }
    }
    start_hierarchy(made);
  }
}

void World::start_hierarchy(Hierarchy& hierarchy) {
  for (size_t rank = 0; rank < hierarchy.ranks.size(); ++rank) {
    std::vector<std::pair<client::Engine*, bool*>> engines;
    for (Worker* const worker : hierarchy.workers[rank])
      engines.emplace_back(worker->engine.get(), &worker->due);
    hierarchy.ranks[rank]->begin(engines, network_.now());
  }
}

/// Its ranks end, and others take their places: those of all its jobs, if it is a hierarchy's.
void World::restart_job(Job& job) {
  const auto of = std::ranges::find_if(hierarchies_, [&](const auto& hierarchy) {
    const HierarchyPlan& config = hierarchy->config;
    return job.index >= config.first_job && job.index < config.first_job + config.jobs;
  });
  if (of == hierarchies_.end()) return start_job(job);
  Hierarchy& hierarchy = **of;
  for (const auto& rank : hierarchy.ranks) rank->stop();
  for (uint32_t i = 0; i < hierarchy.config.jobs; ++i)
    start_job(*jobs_[hierarchy.config.first_job + i]);
  start_hierarchy(hierarchy);
}

void World::make_lanes() {
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    aggregator::Shape shape;
    shape.slots = std::max(1u, scenario_.slots / scenario_.lanes);
    shape.slot_bytes = scenario_.slot_bytes;
    shape.max_jobs = static_cast<uint32_t>(scenario_.jobs.size());
    shape.burst = 16;
    shape.lanes = scenario_.lanes;
    shape.lane = lane;
    shape.policy = scenario_.policy;
    Lane& l = *lanes_[lane];
    l.rows.resize(aggregator::Aggregator::row_memory_bytes(shape) / sizeof(Line) + 1);
    l.aggregator = std::make_unique<aggregator::Aggregator>(
        shape, std::span(data(l.rows), l.rows.size() * sizeof(Line)));
    l.endpoints.resize(shape.max_jobs);
  }
}

void World::plan(Job& job) {
  const OperationLimits limits{job.config.workers, job.config.max_fragments, scenario_.slot_bytes,
                               scenario_.floats_only, scenario_.broken_plans};
  job.random.seed(scenario_.seed ^ 0xc011ec7 ^ uint64_t{job.index} << 32);
  for (uint32_t i = 0; i < job.config.operations; ++i) {
    job.plans.push_back(draw(job, limits));
    if (const auto& beyond = job.plans.back().beyond_memory)
      violate(fmt::format("memory: job {} operation {}: {}", job.index, i, *beyond));
  }
}

PlannedOperation World::draw(Job& job, const OperationLimits& limits) {
  const auto& collectives = job.config.collectives;
  if (job.config.redistributions != 0 && job.random() % 100 < job.config.redistributions)
    return draw_redistribution(job.random, limits);
  if (job.config.reproducible != 0 && job.random() % 100 < job.config.reproducible)
    return draw_reproducible(job.random, limits);
  if (collectives.empty()) return draw_allreduce(random_, limits);
  return draw_operation(job.random, collectives[job.random() % collectives.size()], limits);
}

/// One worker calls something else in one operation.
void World::deviate(Job& job) {
  const OperationLimits limits{job.config.workers, job.config.max_fragments, scenario_.slot_bytes,
                               scenario_.floats_only};
  std::mt19937_64 random(scenario_.seed ^ 0xde71a7e);
  const std::vector<Collective> collectives = all_collectives();
  job.deviating_plan = random() % job.plans.size();
  job.deviant = Rank{static_cast<uint8_t>(random() % job.config.workers)};
  const PlannedOperation& plan = job.plans[job.deviating_plan];
  if (plan.redistribution) {
    do {
      job.deviation = draw_redistribution(random, limits);
    } while (job.deviation.redistribution->hash() == plan.redistribution->hash());
    return;
  }
  do {
    const bool same = random() % 2 == 0;  // of another root, or of other sizes
    job.deviation = draw_operation(
        random, same ? plan.collective : collectives[random() % collectives.size()], limits);
  } while (job.deviation.collective == plan.collective && job.deviation.dtype == plan.dtype &&
           job.deviation.op == plan.op && job.deviation.elements == plan.elements &&
           (plan.elements == 0 || plan.tables.empty()));
}

const PlannedOperation& World::plan_of(const Worker& worker, size_t plan) const {
  const Job& job = *worker.job;
  return plan == job.deviating_plan && worker.rank == job.deviant ? job.deviation : job.plans[plan];
}

/// Whether somebody sees that job 0's workers disagree.
bool World::knows_of_mismatch() const {
  const Job& job = *jobs_[0];
  const auto sees = [](const auto& fallback) { return fallback && fallback->mismatch(); };
  return switch_sees_mismatch_ || std::ranges::any_of(job.fallbacks, sees) ||
         std::ranges::any_of(job.workers, [](const Worker& worker) {
           return worker.engine->mismatch().has_value() ||
                  !worker.redistributions->disagreement().empty();
         });
}

/// A new life of the job, under a new identity, from its first operation on.
void World::start_job(Job& job) {
  job.id = JobId{next_id_++};
  job.key = random_();
  job.epoch = 1;
  job.instance = 0;
  job.results.assign(2 * size_t{job.window} * scenario_.slot_bytes / sizeof(Line) + 1, {});
  job.fallback_down_until = 0;
  job.given_out.clear();
  for (Worker& worker : job.workers) {
    make_engine(worker);
    worker.transport = std::make_unique<io::sim::SimTransport>(network_, worker.host, job.id,
                                                               job.key, scenario_.slot_bytes);
    worker.next_plan = 0;
    worker.submit_at = network_.now();
    worker.rejoin_at = INT64_MAX;
    worker.got.assign(job.plans.size(), {});
  }
  for (auto& life : job.fallbacks) job.old_lives.push_back(std::move(life));
  job.fallbacks.clear();
  if (scenario_.home == Home::kDedicated) {
    job.fallbacks.push_back(make_fallback(job, 1, 0));
    job.fallback_transport = std::make_unique<io::sim::SimTransport>(
        network_, job.fallback_host, job.id, job.key, scenario_.slot_bytes);
  } else if (scenario_.home == Home::kSpill) {
    for (uint32_t lane = 0; lane < scenario_.lanes; ++lane)
      job.fallbacks.push_back(make_fallback(job, scenario_.lanes, lane));
  }
  for (auto& lane : lanes_) {
    auto& endpoints = lane->endpoints[job.index];
    for (const io::EndpointIndex endpoint : endpoints) lane->port.unbind(endpoint);
    endpoints.clear();
    const auto index = static_cast<io::JobIndex>(job.index);
    for (const Worker& worker : job.workers)
      endpoints.push_back(lane->port.bind(worker.host, job.id, job.key, index, worker.rank));
    endpoints.push_back(lane->port.bind(job.fallback_host, job.id, job.key, index, kFallbackRank));
  }
  add_to_lanes(job);
}

client::EngineConfig World::engine_config(const Worker& worker) const {
  const Job& job = *worker.job;
  client::EngineConfig config;
  config.rank = worker.rank;
  config.workers = job.config.workers;
  config.epoch = job.epoch;
  config.window = job.window;
  config.slot_bytes = scenario_.slot_bytes;
  config.lanes = scenario_.lanes;
  config.fixed_slots = !scheduler::traits(scenario_.policy.kind).hashed;
  config.home = scenario_.home;
  config.aggregator_window = job.config.aggregator_window;
  config.lossy_link = job.config.lossy_link;
  config.in_switch = job.config.in_switch;
  config.park_room = job.config.park_room;
  config.rto_min_ns = scenario_.rto_min_ns;
  config.rto_max_ns = 5 * kMs;
  return config;
}

void World::make_engine(Worker& worker) {
  const client::EngineConfig config = engine_config(worker);
  const Job& job = *worker.job;
  worker.running.clear();
  worker.redistributions.reset();
  worker.reproducible.reset();
  worker.rank_order.reset();
  worker.executor.reset();
  worker.engine = std::make_unique<client::Engine>(config);
  worker.channel = std::make_unique<client::EngineChannel>(*worker.engine);
  client::Channel* const channels[] = {worker.channel.get()};
  worker.executor = std::make_unique<client::Executor>(channels, kScratchBytes);
  worker.redistributions = std::make_unique<client::Redistributions>(
      *worker.executor, redistribution::Job{worker.rank, scenario_.slot_bytes});
  if (job.config.reproducible == 0) return;
  worker.reproducible = std::make_unique<client::Reproducible>(
      *worker.executor,
      client::Reproducible::Job{job.config.workers, worker.rank, scenario_.slot_bytes});
  worker.rank_order = std::make_unique<client::RankOrder>(
      *worker.executor, client::RankOrder::Job{job.config.workers, worker.rank,
                                               scenario_.slot_bytes, job.config.chunk_bytes});
}

std::unique_ptr<aggregator::Fallback> World::make_fallback(const Job& job, uint32_t shards,
                                                           uint32_t shard) const {
  aggregator::FallbackConfig config;
  config.workers = job.config.workers;
  config.window = job.window;
  config.slot_bytes = scenario_.slot_bytes;
  config.lanes = scenario_.lanes;
  config.shards = shards;
  config.shard = shard;
  config.instance = job.instance;
  config.epoch = job.epoch;
  config.min_epoch = rule(Rule::kEpochBump) ? job.epoch : 0;
  config.start = results_end(job);
  config.bind_at_once = !scheduler::traits(scenario_.policy.kind).hashed;
  return std::make_unique<aggregator::Fallback>(config);
}

Seq World::results_end(const Job& job) const {
  Seq end;
  for (const Worker& worker : job.workers)
    if (worker.engine) end = std::max(end, worker.engine->standing().results_end);
  return end;
}

void World::add_to_lanes(Job& job) {
  job.seen.assign(scenario_.lanes, {});
  job.parked_at.assign(scenario_.lanes, {});
  job.given.assign(scenario_.lanes, {});
  uint32_t first_slot = 0;  // static: pools one after the other
  for (const auto& other : jobs_)
    if (other->index < job.index) first_slot += 2 * other->window / scenario_.lanes;
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    const size_t words = aggregator::JobSpec::seen_words(job.window, scenario_.lanes);
    job.seen[lane].assign(words, 0);
    job.parked_at[lane].assign(words, 0);
    aggregator::JobSpec spec;
    spec.id = job.id;
    spec.epoch = job.epoch;
    spec.workers = job.config.workers;
    spec.window = job.window;
    spec.start = results_end(job);
    spec.rejoined = job.epoch > 1;
    spec.pool = {first_slot, 2 * job.window / scenario_.lanes, scenario_.lanes, lane};
    if (scheduler::traits(scenario_.policy.kind).hashed) {
      spec.park_after = job.config.park_after;
      spec.park_pressure = job.config.park_pressure;
      spec.park_patience = job.config.park_patience;
      spec.park_window = job.config.in_switch;
      spec.park_if_it_pays = job.config.park_if_it_pays;
      if (job.config.park_after != 0) spec.parked_at = job.parked_at[lane].data();
      spec.park_room = job.config.park_room;
      spec.quota.floor = job.config.quota.floor / scenario_.lanes;
      if (job.config.quota.ceiling != UINT32_MAX)
        spec.quota.ceiling = std::max(1u, job.config.quota.ceiling / scenario_.lanes);
    }
    spec.joining = aggregator::Joining::of(
        job.config.in_switch == 0 ? job.window : std::min(job.window, job.config.in_switch),
        scenario_.lanes, job.config.join_patience);
    spec.park_home = scenario_.home == Home::kWorkers && job.config.park_room % 2 == 1;
    spec.home = scenario_.home;
    spec.instance = job.instance;
    spec.results = data(job.results);
    spec.seen = job.seen[lane].data();
    if (scheduler::traits(scenario_.policy.kind).hashed) {
      job.given[lane].assign(words, aggregator::GivenResult{});
      spec.given = job.given[lane].data();
    }
    if (scenario_.home == Home::kSpill) spec.spill = job.fallbacks[lane].get();
    lanes_[lane]->aggregator->remove_job(static_cast<io::JobIndex>(job.index));
    lanes_[lane]->aggregator->add_job(static_cast<io::JobIndex>(job.index), spec);
  }
}

// ---- events

void World::violate(const std::string& text) {
  if (outcome_.violations.size() < 8) outcome_.violations.push_back(text);
}

void World::restart_switch(const Event& event) {
  ++outcome_.restarts;
  check();
  if (event.policy) scenario_.policy.kind = *event.policy;
  make_lanes();
  for (auto& lane : lanes_) {
    lane->port_packets_before = lane->port.counters().rx_packets;
    lane->port_drops_before = 0;
    for (const uint64_t count : lane->port.counters().drops.count) lane->port_drops_before += count;
  }
  switch_down_until_ = network_.now() + event.length_ns;
  for (auto& job : jobs_) {
    ++job->epoch;
    if (scenario_.home == Home::kSpill) {
      ++job->instance;
      for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
        job->old_lives.push_back(std::move(job->fallbacks[lane]));
        job->fallbacks[lane] = make_fallback(*job, scenario_.lanes, lane);
      }
    } else if (scenario_.home == Home::kDedicated) {
      job->fallbacks[0]->set_epoch(job->epoch);
      job->fallbacks[0]->set_bind_at_once(!scheduler::traits(scenario_.policy.kind).hashed);
    }
    std::fill(job->results.begin(), job->results.end(), Line{});
    add_to_lanes(*job);
    if (event.policy) {  // they hear of it before the switch serves anybody
      for (Worker& worker : job->workers) come_back(worker);
      continue;
    }
    // Half of the workers are told, each at its own time; the others hear it from a STALE.
    for (Worker& worker : job->workers)
      if (random_() % 2 == 0)
        worker.rejoin_at = switch_down_until_ + static_cast<Nanos>(random_() % (5 * kMs));
  }
}

void World::come_back(Worker& worker) {
  worker.rejoin_at = INT64_MAX;
  worker.engine->rejoin(engine_config(worker), network_.now());
}

void World::restart_fallback(Job& job, Nanos down_ns) {
  if (scenario_.home == Home::kWorkers) return;
  ++outcome_.restarts;
  ++job.instance;
  if (rule(Rule::kEpochBump)) ++job.epoch;
  for (auto& life : job.fallbacks) job.old_lives.push_back(std::move(life));
  const bool spill = scenario_.home == Home::kSpill;
  for (uint32_t shard = 0; shard < job.fallbacks.size(); ++shard)
    job.fallbacks[shard] = make_fallback(job, spill ? scenario_.lanes : 1, shard);
  if (!spill) job.fallback_down_until = network_.now() + down_ns;
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    aggregator::Fallback* fallback = spill ? job.fallbacks[lane].get() : nullptr;
    lanes_[lane]->aggregator->new_epoch(static_cast<io::JobIndex>(job.index), job.epoch,
                                        job.instance, fallback);
  }
}

void World::happen(const Event& event) {
  Job& job = *jobs_[event.job];
  Worker& worker = job.workers[event.worker];
  const Nanos until = network_.now() + event.length_ns;
  switch (event.kind) {
    case Event::Kind::kSwitchRestart:
      return restart_switch(event);
    case Event::Kind::kFallbackRestart:
      return restart_fallback(job, event.length_ns);
    case Event::Kind::kPauseWorker:
      worker.paused_until = until;
      return;
    case Event::Kind::kCut:
      for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
        if (event.direction != 2) network_.cut(worker.host, lane, until);
        if (event.direction != 1) network_.cut(lane, worker.host, until);
      }
      return;
    case Event::Kind::kKillJob:
      ++outcome_.restarts;
      return restart_job(job);
  }
}

// ---- a step

void World::serve_lanes() {
  io::RxPacket packets[16];
  aggregator::Verdict verdicts[16];
  for (uint32_t i = 0; i < scenario_.lanes; ++i) {
    if (network_.now() < switch_down_until_) {
      network_.discard(i);
      continue;
    }
    Lane& lane = *lanes_[i];
    const auto send = [&](io::JobIndex job, Rank rank, const aggregator::Emission& emission) {
      const auto& endpoints = lane.endpoints[job];
      const size_t at = rank == kFallbackRank ? endpoints.size() - 1 : value(rank);
      wire::Message message = emission.message;
      if (message.type == wire::Type::kResult)
        given_out_.push_back(
            {jobs_[job].get(), lane.aggregator->seq_of(job, message.seq), message});
      if (scenario_.ecn && random_() % 32 == 0) message.flags |= wire::kFlagEcn;
      lane.port.tx(endpoints[at], message, {emission.payload, emission.payload_bytes});
    };
    const auto mismatch = [&](const io::RxPacket& packet, const aggregator::Verdict&) {
      if (scenario_.mismatch && packet.job == 0)
        switch_sees_mismatch_ = true;
      else
        violate(fmt::format("I1: the switch sees a mismatch at seq {}", packet.message.seq));
    };
    while (aggregator::serve(lane.port, *lane.aggregator, packets, verdicts, network_.now(), send,
                             mismatch)) {
      check_given_out();
      check_quotas(*lane.aggregator);
    }
    if (lane.aggregator->parking())
      aggregator::park_overdue(*lane.aggregator, verdicts[0], 16, network_.now(), send);
    if (network_.now() >= lane.aggregator->bare_results().due())
      aggregator::send_bare_results(*lane.aggregator, network_.now(), send);
    check_given_out();
    check_quotas(*lane.aggregator);
  }
}

void World::serve_fallbacks() {
  if (scenario_.home != Home::kDedicated) return;
  for (auto& job : jobs_) {
    if (network_.now() < job->fallback_down_until) {
      network_.discard(job->fallback_host);
      continue;
    }
    if (!network_.has_frame(job->fallback_host) && !job->fallbacks[0]->has_output()) continue;
    client::RxPacket received[16];
    while (const size_t count = job->fallback_transport->rx_burst(received)) {
      for (size_t i = 0; i < count; ++i)
        job->fallbacks[0]->on_message(received[i].message, received[i].payload);
      job->fallback_transport->rx_release();
    }
    wire::Outgoing to_send[16];
    while (const size_t count = job->fallbacks[0]->prepare(to_send)) {
      job->fallback_transport->tx_burst(std::span(to_send, count));
      job->fallbacks[0]->sent(count);
    }
  }
}

/// Of what is moved, those who agree may have their bytes before it turns out that not all do;
/// never of a sum.
void World::check_deviation(const Worker& worker, size_t operation) {
  const Job& job = *worker.job;
  if (operation != job.deviating_plan) return;
  const uint32_t rank = value(worker.rank);
  const PlannedOperation& plan = plan_of(worker, operation);
  if (!is_moved(plan.collective) || plan.redistribution || plan.wrong(rank, worker.got[operation]))
    violate(fmt::format("I1: rank {} completes operation {} ({}), rank {} called {}", rank,
                        operation, name(plan.collective), value(job.deviant),
                        name(job.deviation.collective)));
}

void World::submit_more(Worker& worker) {
  const Nanos now = network_.now();
  for (auto running = worker.running.begin(); running != worker.running.end();) {
    if (!running->operation->done) {
      ++running;
      continue;
    }
    const PlannedOperation& plan = plan_of(worker, running->plan);
    if (plan.redistribution) {
      worker.redistributions->release(running->operation);
      outcome_.redistributions += value(worker.rank) == 0;
    } else if (plan.reproducible) {
      if (!worker.executor->release(running->operation)) worker.engine->release(running->operation);
      outcome_.reproducible += value(worker.rank) == 0;
    } else {
      worker.engine->release(running->operation);
    }
    worker.got[running->plan] = plan.in_place ? running->send : running->recv;
    check_deviation(worker, running->plan);
    if (!plan.in_place && running->send != plan.inputs[value(worker.rank)])
      violate(fmt::format("I1: job {} operation {}: the input of rank {} was written to",
                          worker.job->index, running->plan, value(worker.rank)));
    // The buffers are the user's again, who writes to them at once.
    std::fill(running->send.begin(), running->send.end(), std::byte{0xee});
    std::fill(running->recv.begin(), running->recv.end(), std::byte{0xee});
    running = worker.running.erase(running);
    if (worker.job->config.think_ns != 0)
      worker.submit_at =
          now +
          static_cast<Nanos>(random_() % static_cast<uint64_t>(2 * worker.job->config.think_ns));
  }
  while (worker.next_plan < worker.job->plans.size() && now >= worker.submit_at &&
         worker.running.size() < worker.job->config.depth) {
    const PlannedOperation& plan = plan_of(worker, worker.next_plan);
    start(worker, plan);
  }
}

void World::start(Worker& worker, const PlannedOperation& plan) {
  const Nanos now = network_.now();
  const uint32_t rank = value(worker.rank);
  worker.running.push_back({worker.next_plan++, nullptr, plan.inputs[rank], plan.fresh_recv(rank),
                            plan.redistribution || plan.reproducible ? 0 : hold(worker)});
  Worker::Running& r = worker.running.back();
  if (plan.redistribution) {
    r.operation = worker.redistributions->start(plan.redistribution, redistributed(r.send), now);
    return;
  }
  client::OperationSpec spec;
  spec.send = r.send.data();
  spec.recv = plan.in_place ? r.send.data() : r.recv.data();
  spec.elements = plan.elements;
  spec.dtype = plan.dtype;
  spec.op = plan.op;
  spec.collective = plan.collective;
  if (!plan.tables.empty()) spec.blocks = plan.tables[rank];
  spec.held = r.held_until != 0;
  r.operation =
      plan.reproducible ? start_reproducible(worker, spec) : worker.engine->submit(spec, now);
}

/// As Context::submit() does.
client::Operation* World::start_reproducible(Worker& worker, const client::OperationSpec& spec) {
  const Nanos now = network_.now();
  if (spec.elements != 0 && client::RankOrder::handles(spec, worker.job->config.workers))
    return worker.rank_order->start(spec, now);
  if (spec.elements != 0 && client::Reproducible::handles(spec))
    return worker.reproducible->start(spec, now);
  return worker.engine->submit(spec, now);
}

/// Until when the worker's next operation waits for its input; 0: it does not.
Nanos World::hold(Worker& worker) {
  Job& job = *worker.job;
  if (!job.dices() || job.random() % 8 != 0) return 0;
  return network_.now() + 1 + static_cast<Nanos>(job.random() % kMs);
}

void World::release_held(Worker& worker) {
  for (Worker::Running& running : worker.running) {
    if (running.held_until == 0 || running.held_until > network_.now()) continue;
    running.held_until = 0;
    worker.engine->release_hold(running.operation, running.send.data(),
                                plan_of(worker, running.plan).elements);
  }
}

/// Of so many packets the transport takes a prefix.
size_t World::taken(Job& job, size_t packets) {
  if (!job.dices() || job.random() % 8 != 0) return packets;
  return 1 + job.random() % packets;
}

void World::step(Worker& worker) {
  const Nanos now = network_.now();
  worker.due = false;
  if (now >= worker.rejoin_at) come_back(worker);
  PlainCopier copier;
  client::RxPacket received[16];
  while (const size_t count = worker.transport->rx_burst(received)) {
    worker.engine->on_packets(std::span(received, count), now, copier);
    worker.transport->rx_release();
  }
  submit_more(worker);
  release_held(worker);
  client::TxPacket to_send[16];
  while (const size_t count = worker.engine->prepare(to_send, now)) {
    const size_t sent = taken(*worker.job, count);
    worker.transport->tx_burst(std::span(to_send, sent));
    worker.engine->sent(sent, now);
  }
}

void World::step_hierarchies() {
  for (const auto& hierarchy : hierarchies_)
    for (const auto& rank : hierarchy->ranks) {
      const uint64_t completed = rank->completed();
      rank->step(network_.now());
      if (rank == hierarchy->ranks.front()) outcome_.hierarchical += rank->completed() - completed;
      for (const std::string& text : rank->take_violations()) violate(text);
    }
}

void World::step_workers() {
  const Nanos now = network_.now();
  step_hierarchies();
  for (auto& job : jobs_) {
    for (Worker& worker : job->workers) {
      if (worker.gone()) {
        network_.discard(worker.host);
        continue;
      }
      if (now < worker.paused_until) continue;
      const bool submits = now >= worker.submit_at && worker.next_plan < job->plans.size() &&
                           worker.running.size() < job->config.depth;
      if (network_.has_frame(worker.host) || now >= worker.engine->next_deadline() || submits ||
          now >= worker.rejoin_at || now >= worker.release_at() || worker.engine->has_answers() ||
          worker.due)
        step(worker);
    }
  }
  // What ends on one channel lets something go on another.
  for (bool any = !hierarchies_.empty(); std::exchange(any, false);) {
    step_hierarchies();
    for (const auto& hierarchy : hierarchies_)
      for (const auto& workers : hierarchy->workers)
        for (Worker* const worker : workers) {
          if (!worker->due || now < worker->paused_until || worker->gone()) continue;
          step(*worker);
          any = true;
        }
  }
}

Nanos World::next_time() const {
  const Nanos now = network_.now();
  Nanos next = now + 1000 * kMs;
  const auto consider = [&](Nanos time) {
    if (time > now) next = std::min(next, time);
  };
  if (next_event_ < scenario_.events.size()) consider(scenario_.events[next_event_].at);
  consider(scenario_.faults_end_ns);
  consider(switch_down_until_);
  for (const auto& lane : lanes_) consider(lane->aggregator->bare_results().due());
  for (const auto& job : jobs_) {
    consider(job->fallback_down_until);
    for (const Worker& worker : job->workers) {
      if (worker.gone()) continue;
      if (worker.paused_until > now) {
        consider(worker.paused_until);
        continue;
      }
      consider(worker.engine->next_deadline());
      consider(worker.rejoin_at);
      consider(worker.release_at());
      if (worker.next_plan < job->plans.size()) consider(worker.submit_at);
    }
  }
  for (const auto& hierarchy : hierarchies_)
    for (const auto& rank : hierarchy->ranks) consider(rank->starts_at());
  return next;
}

bool World::done() const {
  for (const auto& job : jobs_)
    for (const Worker& worker : job->workers)
      if (!worker.done()) return false;
  return true;
}

Outcome World::run() {
  bool faults = true;
  uint64_t steps = 0;
  const Nanos limit = (scenario_.faults_end_ns == INT64_MAX ? 0 : scenario_.faults_end_ns) +
                      (scenario_.mismatch ? kMismatchLimit : kLivenessLimit);
  // What is still under way at the end must not disturb anything.
  while (!done() || !network_.quiet()) {
    if (scenario_.mismatch && knows_of_mismatch()) break;
    if (network_.now() > limit || ++steps > kStepLimit) {
      std::string text = "I3: no end;";
      for (const auto& job : jobs_)
        for (const Worker& worker : job->workers)
          if (!worker.done())
            text += fmt::format(" job {} rank {} waits at {} (next {}, epoch {}/{})", job->index,
                                value(worker.rank), worker.engine->standing().low.value,
                                worker.engine->standing().next.value, worker.engine->config().epoch,
                                job->epoch);
      if (scenario_.mismatch) {
        const Job& job = *jobs_[0];
        const PlannedOperation& plan = job.plans[job.deviating_plan];
        text +=
            fmt::format("; rank {} called {} of {} elements, the others {} of {} in operation {}",
                        value(job.deviant), name(job.deviation.collective), job.deviation.elements,
                        name(plan.collective), plan.elements, job.deviating_plan);
      }
      violate(text);
      for (auto& lane : lanes_) {
        std::string drops;
        for (size_t i = 0; i < kDropReasons; ++i)
          if (const auto n = lane->aggregator->counters().drops.count[i])
            drops += fmt::format(" {}={}", name(static_cast<DropReason>(i)), n);
        violate("dropped by the switch:" + drops);
      }
      break;
    }
    if (faults && network_.now() >= scenario_.faults_end_ns) {
      faults = false;
      io::sim::Faults none;
      none.delay_ns = scenario_.faults.delay_ns;
      network_.set_faults(none);
    }
    while (next_event_ < scenario_.events.size() &&
           scenario_.events[next_event_].at <= network_.now()) {
      // When faults are over, and when everybody is through, nothing breaks any more.
      const Event& event = scenario_.events[next_event_++];
      if (faults && !done()) happen(event);
    }
    serve_lanes();
    serve_fallbacks();
    step_workers();
    check_joining();
    if (outcome_.finished_at == 0 && done()) outcome_.finished_at = network_.now();
    network_.advance(next_time());
  }

  for (const auto& job : jobs_) {
    count_up(*job);
    if (scenario_.mismatch && job->index == 0) continue;
    check_results(*job);
    for (const Worker& worker : job->workers) check_payload(*job, worker);
  }
  for (auto& lane : lanes_) outcome_.zombies += lane->aggregator->counters().slots_used;
  check();
  for (auto& lane : lanes_) {
    for (const auto& job : jobs_)
      if (outcome_.violations.empty() && !scenario_.mismatch &&
          lane->aggregator->job_counters(static_cast<io::JobIndex>(job->index)).parked_now != 0)
        violate(fmt::format("I5: something of job {} is parked though all is done", job->index));
    for (const auto& job : jobs_)
      lane->aggregator->remove_job(static_cast<io::JobIndex>(job->index));
    if (lane->aggregator->counters().slots_used != 0)
      violate("I5: a slot is held though no job is left");
  }
  outcome_.packets = network_.counters().sent;
  outcome_.dropped = network_.counters().lost;
  return outcome_;
}

void World::check_results(const Job& job) {
  for (size_t p = 0; p < job.plans.size(); ++p) {
    const PlannedOperation& plan = job.plans[p];
    for (const Worker& worker : job.workers) {
      if (!worker.done()) continue;
      const auto& got = worker.got[p];
      const auto say = [&](const char* what, const std::string& how) {
        violate(fmt::format("{}: job {} operation {} ({}) at rank {}: {}", what, job.index, p,
                            name(plan.collective), value(worker.rank), how));
      };
      // What is moved is compared byte by byte, and other sums have one receiver.
      if (plan.collective == Collective::kAllReduce && job.workers[0].done() &&
          got != job.workers[0].got[p])
        say("I2", "differs from rank 0");
      if (const auto wrong = plan.wrong(value(worker.rank), got)) say("I1", *wrong);
    }
  }
}

/// A worker gets each byte once, and sends it once where nothing was lost.
void World::check_payload(const Job& job, const Worker& worker) {
  if (!worker.done()) return;
  uint64_t up = 0;
  uint64_t down = 0;
  for (const PlannedOperation& plan : job.plans) {
    if (plan.reproducible) return;  // how much that is depends on its values
    up += plan.payload_up(value(worker.rank));
    down += plan.payload_down(value(worker.rank));
  }
  if (worker.hierarchical)
    std::tie(up, down) = worker.hierarchical->payload(worker.hierarchical_channel);
  const client::EngineCounters& c = worker.engine->counters();
  if (c.bytes_received != down)
    violate(fmt::format("payload: job {} rank {} got {} bytes instead of {}", job.index,
                        value(worker.rank), c.bytes_received, down));
  if (c.fragments_resent == 0 && c.bytes_sent != up)
    violate(fmt::format("payload: job {} rank {} sent {} bytes instead of {}", job.index,
                        value(worker.rank), c.bytes_sent, up));
}

void World::count_up(const Job& job) {
  for (const Worker& worker : job.workers) {
    const client::EngineCounters& c = worker.engine->counters();
    outcome_.contributions += c.fragments_sent - c.fragments_resent;
    outcome_.resent += c.fragments_resent;
    outcome_.raws += c.raws_sent;
    outcome_.queries += c.queries;
    if (value(worker.rank) == 0) {
      outcome_.fragments += c.results;
      outcome_.fallback_fragments += c.results_from_fallback;
    }
    if (const auto* fallback = worker.engine->fallback())
      outcome_.reminders += fallback->counters().reminds;
    if (worker.engine->mismatch() && !scenario_.mismatch)
      violate(fmt::format("I1: job {} rank {} sees a mismatch", job.index, value(worker.rank)));
    if (!worker.redistributions->disagreement().empty() && !scenario_.mismatch)
      violate(fmt::format("I1: job {} rank {}: {}", job.index, value(worker.rank),
                          worker.redistributions->disagreement()));
  }
  for (const auto& lives : {&job.fallbacks, &job.old_lives})
    for (const auto& fallback : *lives) {
      outcome_.reminders += fallback->counters().reminds;
      if (fallback->mismatch() && !scenario_.mismatch) violate("I1: a fallback sees a mismatch");
    }
}

/// What a burst gave out: in which order does not matter.
void World::check_given_out() {
  for (const bool bare : {false, true})
    for (const GivenOut& given : given_out_)
      if (given.message.bare() == bare) check_given_out(*given.job, given.first, given.message);
  given_out_.clear();
}

/// A bare result stands for fragments of which somebody was given the bytes.
void World::check_given_out(Job& job, Seq first, const wire::Message& message) {
  if (!message.bare()) {
    job.given_out.resize(std::max<size_t>(job.given_out.size(), first.value + 1));
    job.given_out[first.value] = true;
    return check_sent_by_all(job, first);
  }
  for (uint32_t nth = 0; nth < message.elements; ++nth) {
    const Seq seq = first + uint64_t{nth} * scenario_.lanes;
    check_sent_by_all(job, seq);
    if (seq.value < job.given_out.size() && job.given_out[seq.value]) continue;
    // Its receiver may have had it from its own fallback.
    if (std::ranges::all_of(job.workers,
                            [&](const Worker& worker) { return worker.engine->awaits(seq); }))
      violate(fmt::format("C2: job {}: {} is said to be decided, and nobody has its result",
                          job.index, seq.value));
  }
}

/// C2: a result is given out when all workers have sent its fragment, and so have the result of
/// what lies a window behind it.
void World::check_sent_by_all(const Job& job, Seq seq) {
  for (const Worker& worker : job.workers) {
    const client::Standing standing = worker.engine->standing();
    if (seq >= standing.next || seq >= standing.low + job.window)
      violate(fmt::format(
          "C2: job {}: the result of {} is given out; rank {} has sent up to {} and "
          "waits for {}",
          job.index, seq.value, value(worker.rank), standing.next.value, standing.low.value));
  }
}

/// I3: nobody whose window is full waits for the switch to put results together: of what it has
/// sent, something else is missing.
void World::check_joining() {
  for (const auto& job : jobs_) {
    if (job->config.join_patience == 0) continue;
    for (const Worker& worker : job->workers) {
      if (!worker.engine->held_up_by_window()) continue;
      const client::Standing standing = worker.engine->standing();
      uint64_t kept = 0;
      Seq seq = standing.low;
      for (; seq < standing.next; ++seq) {
        if (!worker.engine->awaits(seq)) continue;
        const aggregator::Aggregator& lane = *lanes_[seq.value % scenario_.lanes]->aggregator;
        if (!lane.bare_results().keeps(static_cast<io::JobIndex>(job->index), worker.rank,
                                       seq.low()))
          break;
        ++kept;
      }
      if (kept != 0 && seq == standing.next)
        violate(fmt::format("I3: job {} rank {} waits at {} for {} bare results that are kept",
                            job->index, value(worker.rank), standing.low.value, kept));
    }
  }
}

/// I4: whoever holds less than its floor finds as many slots empty as it lacks, whatever the others
/// did, and nobody holds more than its ceiling.
void World::check_quotas(const aggregator::Aggregator& aggregator) {
  uint64_t short_of_floors = 0;
  for (const auto& job : jobs_) {
    const auto index = static_cast<io::JobIndex>(job->index);
    const scheduler::Quota& quota = aggregator.spec(index).quota;
    const uint64_t held = aggregator.job_counters(index).slots_held;
    if (held < quota.floor) short_of_floors += quota.floor - held;
    if (held > quota.ceiling)
      violate(fmt::format("I4: job {} holds {} slots, its ceiling is {}", job->index, held,
                          quota.ceiling));
  }
  const uint64_t empty = aggregator.shape().slots - aggregator.counters().slots_used;
  if (empty < short_of_floors)
    violate(fmt::format("I4: {} slots are empty, jobs below their floors lack {}", empty,
                        short_of_floors));
}

/// The ledgers of this life of the switch.
void World::check() {
  for (auto& lane : lanes_) {
    const aggregator::Counters& c = lane->aggregator->counters();
    outcome_.preemptions += c.preemptions;
    outcome_.groups += c.groups;
    outcome_.grouped += c.grouped;
    outcome_.parked += c.parked;
    outcome_.parker_results += c.parker_results;
    uint64_t port_drops = 0;
    for (const uint64_t count : lane->port.counters().drops.count) port_drops += count;
    port_drops -= lane->port_drops_before;
    const uint64_t received = lane->port.counters().rx_packets - lane->port_packets_before;
    const uint64_t handled = c.packets - c.spill_packets - c.run_packets;
    if (received != port_drops + handled)
      violate(fmt::format("I5: {} packets came, {} dropped by the port, {} handled", received,
                          port_drops, handled));
    if (c.packets != c.absorbed + c.marks + c.forwarded + c.dropped())
      violate(fmt::format("I5: {} packets, {} absorbed, {} marks, {} forwarded, {} dropped",
                          c.packets, c.absorbed, c.marks, c.forwarded, c.dropped()));
    const uint64_t held = lane->aggregator->contributions_held();
    if (c.absorbed + c.bypassed !=
        held + c.contributions_in_results + c.contributions_moved + c.contributions_discarded)
      violate(
          fmt::format("I5: {} contributions accepted, {} held, {} in results, {} moved, {} "
                      "discarded",
                      c.absorbed + c.bypassed, held, c.contributions_in_results,
                      c.contributions_moved, c.contributions_discarded));
  }
}

}  // namespace ina::sim
