#include "tests/sim/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace ina::sim {

namespace {

constexpr uint32_t kSlotBytes = 64;
constexpr size_t kElements = kSlotBytes / sizeof(float);  // of a fragment
constexpr int kMostSteps = 100'000;

struct alignas(64) Line {
  std::byte bytes[64];
};
using Lines = std::vector<Line>;

std::byte* data(Lines& lines) {
  return reinterpret_cast<std::byte*>(lines.data());
}

struct PlainCopier {
  void copy(std::span<const client::CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

/// Hands the datapath one packet.
struct OnePacketPort {
  io::RxPacket packet;
  bool taken = false;
  io::PortCounters counted;

  size_t rx_burst(std::span<io::RxPacket> burst) {
    if (taken) return 0;
    taken = true;
    burst[0] = packet;
    return 1;
  }
  void rx_release() {}
  bool tx(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) { return false; }
  void tx_flush() {}
  const io::PortCounters& counters() const { return counted; }
};

}  // namespace

Without::Without(Rule rule) {
  rules_off = uint64_t{1} << static_cast<uint32_t>(rule);
}
Without::~Without() {
  rules_off = 0;
}

struct Rack::Worker {
  struct Running {
    std::vector<float> send, recv;
    bool in_place = false;
    client::Operation* operation = nullptr;
    std::vector<float> kept;  ///< the result, once the buffers have been scribbled over
    const std::vector<float>& result() const {
      return !kept.empty() ? kept : in_place ? send : recv;
    }
  };
  const Running& running(int operation) const {
    return operation == kAny ? operations.back() : *std::next(operations.begin(), operation);
  }
  JobIndex job = 0;
  Rank rank{};
  std::unique_ptr<client::Engine> engine;
  std::list<Running> operations;
  Nanos clock = 0;
  bool gone = false;
};

struct Rack::Job {
  ScriptJob config;
  JobIndex index = 0;
  uint32_t epoch = 1;
  uint32_t instance = 0;
  std::vector<Worker> workers;
  Lines results;
  std::vector<WorkerSet> seen;
  std::vector<uint8_t> parked_at;
  std::vector<aggregator::GivenResult> given;
  std::unique_ptr<aggregator::Fallback> fallback;  ///< homes dedicated and spill
};

struct Rack::Switch {
  Lines rows;
  std::unique_ptr<aggregator::Aggregator> aggregator;
};

Rack::Rack(const Script& script) : script_(script), switch_(std::make_unique<Switch>()) {
  for (const ScriptJob& config : script_.jobs) {
    jobs_.push_back(std::make_unique<Job>());
    Job& job = *jobs_.back();
    job.config = config;
    job.index = static_cast<JobIndex>(jobs_.size() - 1);
    job.workers.resize(config.workers);
    for (uint32_t rank = 0; rank < config.workers; ++rank) {
      Worker& worker = job.workers[rank];
      worker.job = job.index;
      worker.rank = Rank{static_cast<uint8_t>(rank)};
      client::EngineConfig engine;
      engine.rank = worker.rank;
      engine.workers = config.workers;
      engine.epoch = job.epoch;
      engine.window = config.window;
      engine.slot_bytes = kSlotBytes;
      engine.rules = {
          .priority_max = config.priority, .policy = script_.policy.kind, .home = script_.home};
      engine.park_room = config.park_room;
      if (config.park_after != 0) engine.in_switch = config.window;
      worker.engine = std::make_unique<client::Engine>(engine);
    }
    if (script_.home != Home::kWorkers) job.fallback = make_fallback(job);
  }
  start_switch();
}

Rack::~Rack() = default;

std::unique_ptr<aggregator::Fallback> Rack::make_fallback(const Job& job) const {
  aggregator::FallbackConfig config;
  config.workers = job.config.workers;
  config.window = job.config.window;
  config.slot_bytes = kSlotBytes;
  config.instance = job.instance;
  config.epoch = job.epoch;
  config.min_epoch = rule(Rule::kEpochBump) ? job.epoch : 0;
  config.start = results_end(job);
  config.bind_at_once = !scheduler::traits(script_.policy.kind).hashed;
  return std::make_unique<aggregator::Fallback>(config);
}

Seq Rack::results_end(const Job& job) {
  Seq end;
  for (const Worker& worker : job.workers)
    end = std::max(end, worker.engine->standing().results_end);
  return end;
}

void Rack::add_to_switch(Job& job) {
  job.results.assign(2 * size_t{job.config.window} * kSlotBytes / sizeof(Line), {});
  job.seen.assign(aggregator::JobSpec::seen_words(job.config.window, 1), {});
  aggregator::JobSpec spec;
  spec.id = JobId{100u + job.index};
  spec.epoch = job.epoch;
  spec.workers = job.config.workers;
  spec.window = job.config.window;
  spec.start = results_end(job);
  spec.rejoined = job.epoch > 1;
  for (uint32_t i = 0; i < job.index; ++i) spec.pool.first_slot += 2 * jobs_[i]->config.window;
  spec.pool.slots = 2 * job.config.window;
  spec.quota = job.config.quota;
  spec.rules.home = script_.home;
  spec.instance = job.instance;
  if (job.config.park_after != 0) {
    job.parked_at.assign(job.seen.size(), 0);
    spec.parked_at = job.parked_at.data();
    spec.park_after = job.config.park_after;
    spec.park_window = job.config.window;
    spec.park_room = job.config.park_room;
  }
  spec.results = data(job.results);
  spec.seen = job.seen.data();
  if (scheduler::traits(script_.policy.kind).hashed) {
    job.given.assign(job.seen.size(), aggregator::GivenResult{});
    spec.given = job.given.data();
  }
  if (script_.home == Home::kSpill) spec.spill = job.fallback.get();
  switch_->aggregator->add_job(job.index, spec);
}

// ---- what workers do

Rack::Worker& Rack::worker(uint32_t rank, uint32_t job) const {
  return jobs_[job]->workers[rank];
}

void Rack::submit(uint32_t rank, const std::vector<float>& values, uint32_t job, bool in_place) {
  client::OperationSpec spec;
  spec.elements = values.size() * kElements;
  start(worker(rank, job), spec, values, in_place);
}

void Rack::submit(uint32_t rank, Collective collective,
                  const std::vector<ScriptFragment>& fragments, const std::vector<float>& values,
                  uint32_t job, bool in_place) {
  std::vector<scheduler::Block> blocks;
  uint16_t fingerprint = 0;
  for (const ScriptFragment& fragment : fragments) {
    const uint64_t at = blocks.size() * kElements;
    blocks.push_back({kElements, at, at, fragment.source, fragment.receiver});
    fingerprint = static_cast<uint16_t>(31 * fingerprint + 8 * fragment.source + fragment.receiver);
  }
  client::OperationSpec spec;
  spec.blocks = std::make_shared<scheduler::BlockTable>(blocks, kElements, fingerprint);
  spec.elements = spec.blocks->elements();
  spec.collective = collective;
  start(worker(rank, job), spec, values, in_place);
}

void Rack::start(Worker& worker, client::OperationSpec spec, const std::vector<float>& values,
                 bool in_place) {
  worker.operations.emplace_back();
  Worker::Running& running = worker.operations.back();
  for (const float value : values) running.send.insert(running.send.end(), kElements, value);
  running.in_place = in_place;
  if (!in_place) running.recv.assign(running.send.size(), -1);
  float* recv = in_place ? running.send.data() : running.recv.data();
  spec.send = reinterpret_cast<const std::byte*>(running.send.data());
  spec.recv = reinterpret_cast<std::byte*>(recv);
  spec.dtype = DType::kFloat32;
  running.operation = worker.engine->submit(spec, worker.clock);
  step(worker);
}

void Rack::submit_all(const std::vector<float>& values, uint32_t job) {
  for (uint32_t rank = 0; rank < values.size(); ++rank) submit(rank, {values[rank]}, job);
}

void Rack::step(Worker& worker) {
  wire::Outgoing packets[16];
  while (const size_t count = worker.engine->prepare(packets, worker.clock)) {
    for (size_t i = 0; i < count; ++i)
      send(worker.job, static_cast<int>(value(worker.rank)), kSwitch, packets[i].message,
           packets[i].payload, packets[i].payload_bytes);
    worker.engine->sent(count, worker.clock);
  }
}

void Rack::time_out(uint32_t rank, uint32_t job) {
  Worker& worker = this->worker(rank, job);
  const Nanos deadline = worker.engine->next_deadline();
  ASSERT_NE(deadline, client::Engine::kNever) << "rank " << rank << " waits for nothing";
  worker.clock = std::max(worker.clock, deadline);
  step(worker);
}

void Rack::rejoin(uint32_t rank, uint32_t job) {
  Worker& worker = this->worker(rank, job);
  worker.engine->rejoin(jobs_[job]->epoch, worker.clock);
  step(worker);
}

void Rack::leave(uint32_t rank, uint32_t job) {
  worker(rank, job).gone = true;
}

void Rack::scribble(uint32_t rank, uint32_t job) {
  Worker::Running& last = worker(rank, job).operations.back();
  ASSERT_TRUE(last.operation->done);
  std::fill(last.send.begin(), last.send.end(), -777.0f);
  std::fill(last.recv.begin(), last.recv.end(), -777.0f);
}

void Rack::scribble_over(Worker& worker) {
  for (Worker::Running& running : worker.operations) {
    if (!running.operation->done || !running.kept.empty()) continue;
    running.kept = running.result();
    std::ranges::fill(running.send, -777.0f);
    std::ranges::fill(running.recv, -777.0f);
  }
}

bool Rack::done(uint32_t rank, uint32_t job, int operation) const {
  return worker(rank, job).running(operation).operation->done;
}

std::vector<float> Rack::got(uint32_t rank, uint32_t job, int operation) const {
  std::vector<float> values;
  if (!done(rank, job, operation)) return values;
  const std::vector<float>& result = worker(rank, job).running(operation).result();
  for (size_t i = 0; i < result.size(); i += kElements) {
    EXPECT_TRUE(std::all_of(&result[i], &result[i] + kElements,
                            [&](float value) { return value == result[i]; }));
    values.push_back(result[i]);
  }
  return values;
}

std::vector<float> Rack::got_all(uint32_t job) const {
  std::vector<float> values;
  for (uint32_t rank = 0; rank < jobs_[job]->workers.size(); ++rank)
    values.push_back(done(rank, job) ? got(rank, job)[0] : -1);
  return values;
}

const client::Engine& Rack::engine(uint32_t rank, uint32_t job) const {
  return *worker(rank, job).engine;
}

// ---- restarts

void Rack::start_switch() {
  aggregator::Shape shape;
  shape.slots = script_.slots;
  shape.slot_bytes = kSlotBytes;
  shape.max_jobs = static_cast<uint32_t>(jobs_.size());
  shape.burst = 1;
  shape.policy = script_.policy;
  switch_->rows.assign(aggregator::Aggregator::row_memory_bytes(shape) / sizeof(Line), {});
  switch_->aggregator = std::make_unique<aggregator::Aggregator>(
      shape, std::as_writable_bytes(std::span(switch_->rows)));
  for (const auto& job : jobs_) add_to_switch(*job);
}

void Rack::restart_switch() {
  for (const auto& job : jobs_) {
    ++job->epoch;
    if (script_.home == Home::kSpill) {
      ++job->instance;
      job->fallback = make_fallback(*job);
    } else if (script_.home == Home::kDedicated) {
      job->fallback->set_epoch(job->epoch);
    }
  }
  start_switch();
}

void Rack::restart_fallback(uint32_t index) {
  Job& job = *jobs_[index];
  ++job.instance;
  if (rule(Rule::kEpochBump)) ++job.epoch;
  job.fallback = make_fallback(job);
  switch_->aggregator->new_epoch(job.index, job.epoch, job.instance,
                                 script_.home == Home::kSpill ? job.fallback.get() : nullptr);
}

// ---- the network

bool Rack::matches(const Match& match, const InFlight& message) {
  return message.job == match.job && (!match.type || message.message.type == *match.type) &&
         (match.of == kAny || static_cast<int>(value(message.message.rank)) == match.of) &&
         (match.to == kAny || message.to == match.to) &&
         (match.seq == kAny || message.message.seq == static_cast<uint32_t>(match.seq)) &&
         (!match.bare || message.message.bare() == *match.bare);
}

size_t Rack::count(const Match& match) const {
  return static_cast<size_t>(std::count_if(in_flight_.begin(), in_flight_.end(),
                                           [&](const auto& m) { return matches(match, m); }));
}

void Rack::deliver(const Match& match) {
  Messages now;
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    const auto next = std::next(it);
    if (matches(match, *it)) now.splice(now.end(), in_flight_, it);
    it = next;
  }
  ASSERT_FALSE(now.empty()) << "nothing to deliver";
  for (const InFlight& message : now) arrive(message);
}

void Rack::pass(const Match& match) {
  deliver(match);
  while (count(match) != 0) deliver(match);
}

void Rack::drop(const Match& match) {
  const auto lost = [&](const InFlight& message) { return matches(match, message); };
  ASSERT_NE(in_flight_.remove_if(lost), 0u) << "nothing to drop";
}

void Rack::duplicate(const Match& match) {
  ASSERT_NE(count(match), 0u) << "nothing to duplicate";
  for (const InFlight& message : in_flight_)
    if (matches(match, message)) held_.push_back(message);
}

void Rack::hold(const Match& match) {
  duplicate(match);
  drop(match);
}

void Rack::release(const Match& match) {
  size_t released = 0;
  for (auto it = held_.begin(); it != held_.end();) {
    const auto next = std::next(it);
    if (matches(match, *it)) {
      in_flight_.splice(in_flight_.end(), held_, it);
      ++released;
    }
    it = next;
  }
  ASSERT_NE(released, 0u) << "nothing is held";
}

void Rack::deliver_all() {
  for (int steps = 0; !in_flight_.empty(); ++steps) {
    ASSERT_LT(steps, kMostSteps) << "it never ends";
    if (std::exchange(switch_restarts_, false)) restart_switch();
    if (std::exchange(fallback_restarts_, false)) restart_fallback();
    const InFlight message = std::move(in_flight_.front());
    in_flight_.pop_front();
    arrive(message);
  }
}

void Rack::send(JobIndex job, int from, int to, const wire::Message& message,
                const std::byte* payload, uint32_t payload_bytes) {
  EXPECT_FALSE(wire::validate(message, payload_bytes, kSlotBytes))
      << name(message.type) << " from " << from << " is invalid";
  InFlight flying{job, from, to, message, {}};
  if (payload_bytes != 0) flying.payload.assign(payload, payload + payload_bytes);
  const size_t nth = sent_++;
  for (const Accident& accident : script_.accidents) {
    if (accident.nth != nth) continue;
    switch (accident.kind) {
      case Accident::Kind::kLost:
        return;
      case Accident::Kind::kLate:
        held_.push_back(std::move(flying));
        return;
      case Accident::Kind::kDoubled:
        held_.push_back(flying);
        break;
      case Accident::Kind::kSwitchRestarts:
        switch_restarts_ = true;
        break;
      case Accident::Kind::kFallbackRestarts:
        fallback_restarts_ = true;
        break;
    }
  }
  in_flight_.push_back(std::move(flying));
}

void Rack::arrive(const InFlight& message) {
  if (message.to == kSwitch) return arrive_at_switch(message);
  Job& job = *jobs_[message.job];
  if (message.to == kServer) {
    job.fallback->on_message(message.message, message.payload.data());
    return serve_fallback(job);
  }
  Worker& worker = job.workers[static_cast<size_t>(message.to)];
  if (worker.gone) return;
  const client::RxPacket packet{message.message, message.payload.data(),
                                static_cast<uint32_t>(message.payload.size())};
  PlainCopier copier;
  worker.engine->on_packets(std::span(&packet, 1), worker.clock, copier);
  if (script_.scribbles) scribble_over(worker);
  step(worker);
}

void Rack::arrive_at_switch(const InFlight& message) {
  static_assert(io::SwitchPort<OnePacketPort>);
  OnePacketPort port;
  port.packet = {message.message, message.payload.data(),
                 static_cast<uint32_t>(message.payload.size()), message.job,
                 Rank{static_cast<uint8_t>(message.from)}};
  io::RxPacket packets[1];
  aggregator::Verdict verdicts[1];
  const auto to_endpoint = [&](JobIndex job, Rank rank, const aggregator::Emission& emission) {
    send(job, kSwitch, static_cast<int>(value(rank)), emission.message, emission.payload,
         emission.payload_bytes);
  };
  const auto mismatch = [](const io::RxPacket& packet, const aggregator::Verdict&) {
    ADD_FAILURE() << "the switch sees a mismatch at seq " << packet.message.seq;
  };
  aggregator::serve(port, *switch_->aggregator, packets, verdicts, 0, to_endpoint, mismatch);
  dropped_.reset();
  if (verdicts[0].fate == aggregator::Verdict::Fate::kDropped) dropped_ = verdicts[0].reason;
}

void Rack::serve_fallback(Job& job) {
  wire::Outgoing packets[16];
  while (const size_t count = job.fallback->prepare(packets)) {
    for (size_t i = 0; i < count; ++i)
      send(job.index, kServer, kSwitch, packets[i].message, packets[i].payload,
           packets[i].payload_bytes);
    job.fallback->sent(count);
  }
}

const aggregator::Fallback& Rack::fallback(uint32_t job) const {
  return *jobs_[job]->fallback;
}
const aggregator::Counters& Rack::counters() const {
  return switch_->aggregator->counters();
}
uint32_t Rack::epoch(uint32_t job) const {
  return jobs_[job]->epoch;
}

}  // namespace ina::sim
