#include "sim/faults/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/faults/redistribution.h"
#include "sim/faults/reproducible.h"
#include "wire/rules.h"

namespace ina::sim {

using world::data;
using world::Hierarchy;
using world::Job;
using world::Lane;
using world::Line;
using world::Member;
using world::Place;
using world::Worker;

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

}  // namespace

World::World(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed ^ 0x5eed5eed),
      network_(scenario.seed, scenario.faults,
               scenario.daemons() * scenario.lanes + scenario.workers() +
                   static_cast<uint32_t>(scenario.jobs.size())) {
  uint32_t host = 0;
  for (; host < scenario_.daemons() * scenario_.lanes; ++host)
    lanes_.push_back(std::make_unique<Lane>(network_, host, scenario_.slot_bytes));
  down_until_.assign(scenario_.daemons(), 0);
  for (uint32_t daemon = 0; daemon < scenario_.daemons(); ++daemon) make_lanes(daemon);
  for (const JobPlan& config : scenario_.jobs) {
    auto job = std::make_unique<Job>();
    job->index = static_cast<uint32_t>(jobs_.size());
    job->config = config;
    job->window = (config.window + scenario_.lanes - 1) / scenario_.lanes * scenario_.lanes;
    job->workers.resize(config.workers);
    for (uint32_t rank = 0; rank < config.workers; ++rank) {
      Worker& worker = job->workers[rank];
      worker.job = job.get();
      worker.rank = Rank{static_cast<uint16_t>(rank)};
      worker.host = host++;
    }
    world::make_places(scenario_, *job);
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

void World::make_lanes(uint32_t daemon) {
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    aggregator::Shape shape;
    shape.slots = std::max(1u, scenario_.slots / scenario_.lanes);
    shape.slot_bytes = scenario_.slot_bytes;
    shape.max_jobs = static_cast<uint32_t>(scenario_.jobs.size());
    if (scenario_.together) shape.max_jobs *= scenario_.switches();
    shape.burst = 16;
    shape.lanes = scenario_.lanes;
    shape.lane = lane;
    shape.policy = scenario_.policy;
    Lane& l = lane_of(daemon, lane);
    l.rows.resize(aggregator::Aggregator::row_memory_bytes(shape) / sizeof(Line) + 1);
    l.aggregator = std::make_unique<aggregator::Aggregator>(
        shape, std::span(data(l.rows), l.rows.size() * sizeof(Line)));
    l.domains = std::make_unique<aggregator::Domains>(*l.aggregator, scenario_.lanes);
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
      judge_.violate(fmt::format("memory: job {} operation {}: {}", job.index, i, *beyond));
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
  job.deviant = Rank{static_cast<uint16_t>(random() % job.config.workers)};
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

/// True if any party sees that job 0's workers disagree.
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
  job.instance = 0;
  for (auto& place : job.places) {
    if (!place) continue;
    place->epoch = 1;
    place->ready = true;
    place->results.assign(2 * size_t{job.window} * scenario_.slot_bytes / sizeof(Line) + 1, {});
    for (Member& member : place->members) {
      member.key = member.worker ? job.key : random_();
      member.report_at = member.answer_at = member.told_at = INT64_MAX;
      member.silent = false;
      member.results_end = Seq{};
    }
  }
  job.fallback_down_until = 0;
  job.given_out.clear();
  for (Worker& worker : job.workers) {
    make_engine(worker);
    worker.transport = std::make_unique<io::sim::SimTransport>(
        network_, worker.host, job.id, job.key, scenario_.slot_bytes,
        worker.place->daemon * scenario_.lanes);
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
  for (const auto& place : job.places)
    if (place) bind_members(*place);
  for (const auto& place : job.places)
    if (place) add_to_lanes(*place);
}

/// The members of a place, and the fallback or the switch above, may speak to its lanes.
void World::bind_members(const Place& place) {
  const Job& job = *place.job;
  const auto bind = [&](Lane& lane, uint32_t host, uint64_t key, Rank rank) {
    lane.endpoints[place.index].push_back(lane.port.bind(host, job.id, key, place.index, rank));
  };
  for (uint32_t i = 0; i < scenario_.lanes; ++i) {
    Lane& lane = lane_of(place.daemon, i);
    for (const io::EndpointIndex endpoint : lane.endpoints[place.index]) lane.port.unbind(endpoint);
    lane.endpoints[place.index].clear();
    for (size_t m = 0; m < place.members.size(); ++m) {
      const Member& member = place.members[m];
      const Rank rank{static_cast<uint16_t>(m)};
      if (member.worker)
        bind(lane, member.worker->host, member.key, rank);
      else if (!scenario_.together)
        bind(lane, member.child->daemon * scenario_.lanes + i, member.key, rank);
    }
    if (!place.parent)
      bind(lane, job.fallback_host, job.key, kFallbackRank);
    else if (!scenario_.together)
      bind(lane, place.parent->daemon * scenario_.lanes + i,
           place.parent->members[place.number].key, kFallbackRank);
  }
}

client::EngineConfig World::engine_config(const Worker& worker) const {
  const Job& job = *worker.job;
  client::EngineConfig config;
  config.rank = worker.rank;
  config.member = worker.member;
  config.workers = job.config.workers;
  config.epoch = worker.place->epoch;
  config.window = job.window;
  config.slot_bytes = scenario_.slot_bytes;
  config.lanes = scenario_.lanes;
  config.rules = {.policy = scenario_.policy.kind,
                  .home = scenario_.home,
                  .aggregator_window = job.config.aggregator_window,
                  .rto_min_ns = scenario_.rto_min_ns,
                  .rto_max_ns = 5 * kMs};
  config.lossy_link = job.config.lossy_link;
  config.in_switch = job.config.in_switch;
  config.park_room = job.config.park_room;
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
  config.epoch = job.root().epoch;
  config.min_epoch = rule(Rule::kEpochBump) ? job.root().epoch : 0;
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

void World::add_to_lanes(Place& place) {
  const Job& job = *place.job;
  place.seen.assign(scenario_.lanes, {});
  place.parked_at.assign(scenario_.lanes, {});
  place.given.assign(scenario_.lanes, {});
  place.rows.assign(scenario_.lanes, {});
  place.holders.assign(scenario_.lanes, {});
  uint32_t first_slot = 0;  // static: pools one after the other
  for (const auto& other : jobs_)
    if (other->index < job.index) first_slot += 2 * other->window / scenario_.lanes;
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    const size_t words = aggregator::JobSpec::seen_words(job.window, scenario_.lanes);
    place.seen[lane].assign(words, {});
    place.parked_at[lane].assign(words, 0);
    aggregator::JobSpec spec;
    // Domains of one switch must not meet in the same slots.
    spec.id = JobId{value(job.id) + (scenario_.together ? 1'000'003 * place.at : 0)};
    spec.epoch = place.epoch;
    spec.workers = static_cast<uint32_t>(place.members.size());
    spec.window = job.window;
    spec.start = scenario_.is_tree() ? world::results_end(place) : results_end(job);
    spec.rejoined = place.epoch > 1;
    spec.pool = {first_slot, 2 * job.window / scenario_.lanes, scenario_.lanes, lane};
    if (scheduler::traits(scenario_.policy.kind).hashed) {
      spec.park_after = job.config.park_after;
      spec.park_pressure = job.config.park_pressure;
      spec.park_patience = job.config.park_patience;
      spec.park_window = job.config.in_switch;
      spec.park_if_it_pays = job.config.park_if_it_pays;
      if (job.config.park_after != 0) spec.parked_at = place.parked_at[lane].data();
      spec.park_room = job.config.park_room;
      spec.quota.floor = job.config.quota.floor / scenario_.lanes;
      if (job.config.quota.ceiling != UINT32_MAX)
        spec.quota.ceiling = std::max(1u, job.config.quota.ceiling / scenario_.lanes);
    }
    spec.joining = aggregator::Joining::of(
        job.config.in_switch == 0 ? job.window : std::min(job.window, job.config.in_switch),
        scenario_.lanes, job.config.join_patience);
    spec.park_home = scenario_.home == Home::kWorkers && job.config.park_room % 2 == 1;
    spec.rules.home = scenario_.home;
    spec.rules.rto_min_ns = scenario_.rto_min_ns;
    spec.instance = job.instance;
    spec.results = data(place.results);
    spec.seen = place.seen[lane].data();
    if (scheduler::traits(scenario_.policy.kind).hashed) {
      place.given[lane].assign(words, aggregator::GivenResult{});
      spec.given = place.given[lane].data();
    }
    if (scenario_.home == Home::kSpill) spec.spill = job.fallbacks[lane].get();
    if (scenario_.is_tree()) {
      place.rows[lane].assign(words, aggregator::TreeRow{});
      place.holders[lane].assign(words, {});
      spec.tree = {.rows = place.rows[lane].data(),
                   .holders = place.holders[lane].data(),
                   .member_of = place.member_of.data(),
                   .ranks = job.config.workers,
                   .has_parent = place.parent != nullptr,
                   .parent_epoch = place.parent && place.epoch == 1 ? place.parent->epoch : 0};
    }
    Lane& l = lane_of(place.daemon, lane);
    l.aggregator->remove_job(place.index);
    l.aggregator->add_job(place.index, spec);
    if (place.parent && scenario_.together)
      l.domains->link(place.index, place.parent->index, Rank{static_cast<uint16_t>(place.number)});
  }
}

// ---- events

void World::restart_switch(const Event& event) {
  ++outcome_.restarts;
  const uint32_t daemon = scenario_.together ? 0 : event.at_switch;
  judge_.check_ledgers(daemon);
  if (event.policy) scenario_.policy.kind = *event.policy;
  make_lanes(daemon);
  for (uint32_t i = 0; i < scenario_.lanes; ++i) {
    Lane& lane = lane_of(daemon, i);
    lane.port_packets_before = lane.port.counters().rx_packets;
    lane.port_drops_before = 0;
    for (const uint64_t count : lane.port.counters().drops.count) lane.port_drops_before += count;
  }
  down_until_[daemon] = network_.now() + event.length_ns;
  if (scenario_.is_tree()) {
    for (uint32_t at = 0; at < scenario_.switches(); ++at)
      if (scenario_.together || at == event.at_switch)
        attachments_.restart(at, down_until_[daemon]);
    return;
  }
  for (auto& job : jobs_) {
    ++job->root().epoch;
    if (scenario_.home == Home::kSpill) {
      ++job->instance;
      for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
        job->old_lives.push_back(std::move(job->fallbacks[lane]));
        job->fallbacks[lane] = make_fallback(*job, scenario_.lanes, lane);
      }
    } else if (scenario_.home == Home::kDedicated) {
      job->fallbacks[0]->set_epoch(job->root().epoch);
      job->fallbacks[0]->set_bind_at_once(!scheduler::traits(scenario_.policy.kind).hashed);
    }
    std::fill(job->root().results.begin(), job->root().results.end(), Line{});
    add_to_lanes(job->root());
    if (event.policy) {  // they hear of it before the switch serves anybody
      for (Worker& worker : job->workers) come_back(worker);
      continue;
    }
    // Half of the workers are told, each at its own time; the others hear it from a STALE.
    for (Worker& worker : job->workers)
      if (random_() % 2 == 0)
        worker.rejoin_at = down_until_[0] + static_cast<Nanos>(random_() % (5 * kMs));
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
  if (rule(Rule::kEpochBump)) ++job.root().epoch;
  for (auto& life : job.fallbacks) job.old_lives.push_back(std::move(life));
  const bool spill = scenario_.home == Home::kSpill;
  for (uint32_t shard = 0; shard < job.fallbacks.size(); ++shard)
    job.fallbacks[shard] = make_fallback(job, spill ? scenario_.lanes : 1, shard);
  if (!spill) job.fallback_down_until = network_.now() + down_ns;
  for (uint32_t lane = 0; lane < scenario_.lanes; ++lane) {
    aggregator::Fallback* fallback = spill ? job.fallbacks[lane].get() : nullptr;
    lanes_[lane]->aggregator->new_epoch(static_cast<io::JobIndex>(job.index), job.root().epoch,
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
      for (uint32_t i = 0; i < scenario_.lanes; ++i)
        cut(worker.host, worker.place->daemon * scenario_.lanes + i, event.direction, until);
      return;
    case Event::Kind::kCutLink:
      if (scenario_.together) return;
      for (uint32_t i = 0; i < scenario_.lanes; ++i)
        cut(event.at_switch * scenario_.lanes + i,
            scenario_.parents[event.at_switch] * scenario_.lanes + i, event.direction, until);
      return;
    case Event::Kind::kKillJob:
      ++outcome_.restarts;
      return restart_job(job);
  }
}

void World::cut(uint32_t below, uint32_t above, uint32_t direction, Nanos until) {
  if (direction != 2) network_.cut(below, above, until);
  if (direction != 1) network_.cut(above, below, until);
}

// ---- a step

void World::serve_lanes() {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    if (network_.now() < down_until_[i / scenario_.lanes]) {
      network_.discard(i);
      continue;
    }
    Lane& lane = *lanes_[i];
    auto to_port = [&](io::JobIndex job, Rank rank, const aggregator::Emission& emission) {
      this->send(lane, job, rank, emission);
    };
    const auto send = lane.domains->through(to_port);
    const auto mismatch = [&](const io::RxPacket& packet, const aggregator::Verdict&) {
      if (scenario_.mismatch && packet.job % jobs_.size() == 0)
        switch_sees_mismatch_ = true;
      else
        judge_.violate(fmt::format("I1: the switch sees a mismatch at seq {}", packet.message.seq));
    };
    while (aggregator::serve(lane.port, *lane.aggregator, burst_.arrived, burst_.verdicts,
                             network_.now(), send, mismatch)) {
      lane.domains->serve_roots(burst_.verdicts, network_.now(), to_port, mismatch);
      judge_.after_burst(*lane.aggregator);
    }
    if (lane.aggregator->parking())
      aggregator::park_overdue(*lane.aggregator, burst_.verdicts[0], kBurst, network_.now(), send);
    if (network_.now() >= lane.aggregator->bare_results().due())
      aggregator::send_bare_results(*lane.aggregator, network_.now(), send);
    lane.domains->serve_roots(burst_.verdicts, network_.now(), to_port, mismatch);
    judge_.after_burst(*lane.aggregator);
  }
}

void World::send(Lane& lane, io::JobIndex job, Rank rank, const aggregator::Emission& emission) {
  const auto& endpoints = lane.endpoints[job];
  const size_t at = rank == kFallbackRank ? endpoints.size() - 1 : value(rank);
  wire::Message message = emission.message;
  if (message.type == wire::Type::kResult)
    judge_.given_out(*jobs_[job % jobs_.size()], lane.aggregator->seq_of(job, message.seq),
                     message);
  if (scenario_.ecn && random_() % 32 == 0) message.flags |= wire::kFlagEcn;
  lane.port.tx(endpoints[at], message, {emission.payload, emission.payload_bytes});
}

/// The switch has attached to the one above: what waits there goes up.
void World::ascend(Place& place) {
  for (uint32_t i = 0; i < scenario_.lanes; ++i) {
    Lane& lane = lane_of(place.daemon, i);
    auto to_port = [&](io::JobIndex job, Rank rank, const aggregator::Emission& emission) {
      send(lane, job, rank, emission);
    };
    lane.aggregator->set_parent_epoch(place.index, place.parent->epoch);
    for (Seq from; lane.aggregator->ascend_again(place.index, from, burst_.verdicts[0]);)
      aggregator::carry_out(*lane.aggregator, burst_.verdicts[0], Rank{},
                            lane.domains->through(to_port));
    lane.domains->serve_roots(burst_.verdicts, network_.now(), to_port, [](auto&&...) {});
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
    while (const size_t count = job->fallback_transport->rx_burst(burst_.received)) {
      for (size_t i = 0; i < count; ++i)
        job->fallbacks[0]->on_message(burst_.received[i].message, burst_.received[i].payload);
      job->fallback_transport->rx_release();
    }
    while (const size_t count = job->fallbacks[0]->prepare(burst_.to_send)) {
      job->fallback_transport->tx_burst(std::span(burst_.to_send).first(count));
      job->fallbacks[0]->sent(count);
    }
  }
}

/// Workers that agree may have bytes of moved data before a disagreement shows, but never of a
/// sum.
void World::check_deviation(const Worker& worker, size_t operation) {
  const Job& job = *worker.job;
  if (operation != job.deviating_plan) return;
  const uint32_t rank = value(worker.rank);
  const PlannedOperation& plan = plan_of(worker, operation);
  if (!is_moved(plan.collective) || plan.redistribution || plan.wrong(rank, worker.got[operation]))
    judge_.violate(fmt::format("I1: rank {} completes operation {} ({}), rank {} called {}", rank,
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
      judge_.violate(fmt::format("I1: job {} operation {}: the input of rank {} was written to",
                                 worker.job->index, running->plan, value(worker.rank)));
    // The buffers are the user's again, and the user writes to them at once.
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

/// As Operations::submit() does.
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

/// Length of the prefix of so many packets that the transport takes.
size_t World::taken(Job& job, size_t packets) {
  if (!job.dices() || job.random() % 8 != 0) return packets;
  return 1 + job.random() % packets;
}

void World::step(Worker& worker) {
  const Nanos now = network_.now();
  worker.due = false;
  if (now >= worker.rejoin_at) come_back(worker);
  if (worker.place->members[value(worker.member)].silent) network_.discard(worker.host);
  PlainCopier copier;
  while (const size_t count = worker.transport->rx_burst(burst_.received)) {
    worker.engine->on_packets(std::span(burst_.received).first(count), now, copier);
    worker.transport->rx_release();
  }
  submit_more(worker);
  release_held(worker);
  while (const size_t count = worker.engine->prepare(burst_.to_send, now)) {
    const size_t sent = taken(*worker.job, count);
    worker.transport->tx_burst(std::span(burst_.to_send).first(sent));
    worker.engine->sent(sent, now);
  }
}

void World::step_hierarchies() {
  for (const auto& hierarchy : hierarchies_)
    for (const auto& rank : hierarchy->ranks) {
      const uint64_t completed = rank->completed();
      rank->step(network_.now());
      if (rank == hierarchy->ranks.front()) outcome_.hierarchical += rank->completed() - completed;
      for (const std::string& text : rank->take_violations()) judge_.violate(text);
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
  // An operation that ends on one channel may start one on another.
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
  for (const Nanos until : down_until_) consider(until);
  attachments_.consider(consider);
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
  uint64_t steps = 0;
  const Nanos limit = (scenario_.faults_end_ns == INT64_MAX ? 0 : scenario_.faults_end_ns) +
                      (scenario_.mismatch ? kMismatchLimit : kLivenessLimit);
  // Frames still under way at the end must not disturb anything.
  while (!done() || !network_.quiet()) {
    if (scenario_.mismatch && knows_of_mismatch()) break;
    if (network_.now() > limit || ++steps > kStepLimit) {
      report_no_end();
      break;
    }
    end_faults_in_time();
    take_events();
    attachments_.step();
    serve_lanes();
    serve_fallbacks();
    step_workers();
    judge_.check_joining();
    if (outcome_.finished_at == 0 && done()) outcome_.finished_at = network_.now();
    network_.advance(next_time());
  }

  judge_.at_the_end();
  for (auto& lane : lanes_) outcome_.zombies += lane->aggregator->counters().slots_used;
  judge_.check_ledgers();
  for (auto& lane : lanes_) check_left_over(*lane);
  outcome_.packets = network_.counters().sent;
  outcome_.dropped = network_.counters().lost;
  return outcome_;
}

/// The network becomes perfect when its time has come.
void World::end_faults_in_time() {
  if (!faults_ || network_.now() < scenario_.faults_end_ns) return;
  faults_ = false;
  io::sim::Faults none;
  none.delay_ns = scenario_.faults.delay_ns;
  network_.set_faults(none);
}

void World::take_events() {
  while (next_event_ < scenario_.events.size() &&
         scenario_.events[next_event_].at <= network_.now()) {
    // When faults are over, and when all workers are through, nothing breaks any more.
    const Event& event = scenario_.events[next_event_++];
    if (faults_ && !done()) happen(event);
  }
}

/// Liveness is violated: describes the workers that wait, and the switch's drops.
void World::report_no_end() {
  std::string text = "I3: no end;";
  for (const auto& job : jobs_)
    for (const Worker& worker : job->workers)
      if (!worker.done())
        text += fmt::format(" job {} rank {} waits at {} (next {}, epoch {}/{})", job->index,
                            value(worker.rank), worker.engine->standing().low.value,
                            worker.engine->standing().next.value, worker.engine->config().epoch,
                            worker.place->epoch);
  if (scenario_.mismatch) {
    const Job& job = *jobs_[0];
    const PlannedOperation& plan = job.plans[job.deviating_plan];
    text += fmt::format("; rank {} called {} of {} elements, the others {} of {} in operation {}",
                        value(job.deviant), name(job.deviation.collective), job.deviation.elements,
                        name(plan.collective), plan.elements, job.deviating_plan);
  }
  judge_.violate(text);
  for (auto& lane : lanes_) {
    std::string drops;
    for (size_t i = 0; i < kDropReasons; ++i)
      if (const auto n = lane->aggregator->counters().drops.count[i])
        drops += fmt::format(" {}={}", name(static_cast<DropReason>(i)), n);
    judge_.violate("dropped by the switch:" + drops);
  }
}

/// Ends the jobs of a lane, which must not hold anything of theirs afterwards.
void World::check_left_over(Lane& lane) {
  // A switch of a tree that has started again may park what only another still had to have.
  for (const auto& job : jobs_)
    if (outcome_.violations.empty() && !scenario_.mismatch && !scenario_.is_tree() &&
        lane.aggregator->job_counters(static_cast<io::JobIndex>(job->index)).parked_now != 0)
      judge_.violate(
          fmt::format("I5: something of job {} is parked though all is done", job->index));
  for (uint32_t i = 0; i < lane.aggregator->shape().max_jobs; ++i)
    lane.aggregator->remove_job(static_cast<io::JobIndex>(i));
  if (lane.aggregator->counters().slots_used != 0)
    judge_.violate("I5: a slot is held though no job is left");
}

}  // namespace ina::sim
