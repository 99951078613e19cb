#include "sim/faults/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>

#include "wire/rules.h"

namespace ina::sim {

namespace {

constexpr Nanos kMs = 1'000'000;
// Once the network is perfect everything must be over by then.
constexpr Nanos kLivenessLimit = 60'000 * kMs;
constexpr uint64_t kStepLimit = 20'000'000;

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

float from_bfloat16(const std::byte* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace

/// One operation of a job, as all its workers run it, and what the naive model says of it.
struct World::Plan {
  DType dtype{};
  Op op{};
  size_t elements = 0;
  bool in_place = false;
  std::vector<std::vector<std::byte>> inputs;  ///< by worker
  std::vector<double> expected;
};

struct World::Worker {
  Job* job = nullptr;
  Rank rank{};
  uint32_t host = 0;
  std::unique_ptr<client::Engine> engine;
  std::unique_ptr<io::sim::SimTransport> transport;
  Nanos paused_until = 0;
  Nanos submit_at = 0;
  Nanos rejoin_at = INT64_MAX;
  struct Running {
    size_t plan;
    client::Operation* operation;
    std::vector<std::byte> send, recv;
  };
  std::list<Running> running;
  size_t next_plan = 0;
  std::vector<std::vector<std::byte>> got;  ///< results, by plan

  bool done() const;
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
  std::vector<Plan> plans;
  std::vector<Worker> workers;
  Lines results;
  std::vector<std::vector<Bitmap>> seen;                         ///< by lane
  std::vector<std::vector<uint8_t>> parked_at;                   ///< by lane
  std::vector<std::unique_ptr<aggregator::Fallback>> fallbacks;  ///< spill: by lane; dedicated: one
  std::vector<std::unique_ptr<aggregator::Fallback>> old_lives;  ///< for their counters
  std::unique_ptr<io::sim::SimTransport> fallback_transport;     ///< dedicated
  Nanos fallback_down_until = 0;
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
  return running.empty() && next_plan == job->plans.size();
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
    start_job(*job);
  }
}

World::~World() = default;

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
  for (uint32_t i = 0; i < job.config.operations; ++i) {
    Plan plan;
    const DType dtypes[] = {DType::kInt32, DType::kFloat32, DType::kInt32, DType::kBFloat16};
    plan.dtype = scenario_.floats_only ? DType::kFloat32 : dtypes[random_() % 4];
    plan.op = is_float(plan.dtype) && random_() % 4 == 0 ? Op::kAvg : Op::kSum;
    const uint32_t per_fragment = elements_per_fragment(plan.dtype, scenario_.slot_bytes);
    plan.elements = random_() % (size_t{job.config.max_fragments} * per_fragment + 1);
    plan.in_place = random_() % 3 == 0;
    plan.expected.assign(plan.elements, 0);
    const double divisor = plan.op == Op::kAvg ? job.config.workers : 1;
    for (uint32_t w = 0; w < job.config.workers; ++w) {
      std::vector<std::byte> input(plan.elements * wire_bytes(plan.dtype));
      for (size_t e = 0; e < plan.elements; ++e) {
        std::byte* at = &input[e * wire_bytes(plan.dtype)];
        if (plan.dtype == DType::kInt32) {
          const auto element = static_cast<int32_t>(random_() % 2'000'001) - 1'000'000;
          std::memcpy(at, &element, 4);
          plan.expected[e] += element;
        } else {
          // Of many magnitudes, so that another order of adding gives another sum.
          const auto element =
              static_cast<float>(std::ldexp(static_cast<double>(random_() % 2'000'001) - 1'000'000,
                                            -10 - static_cast<int>(random_() % 16)));
          if (plan.dtype == DType::kFloat32) {
            std::memcpy(at, &element, 4);
            plan.expected[e] += static_cast<double>(element) / divisor;
          } else {
            uint32_t bits;
            std::memcpy(&bits, &element, 4);
            const auto half = static_cast<uint16_t>(bits >> 16);
            std::memcpy(at, &half, 2);
            plan.expected[e] += static_cast<double>(from_bfloat16(at)) / divisor;
          }
        }
      }
      plan.inputs.push_back(std::move(input));
    }
    job.plans.push_back(std::move(plan));
  }
}

/// A new life of the job, under a new identity, from its first operation on.
void World::start_job(Job& job) {
  job.id = JobId{next_id_++};
  job.key = random_();
  job.epoch = 1;
  job.instance = 0;
  job.results.assign(2 * size_t{job.window} * scenario_.slot_bytes / sizeof(Line) + 1, {});
  job.fallback_down_until = 0;
  for (Worker& worker : job.workers) {
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
    worker.running.clear();
    worker.engine = std::make_unique<client::Engine>(config);
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
    spec.park_after = job.config.park_after;
    spec.park_pressure = job.config.park_pressure;
    spec.park_patience = job.config.park_patience;
    spec.park_window = job.config.in_switch;
    spec.park_if_it_pays = job.config.park_if_it_pays;
    if (job.config.park_after != 0) spec.parked_at = job.parked_at[lane].data();
    spec.park_room = job.config.park_room;
    spec.park_home = scenario_.home == Home::kWorkers && job.config.park_room % 2 == 1;
    spec.quota.floor = job.config.quota.floor / scenario_.lanes;
    if (job.config.quota.ceiling != UINT32_MAX)
      spec.quota.ceiling = std::max(1u, job.config.quota.ceiling / scenario_.lanes);
    spec.home = scenario_.home;
    spec.instance = job.instance;
    spec.results = data(job.results);
    spec.seen = job.seen[lane].data();
    if (scenario_.home == Home::kSpill) spec.spill = job.fallbacks[lane].get();
    lanes_[lane]->aggregator->remove_job(static_cast<io::JobIndex>(job.index));
    lanes_[lane]->aggregator->add_job(static_cast<io::JobIndex>(job.index), spec);
  }
}

// ---- events

void World::violate(const std::string& text) {
  if (outcome_.violations.size() < 8) outcome_.violations.push_back(text);
}

void World::restart_switch(Nanos down_ns) {
  ++outcome_.restarts;
  check();
  make_lanes();
  for (auto& lane : lanes_) {
    lane->port_packets_before = lane->port.counters().rx_packets;
    lane->port_drops_before = 0;
    for (const uint64_t count : lane->port.counters().drops.count) lane->port_drops_before += count;
  }
  switch_down_until_ = network_.now() + down_ns;
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
    }
    std::fill(job->results.begin(), job->results.end(), Line{});
    add_to_lanes(*job);
    // Half of the workers are told, each at its own time; the others hear it from a STALE.
    for (Worker& worker : job->workers)
      if (random_() % 2 == 0)
        worker.rejoin_at = switch_down_until_ + static_cast<Nanos>(random_() % (5 * kMs));
  }
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
      return restart_switch(event.length_ns);
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
      return start_job(job);
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
      if (scenario_.ecn && random_() % 32 == 0) message.flags |= wire::kFlagEcn;
      lane.port.tx(endpoints[at], message, {emission.payload, emission.payload_bytes});
    };
    const auto mismatch = [&](const io::RxPacket& packet, const aggregator::Verdict&) {
      violate(fmt::format("I1: the switch sees a mismatch at seq {}", packet.message.seq));
    };
    while (aggregator::serve(lane.port, *lane.aggregator, packets, verdicts, network_.now(), send,
                             mismatch)) {
    }
    if (lane.aggregator->parking())
      aggregator::park_overdue(*lane.aggregator, verdicts[0], 16, network_.now(), send);
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

