#include "sim/leader_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/known_sum.h"

namespace ina::sim {

/// One address of the rank.
class LeaderRank::Port final : public Endpoint {
 public:
  Port(LeaderRank& owner, Step step) : owner_(owner), step_(step) {}

  void arrived() override { owner_.received(step_); }
  void on_timer(uint64_t argument) override {
    Nic& nic = *owner_.nics_[step_];
    if (nic.on_timer(argument)) nic.pump();
  }

 private:
  LeaderRank& owner_;
  const Step step_;
};

LeaderRank::LeaderRank(Fabric& fabric, const LeaderRankSpec& spec, uint32_t job,
                       WorkerListener& listener)
    : fabric_(fabric), spec_(spec), job_(job), listener_(listener) {}

LeaderRank::~LeaderRank() = default;

uint32_t LeaderRank::add_address(Step step) {
  ports_[step] = std::make_unique<Port>(*this, step);
  hosts_[step] = hosts_[kReduce] ? fabric_.add_address(host(), *ports_[step])
                                 : fabric_.add_host(*ports_[step], spec_.rack);
  return *hosts_[step];
}

void LeaderRank::join(Step step, const LeaderStep& joined) {
  nics_[step] = std::make_unique<Nic>(fabric_, *hosts_[step], joined.engine, joined.job,
                                      joined.job_key, joined.switch_host);
  if (chunks_.empty()) cut(joined.engine.slot_bytes);
}

void LeaderRank::cut(uint32_t slot_bytes) {
  const uint64_t factor = fabric_.wire_factor();
  const uint64_t elements = (std::max<uint64_t>(1, (spec_.bytes + 3) / 4) + factor - 1) / factor;
  const uint64_t most = uint64_t{spec_.chunk_fragments} * slot_bytes / sizeof(int32_t);
  for (uint64_t first = 0; first < elements; first += most)
    chunks_.push_back({first, std::min(most, elements - first), {}});
  values_.resize(elements);
  sums_.resize(elements);
}

/// All is submitted at once; what has no input yet is held.
void LeaderRank::start() {
  for (size_t i = 0; i < values_.size(); ++i) values_[i] = contribution(iteration_, i, spec_.rank);
  std::ranges::fill(sums_, -1);
  for (Chunk& chunk : chunks_)
    for (const Step step : {kReduce, kAbove, kBroadcast})
      if (nics_[step]) submit(chunk, step);
  pump_all();
}

void LeaderRank::submit(Chunk& chunk, Step step) {
  Nic& nic = *nics_[step];
  const std::vector<int32_t>& from = step == kReduce ? values_ : sums_;
  client::OperationSpec operation;
  operation.send = reinterpret_cast<const std::byte*>(&from[chunk.first]);
  operation.recv = reinterpret_cast<std::byte*>(&sums_[chunk.first]);
  operation.elements = chunk.elements;
  operation.dtype = DType::kInt32;
  operation.listener = this;
  operation.stage = step;
  operation.held = spec_.leads && step != kReduce;
  if (step != kAbove) {
    scheduler::Block block{.elements = chunk.elements};
    (step == kReduce ? block.receiver : block.source) = 1;  // the leader
    operation.collective = step == kReduce ? Collective::kReduce : Collective::kBroadcast;
    operation.blocks = std::make_shared<const scheduler::BlockTable>(
        std::span(&block, 1), nic.engine().config().slot_bytes / sizeof(int32_t), 0);
  }
  chunk.operations[step] = nic.engine().submit(operation, fabric_.now());
  ++left_;
}

void LeaderRank::completed(client::Operation& operation) {
  progress_ = true;
  --left_;
  if (!spec_.leads) return;
  Chunk& chunk = chunks_[operation.number % chunks_.size()];
  if (operation.spec.stage == kReduce) release(chunk, kAbove);
  if (operation.spec.stage == kAbove) release(chunk, kBroadcast);
}

void LeaderRank::release(Chunk& chunk, Step step) {
  client::Operation& next = *chunk.operations[step];
  nics_[step]->engine().release_hold(&next, next.spec.send, chunk.elements);
}

void LeaderRank::received(Step step) {
  nics_[step]->receive();
  if (!std::exchange(progress_, false)) return nics_[step]->pump();
  if (left_ != 0) return pump_all();
  check();
  for (Chunk& chunk : chunks_)
    for (const Step each : {kReduce, kAbove, kBroadcast})
      if (client::Operation* const operation = std::exchange(chunk.operations[each], nullptr))
        nics_[each]->engine().release(operation);
  if (++iteration_ != spec_.iterations) return start();
  pump_all();
  listener_.finished(job_);
}

/// What is nearest to its end goes first over the link.
void LeaderRank::pump_all() {
  for (const Step step : {kBroadcast, kAbove, kReduce})
    if (nics_[step]) nics_[step]->pump();
}

void LeaderRank::check() {
  for (size_t i = 0; i < sums_.size(); ++i) {
    const int32_t expected = known_sum(iteration_, i, spec_.ranks);
    if (sums_[i] == expected) continue;
    return listener_.violated(
        fmt::format("job {} rank {} iteration {} element {}: {} instead of {}", job_, spec_.rank,
                    iteration_, i, sums_[i], expected));
  }
  ++sums_checked_;
}

}  // namespace ina::sim