void World::submit_more(Worker& worker) {
  const Nanos now = network_.now();
  for (auto running = worker.running.begin(); running != worker.running.end();) {
    if (!running->operation->done) {
      ++running;
      continue;
    }
    worker.engine->release(running->operation);
    worker.got[running->plan] = running->recv.empty() ? running->send : running->recv;
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
    const Plan& plan = worker.job->plans[worker.next_plan];
    Worker::Running running{worker.next_plan++, nullptr, plan.inputs[value(worker.rank)], {}};
    if (!plan.in_place) running.recv.resize(running.send.size());
    worker.running.push_back(std::move(running));
    Worker::Running& r = worker.running.back();
    r.operation =
        worker.engine->submit({r.send.data(), plan.in_place ? r.send.data() : r.recv.data(),
                               plan.elements, plan.dtype, plan.op, Collective::kAllReduce},
                              now);
  }
}

void World::step(Worker& worker) {
  const Nanos now = network_.now();
  if (now >= worker.rejoin_at) {
    worker.rejoin_at = INT64_MAX;
    worker.engine->rejoin(worker.job->epoch, now);
  }
  PlainCopier copier;
  client::RxPacket received[16];
  while (const size_t count = worker.transport->rx_burst(received)) {
    worker.engine->on_packets(std::span(received, count), now, copier);
    worker.transport->rx_release();
  }
  submit_more(worker);
  client::TxPacket to_send[16];
  while (const size_t count = worker.engine->prepare(to_send, now)) {
    worker.transport->tx_burst(std::span(to_send, count));
    worker.engine->sent(count, now);
  }
}

void World::step_workers() {
  const Nanos now = network_.now();
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
          now >= worker.rejoin_at || worker.engine->has_answers())
        step(worker);
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
      if (worker.next_plan < job->plans.size()) consider(worker.submit_at);
    }
  }
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
  const Nanos limit =
      (scenario_.faults_end_ns == INT64_MAX ? 0 : scenario_.faults_end_ns) + kLivenessLimit;
  // What is still under way at the end must not disturb anything.
  while (!done() || !network_.quiet()) {
    if (network_.now() > limit || ++steps > kStepLimit) {
      std::string text = "I3: no end;";
      for (const auto& job : jobs_)
        for (const Worker& worker : job->workers)
          if (!worker.done())
            text += fmt::format(" job {} rank {} waits at {} (next {}, epoch {}/{})", job->index,
                                value(worker.rank), worker.engine->standing().low.value,
                                worker.engine->standing().next.value, worker.engine->config().epoch,
                                job->epoch);
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
    if (outcome_.finished_at == 0 && done()) outcome_.finished_at = network_.now();
    network_.advance(next_time());
  }

  for (const auto& job : jobs_) {
    for (size_t p = 0; p < job->plans.size(); ++p) {
      const Plan& plan = job->plans[p];
      for (const Worker& worker : job->workers) {
        if (!worker.done()) continue;
        const auto& got = worker.got[p];
        if (got != job->workers[0].got[p] && job->workers[0].done())
          violate(fmt::format("I2: job {} operation {}: rank {} differs from rank 0", job->index, p,
                              value(worker.rank)));
        for (size_t e = 0; e < plan.elements; ++e) {
          const std::byte* at = &got[e * wire_bytes(plan.dtype)];
          double value_got = 0;
          double slack = 0;
          if (plan.dtype == DType::kInt32) {
            int32_t element;
            std::memcpy(&element, at, 4);
            value_got = element;
          } else if (plan.dtype == DType::kFloat32) {
            float element;
            std::memcpy(&element, at, 4);
            value_got = static_cast<double>(element);
            slack = 0.02;
          } else {
            value_got = static_cast<double>(from_bfloat16(at));
            slack = std::abs(plan.expected[e]) / 128 + 0.05;
          }
          if (std::abs(value_got - plan.expected[e]) > slack) {
            violate(fmt::format("I1: job {} operation {} element {} at rank {}: {} instead of {}",
                                job->index, p, e, value(worker.rank), value_got, plan.expected[e]));
            break;
          }
        }
      }
    }
    for (const Worker& worker : job->workers) {
      const client::EngineCounters& c = worker.engine->counters();
      outcome_.contributions += c.fragments_sent - c.fragments_resent;
      outcome_.raws += c.raws_sent;
      outcome_.queries += c.queries;
      if (value(worker.rank) == 0) {
        outcome_.fragments += c.results;
        outcome_.fallback_fragments += c.results_from_fallback;
      }
      if (const auto* fallback = worker.engine->fallback()) {
        outcome_.reminders += fallback->counters().reminds;
        if (fallback->mismatch()) violate("I1: a fallback sees a mismatch");
      }
    }
    for (const auto& lives : {&job->fallbacks, &job->old_lives})
      for (const auto& fallback : *lives) {
        outcome_.reminders += fallback->counters().reminds;
        if (fallback->mismatch()) violate("I1: a fallback sees a mismatch");
      }
  }
  for (auto& lane : lanes_) outcome_.zombies += lane->aggregator->counters().slots_used;
  check();
  for (auto& lane : lanes_) {
    for (const auto& job : jobs_)
      if (outcome_.violations.empty() &&
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

/// The ledgers of this life of the switch.
void World::check() {
  for (auto& lane : lanes_) {
    const aggregator::Counters& c = lane->aggregator->counters();
    outcome_.preemptions += c.preemptions;
    outcome_.parked += c.parked;
    outcome_.parker_results += c.parker_results;
    uint64_t port_drops = 0;
    for (const uint64_t count : lane->port.counters().drops.count) port_drops += count;
    port_drops -= lane->port_drops_before;
    const uint64_t received = lane->port.counters().rx_packets - lane->port_packets_before;
    if (received != port_drops + c.packets - c.spill_packets)
      violate(fmt::format("I5: {} packets came, {} dropped by the port, {} handled", received,
                          port_drops, c.packets - c.spill_packets));
    if (c.packets != c.absorbed + c.forwarded + c.dropped())
      violate(fmt::format("I5: {} packets, {} absorbed, {} forwarded, {} dropped", c.packets,
                          c.absorbed, c.forwarded, c.dropped()));
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
